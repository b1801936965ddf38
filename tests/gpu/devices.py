"""The device that tests of GPU kernels run on: this host, or with GPU_TESTS=cuda the first GPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest

from jobs.kinds import gpu
from tests.gpu.host_device import MISSING, HostDevice

ON_CUDA = os.environ.get("GPU_TESTS") == "cuda"
#: Launches on a real GPU so far, so that a run that never reached it can be told.
launches = [0]


@lru_cache
def real() -> Any:
    """The first GPU through CuPy. Fails where there is none."""
    from gpu_worker.cupy_device import CupyDevice

    return _counted(CupyDevice("tests"))


def _counted(device: Any) -> Any:
    compiled = device.compiled

    def counting(source: str) -> Callable[..., None]:
        launch = compiled(source)

        def counted(*arguments: Any) -> None:
            launches[0] += 1
            launch(*arguments)

        return counted

    device.compiled = counting
    return device


def device(**shape: int) -> gpu.Device:
    """`shape` is that of a host device; a GPU keeps its own."""
    if MISSING and not ON_CUDA:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(MISSING)
    found: gpu.Device = real() if ON_CUDA else HostDevice(**shape)  # type: ignore[arg-type]
    return found
