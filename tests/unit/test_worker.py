"""A worker that ends because its device failed."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.models import Device
from jobs.settings import Settings
from jobs.worker import links
from jobs.worker.life import Worker


def test_a_worker_that_retires_takes_no_lease_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until its main thread had heard the signal, lanes on a lost GPU took range after range and reported them dead."""
    told: list[Any] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: told.append(number))
    worker = Worker(Settings(worker_id="w"), Device.GPU, 2)
    worker.retire("before it served")
    worker.server = SimpleNamespace(stop=lambda: told.append("stopped"))  # type: ignore[assignment]
    worker.retire("the GPU failed")
    assert told == [signal.SIGTERM, "stopped", signal.SIGTERM] and worker.retired == "before it served"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_worker_listens_stops_its_server(number: signal.Signals) -> None:
    """It said that it was idle and died of a signal, since the handlers came with the listening alone."""
    before = signal.getsignal(number)
    told: list[str] = []
    with links.on_signals(lambda: told.append("stopped")):
        os.kill(os.getpid(), number)
    assert told == ["stopped"] and signal.getsignal(number) == before
