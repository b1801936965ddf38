"""What a runner says of a replica, also to coordinators of the version before, which refuse what they do not know."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.store.connection import CoordinatorRejects
from runner.gpus import Gpu
from runner.probing import Endpoint
from runner.serving import ServiceRun

AT = Endpoint(address="127.0.0.1", port=9, key="k" * 16)


class Coordinator:
    """Coordinator that takes some fields, and refuses a call with any other."""

    def __init__(self, *more: str) -> None:
        self.known = {"state", "why", "address", "port", "key", "host", *more}
        self.heard: list[dict[str, Any]] = []
        self.calls = 0

    def replica(self, **fields: Any) -> None:
        self.calls += 1
        if unknown := fields.keys() - self.known:
            raise CoordinatorRejects(f"{sorted(unknown)}: not known")
        self.heard.append(fields)


def run(coordinator: Coordinator, *gpus: Gpu) -> ServiceRun:
    made: Any = object.__new__(ServiceRun)
    made._tells_more, made._files, made._spec = True, coordinator, {}
    made._place = SimpleNamespace(slot=SimpleNamespace(name="0", pid=os.getpid()))
    made._host = SimpleNamespace(name="attic", tunnels=None, ledger=SimpleNamespace(gpus=lambda _slot: gpus))
    found: ServiceRun = made
    return found


def test_a_replica_is_told_with_its_memory_and_its_devices() -> None:
    gpus = [
        Gpu(uuid=f"GPU-{number}", index=number, name="A; GPU", memory_mib=1, compute_capability="9.0")
        for number in (1, 2)
    ]
    for found, devices in ((gpus, "A, GPU GPU-1;A, GPU GPU-2"), ([], "cpu")):
        coordinator = Coordinator("memory_bytes", "devices")
        run(coordinator, *found)._report(AT, "ready", "")
        [heard] = coordinator.heard
        assert heard["devices"] == devices and heard["memory_bytes"] >= 0 and heard["host"] == "attic"


def test_a_coordinator_of_the_version_before_is_told_what_it_knows() -> None:
    coordinator = Coordinator()
    replica = run(coordinator)
    for state in ("starting", "ready"):
        replica._report(AT, state, "")
    assert [heard["state"] for heard in coordinator.heard] == ["starting", "ready"] and coordinator.calls == 3


def test_a_call_that_is_refused_for_another_reason_is_an_error() -> None:
    coordinator = Coordinator()
    coordinator.known = set()
    with pytest.raises(CoordinatorRejects):
        run(coordinator)._report(AT, "ready", "")
