"""Tests the CuPy device with a fake cupy: its calls, its streams, and the conversion of CUDA's errors."""

from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpu_worker.cupy_device import CupyDevice
from jobs.kinds import gpu


class Failure(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"CUDA says {status}")
        self.status = status


class Full(Exception): ...


class Array(np.ndarray):
    def get(self, stream: Any, blocking: bool) -> Any:
        assert blocking and stream.entered
        return np.array(self)


class Stream:
    def __init__(self, non_blocking: bool) -> None:
        assert non_blocking
        self.entered = 0

    def __enter__(self) -> Stream:
        self.entered += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.entered -= 1

    def synchronize(self) -> None: ...


class Cupy(ModuleType):
    """The part of cupy that the device uses; the next call raises `failing`."""

    def __init__(self) -> None:
        super().__init__("cupy")
        self.failing: Exception | None = None
        self.launched: list[Any] = []
        self.limits: list[int] = []
        self.sources: list[Any] = []
        self.ndarray = Array
        runtime = SimpleNamespace(CUDARuntimeError=Failure, getDeviceProperties=self._properties)
        memory = SimpleNamespace(OutOfMemoryError=Full)
        self.cuda = SimpleNamespace(
            runtime=runtime, memory=memory, Stream=Stream, driver=SimpleNamespace(CUDADriverError=Failure)
        )
        pool = SimpleNamespace(set_limit=self._limit, free_all_blocks=lambda: None)
        self.get_default_memory_pool = lambda: pool

    def _properties(self, number: int) -> dict[str, Any]:
        self._fail()
        return {"name": b"Pretended", "multiProcessorCount": 132}

    def _limit(self, size: int) -> None:
        self.limits.append(size)

    def _fail(self) -> None:
        if self.failing:
            raise self.failing

    def asarray(self, values: Any) -> Any:
        self._fail()
        return np.array(values).view(Array)

    def zeros(self, length: int, kind: Any) -> Any:
        self._fail()
        return np.zeros(length, kind).view(Array)

    def RawModule(self, **options: Any) -> Any:  # noqa: N802 - cupy's name
        self.sources.append(options)

        def function(blocks: Any, threads: Any, arguments: Any) -> None:
            self._fail()
            self.launched.append((blocks, threads, arguments))

        return SimpleNamespace(compile=lambda: None, get_function=lambda name: function)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Cupy:
    pretended = Cupy()
    monkeypatch.setitem(sys.modules, "cupy", pretended)
    return pretended


def test_a_launch_passes_arrays_and_64_bit_integers(cupy: Cupy) -> None:
    device = CupyDevice("GPU-1", memory=5 * 2**20)
    assert (device.name, device.processors, cupy.limits) == ("Pretended", 132, [5 * 2**20])
    array = device.zeros(3, np.uint64)
    device.compiled("source")("kernel", 4, 64, array, 2**64 - 1, -1, np.int64(7))
    [(blocks, threads, arguments)] = cupy.launched
    assert (blocks, threads) == ((4,), (64,)) and arguments[0] is array
    assert [(type(each), int(each)) for each in arguments[1:]] == [
        (np.uint64, 2**64 - 1),
        (np.uint64, 2**64 - 1),
        (np.uint64, 7),
    ]
    assert cupy.sources[0]["code"] == "source" and cupy.sources[0]["backend"] == "nvrtc"
    assert device.get(device.put(np.arange(3))).tolist() == [0, 1, 2]


def test_each_thread_has_one_stream_of_its_own(cupy: Cupy) -> None:
    device, seen = CupyDevice("GPU-1"), []

    def use() -> None:
        for _ in range(3):
            with device.use_stream() as stream:
                seen.append(stream)

    threads = [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
        thread.join()
    assert len(seen) == 6 and len(set(map(id, seen))) == 2


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(Full(), gpu.OutOfMemory), (Failure(2), gpu.OutOfMemory), (Failure(700), gpu.DeviceLost)],
)
def test_errors_of_cuda_are_told_apart(cupy: Cupy, raised: Exception, expected: type[Exception]) -> None:
    device = CupyDevice("GPU-1")
    launch = device.compiled("source")
    cupy.failing = raised
    for call in (lambda: device.zeros(3, np.uint64), lambda: device.put(np.zeros(3)), lambda: launch("kernel", 1, 1)):
        with pytest.raises(expected):
            call()


def test_a_gpu_that_cannot_be_opened_and_a_missing_cupy_are_said(cupy: Cupy, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy.failing = Failure(100)
    with pytest.raises(gpu.DeviceLost, match="CUDA says 100"):
        CupyDevice("GPU-1")
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(gpu.DeviceLost, match=r"requirements/gpu-worker\.txt"):
        CupyDevice("GPU-1")
