"""Tests a worker that exits because its device failed."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.models import Device
from jobs.settings import Settings
from jobs.store.server.connection import CoordinatorAway
from jobs.worker.api import links
from jobs.worker.api.api_calls import AccessDenied
from jobs.worker.heartbeats import HeartbeatThread
from jobs.worker.lifecycle import Worker


def test_a_worker_that_retires_takes_no_lease_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes on a lost GPU once reported one range after another as dead, until the main thread received the signal."""
    told: list[Any] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: told.append(number))
    worker = Worker(Settings(worker_id="w"), Device.GPU, 2)
    worker.retire("before it served")
    worker.server = SimpleNamespace(stop=lambda: told.append("stopped"))  # type: ignore[assignment]
    worker.retire("the GPU failed")
    assert told == [signal.SIGTERM, "stopped", signal.SIGTERM] and worker.retired == "before it served"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_worker_listens_stops_its_server(number: signal.Signals) -> None:
    """The worker once reported idle and died of a signal, because its handlers were installed late."""
    before = signal.getsignal(number)
    told: list[str] = []
    with links.on_signals(lambda: told.append("stopped")):
        os.kill(os.getpid(), number)
    assert told == ["stopped"] and signal.getsignal(number) == before


def goodbyes(*errors: Exception) -> tuple[HeartbeatThread, list[Any]]:
    """Return heartbeats of a worker whose first calls to the store fail, and the received reports of its exit."""
    sent: list[Any] = []
    failing = iter(errors)

    def heartbeat(worker: str, born: str, row: Any, *, leaving: bool) -> str:
        sent.append((worker, row["state"], leaving))
        if error := next(failing, None):
            raise error
        return "ok"

    store: Any = SimpleNamespace(fleet=SimpleNamespace(heartbeat=heartbeat))
    server: Any = SimpleNamespace(worker="w", tasks={}, slot=None, stopping=True)
    beats = HeartbeatThread(store, server, "1", lambda: {"state": "idle"}, lambda: None)
    beats.run = lambda: None  # type: ignore[method-assign]
    beats.start()
    return beats, sent


def test_a_goodbye_that_was_not_answered_is_sent_again() -> None:
    """A stopped worker once counted as lost after a single attempt that timed out."""
    beats, sent = goodbyes(CoordinatorAway("it takes too long to answer", 0.01), CoordinatorAway("again", 0.01))
    beats.end()
    assert sent == [("w", "stopped", True)] * 3


def test_a_goodbye_that_is_refused_is_not_sent_again() -> None:
    beats, sent = goodbyes(AccessDenied("its token was revoked"))
    beats.end()
    assert len(sent) == 1


def test_a_worker_starts_although_the_store_goes_away_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.worker.api.links.time.sleep", lambda seconds: None)
    refusals = iter([CoordinatorAway("gone", 0.01)])
    failing = iter([CoordinatorAway("Connection closed by server.", 0.01)])
    sent: list[Any] = []

    def birth() -> str:
        if error := next(refusals, None):
            raise error
        return "0000000000001-x"

    def heartbeat(worker: str, born: str, row: Any, *, leaving: bool = False) -> str:
        sent.append((born, row["state"]))
        if error := next(failing, None):
            raise error
        return "ok"

    def start() -> list[Any]:
        raise links.CannotStart("it has started, which is all that is tested")

    link: Any = SimpleNamespace(
        worker="w", store=SimpleNamespace(fleet=SimpleNamespace(birth=birth, heartbeat=heartbeat))
    )
    assert Worker(Settings(worker_id="w"), Device.CPU, 1).run(link, start, lambda: None) == 1
    assert sent[0] == ("0000000000001-x", "starting") and sent[-1] == ("0000000000001-x", "stopped")
