"""GPU device based on CuPy, with one context and one stream per thread. The only module that imports cupy.

cupy is imported when a device is created. Set CUDA_VISIBLE_DEVICES before. Supports cupy-cuda12x and cupy-cuda13x.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from jobs.kinds import gpu

#: Error code of the CUDA runtime and driver for insufficient GPU memory.
_OUT_OF_MEMORY = 2
OPTIONS = ("--std=c++17",)


class CupyDevice:
    """GPU device that uses up to `memory` bytes of GPU memory; 0 means no limit. Raises DeviceLost."""

    def __init__(self, uuid: str, memory: int = 0) -> None:
        self.uuid = uuid
        self._own = threading.local()
        try:
            self._cupy: Any = importlib.import_module("cupy")
        except ImportError as error:
            raise gpu.DeviceLost(f"{error}: pip install -r requirements/gpu-worker.txt") from error
        runtime = self._cupy.cuda.runtime
        self._failures = (runtime.CUDARuntimeError, self._cupy.cuda.driver.CUDADriverError)
        with self._translate_errors():
            facts = runtime.getDeviceProperties(0)
            self.name, self.processors = facts["name"].decode(), int(facts["multiProcessorCount"])
            self._cupy.get_default_memory_pool().set_limit(size=memory)

    def compiled(self, source: str) -> Callable[..., None]:
        with self._translate_errors():
            module = self._cupy.RawModule(code=source, options=OPTIONS, backend="nvrtc")
            module.compile()

        def launch(name: str, blocks: int, threads: int, *arguments: Any) -> None:
            passed = tuple(
                each if isinstance(each, self._cupy.ndarray) else np.uint64(int(each) % 2**64) for each in arguments
            )
            with self._translate_errors(), self.use_stream():
                module.get_function(name)((blocks,), (threads,), passed)

        return launch

    def put(self, values: Any) -> gpu.Array:
        with self._translate_errors(), self.use_stream() as stream:
            array = self._cupy.asarray(np.ascontiguousarray(values))
            stream.synchronize()  # Other threads may read the array next.
            return array

    def zeros(self, length: int, kind: Any) -> gpu.Array:
        with self._translate_errors(), self.use_stream():
            return self._cupy.zeros(length, kind)

    def get(self, array: gpu.Array) -> Any:
        with self._translate_errors(), self.use_stream() as stream:
            return array.get(stream=stream, blocking=True)

    @contextmanager
    def use_stream(self) -> Iterator[Any]:
        """Activate the CUDA stream of the calling thread, so that launches of two lanes run concurrently."""
        if not hasattr(self._own, "stream"):
            self._own.stream = self._cupy.cuda.Stream(non_blocking=True)
        with self._own.stream as stream:
            yield stream

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Convert CUDA errors to the exceptions of `jobs.kinds.gpu`."""
        try:
            yield
        except self._cupy.cuda.memory.OutOfMemoryError as error:
            self._cupy.get_default_memory_pool().free_all_blocks()
            raise gpu.OutOfMemory(str(error)) from error
        except self._failures as error:
            if error.status == _OUT_OF_MEMORY:
                raise gpu.OutOfMemory(str(error)) from error
            raise gpu.DeviceLost(str(error)) from error
