"""Tests a runner's reports about a replica."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from runner.gpus import Gpu
from runner.replicas.probing import Endpoint
from runner.replicas.serving import ServiceRun

AT = Endpoint(address="127.0.0.1", port=9, key="k" * 16)


class Coordinator:
    """Fake coordinator that stores the fields of each request."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []

    def replica(self, **fields: Any) -> None:
        self.heard.append(fields)


def run(coordinator: Coordinator, *gpus: Gpu) -> ServiceRun:
    made: Any = object.__new__(ServiceRun)
    made.files, made.spec = coordinator, {"group": False}
    made.place = SimpleNamespace(slot=SimpleNamespace(name="0", pid=os.getpid()))
    made.host = SimpleNamespace(name="attic", tunnels=None, ledger=SimpleNamespace(gpus=lambda _slot: gpus))
    found: ServiceRun = made
    return found


def test_a_replica_is_told_with_its_memory_and_its_devices() -> None:
    gpus = [
        Gpu(uuid=f"GPU-{number}", index=number, name="A; GPU", memory_mib=1, compute_capability="9.0")
        for number in (1, 2)
    ]
    for found, devices in ((gpus, "A, GPU GPU-1;A, GPU GPU-2"), ([], "cpu")):
        coordinator = Coordinator()
        run(coordinator, *found).report(AT, "ready", "")
        [heard] = coordinator.heard
        assert heard["devices"] == devices and heard["memory_bytes"] >= 0 and heard["host"] == "attic"
