"""Tests that dependents of a failed or cancelled job are skipped or released at once, before the next round."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordinator.background import dependency_task
from coordinator.background.dependency_task import DependencyTask
from coordinator.background.periodic_task import PeriodicTask
from coordinator.events.event import Event
from jobs.store import Store
from jobs.store.server import connection
from jobs.store.work import wakeups
from tests.contract.lease_model import new_job
from tests.integration.live import until


@pytest.fixture
def store(any_redis_url: str) -> Iterator[Store]:
    made = Store(connection.connect(any_redis_url))
    wakeups.create_wakeup_job(made)
    yield made
    made.client.close()


@pytest.fixture
def task(store: Store) -> Iterator[PeriodicTask]:
    """Return the task of a leader, which runs only after events during a test."""
    made = PeriodicTask(
        "dependents",
        DependencyTask(store.fleet).run_once,
        failure="failed",
        interval=3600.0,
        wakes_on=dependency_task.has_failed,
    )
    made.start()
    yield made
    made.stop()
    made.join(30)


def ended(state: str) -> Event:
    return Event(id="1-1", fields={"type": state, "state": state, "job": "root"})


def test_dependents_of_a_cancelled_job_are_handled_at_once(store: Store, task: PeriodicTask) -> None:
    parents = [new_job(name, 10, "any.normal") for name in ("root", "other")]
    after = [new_job("any", 10, "any.normal", after_any=("root",)), new_job("ok", 10, "any.normal", after=("root",))]
    store.jobs.submit([*parents, *after])
    store.jobs.cancel("root")
    assert store.client.hget("ct:job:any", "state") == b"blocked"
    task.notify([ended("cancelled")])
    until(lambda: store.client.hmget("ct:job:any", "state") == [b"queued"])
    assert store.client.hget("ct:job:ok", "state") == b"skipped"


def test_dependents_of_a_done_job_need_no_task() -> None:
    assert not dependency_task.has_failed([ended("done")])
    assert dependency_task.has_failed([ended("done"), ended("failed")])
