"""Tests background work of a coordinator: when it runs, what it logs, and how it ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from coordinator.background.periodic_task import PeriodicTask
from coordinator.events.event import Event
from jobs import errors
from tests.integration.live import until

EVENT = Event(id="1-1", fields={"type": "done", "state": "done", "job": "a"})
task = partial(PeriodicTask, "task", failure="it was not done")


def raising(*reasons: Exception | None) -> Callable[[], None]:
    """Return work that fails with these errors, one after another."""
    left = list(reasons)

    def work() -> None:
        if reason := left.pop(0):
            raise reason

    return work


def test_a_failure_is_logged_once_until_the_work_succeeds_or_fails_differently(
    caplog: pytest.LogCaptureFixture,
) -> None:
    full, fault = errors.StoreFull("the store is full"), RuntimeError("a fault")
    one = task(raising(full, full, fault, fault, None, full))
    for _ in range(6):
        one.attempt()
    assert [record.message for record in caplog.records] == [
        "it was not done: the store is full",
        "it was not done: RuntimeError: a fault",
        "it was not done: the store is full",
    ]
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.ERROR, logging.WARNING]
    assert caplog.records[1].exc_info, "a fault of ours needs its traceback"


def test_work_says_when_it_is_due_again_and_a_failure_waits_for_the_interval() -> None:
    assert task(lambda: 0.25, interval=3.0).attempt() == 0.25
    assert task(lambda: None, interval=3.0).attempt() == 3.0
    assert task(raising(OSError("no")), interval=3.0).attempt() == 3.0


def test_without_its_condition_the_other_work_is_done() -> None:
    done: list[str] = []
    leads = [False]
    one = task(lambda: done.append("work"), condition=lambda: leads[0], otherwise=lambda: done.append("other"))
    one.attempt()
    leads[0] = True
    one.attempt()
    assert done == ["other", "work"]


def test_events_that_concern_it_wake_it() -> None:
    calls = threading.Semaphore(0)
    one = task(calls.release, interval=3600.0, wakes_on=lambda events: EVENT in events)
    one.start()
    one.notify([])
    assert not calls.acquire(timeout=0.2)
    one.notify([EVENT])
    assert calls.acquire(timeout=60)
    one.stop()
    one.join(60)
    assert not one.is_alive()


def test_stop_waits_for_the_last_call_but_not_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.background.periodic_task.STOP_SECONDS", 60.0)
    ended: list[bool] = []
    one = task(lambda: None, interval=3600.0, at_end=lambda: ended.append(True))
    one.start()
    one.stop()
    assert ended == [True]
    monkeypatch.setattr("coordinator.background.periodic_task.STOP_SECONDS", 0.05)
    hangs = threading.Event()
    two: Any = task(lambda: None, interval=3600.0, at_end=lambda: print(hangs.wait()))
    two.start()
    two.stop()
    assert two.is_alive()
    hangs.set()
    until(lambda: not two.is_alive())
