"""Tests the detection of GPUs that other processes use, through NVIDIA's driver."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from runner import gpus
from runner.gpus import Gpu

GPU = Gpu(uuid="GPU-a", index=0, name="H100", memory_mib=81_559, compute_capability="9.0")


class Refused(Exception):
    """An error of the driver."""


class Driver(SimpleNamespace):
    """Fake pynvml with one GPU. Without `pids` it reports no processes, and without `errors` no memory errors."""

    def __init__(self, used_mib: int = 600, pids: tuple[int, ...] | None = (), errors: int | None = 0) -> None:
        super().__init__(
            NVML_MEMORY_ERROR_TYPE_UNCORRECTED=1,
            NVML_VOLATILE_ECC=0,
            nvmlDeviceGetTotalEccErrors=self.ecc_errors,
            errors=errors,
            NVMLError=Refused,
            nvmlInit=lambda: self.count(1),
            nvmlShutdown=lambda: self.count(-1),
            nvmlDeviceGetHandleByUUID=self.handle,
            nvmlDeviceGetComputeRunningProcesses=self.processes,
            nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=used_mib << 20),
            pids=pids,
            open=0,
        )

    def count(self, change: int) -> None:
        self.open += change

    def handle(self, uuid: str) -> str:
        if uuid != GPU.uuid:
            raise Refused("Not Found")
        return uuid

    def ecc_errors(self, handle: str, sort: int, since: int) -> int:
        if self.errors is None or (sort, since) != (1, 0):
            raise Refused("Not Supported")
        return int(self.errors)

    def processes(self, handle: str) -> list[Any]:
        if self.pids is None:
            raise Refused("Not Supported")
        return [SimpleNamespace(pid=pid) for pid in self.pids]


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        (Driver(), ""),
        (Driver(pids=(7, 9)), "are using it: 7, 9"),
        (Driver(5000), "5000 MiB of its memory"),
        (Driver(5000, None), "5000 MiB of its memory"),
        (Driver(600, None), ""),
        (Driver(errors=None), ""),
        (Driver(errors=3), "could not correct 3 memory errors"),
    ],
)
def test_processes_and_much_memory_of_others_are_seen(
    monkeypatch: pytest.MonkeyPatch, driver: Driver, words: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    said = gpus.foreign(GPU)
    assert (words in said) if words else not said
    assert driver.open == 0


def test_without_a_driver_nothing_can_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpus.foreign(GPU) == ""
    driver = Driver(5000)
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    gone = Gpu(uuid="GPU-b", index=1, name="H100", memory_mib=1, compute_capability="9.0")
    assert gpus.foreign(gone) == "" and driver.open == 0
