"""Interface through which kernels use a GPU: CUDA sources, arrays and launches.

The worker process provides the device: `gpu_worker` provides a CuPy device, and tests provide a device that runs the
same sources on the host.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

#: Array in GPU memory.
Array: TypeAlias = Any

#: Target duration of a GPU launch in seconds; short launches let a worker react quickly to cancellation and SIGTERM.
LAUNCH_SECONDS = 0.1
#: Maximum duration in seconds of a wave: a launch with as many units as the GPU can compute in parallel.
WAVE_SECONDS = 0.5

#: Second folder in which includes of CUDA sources are searched: files that all kinds share.
SHARED = Path(__file__).parent

_INCLUDE = re.compile(r'^#include "([\w.]+)"$', re.MULTILINE)


class OutOfMemory(Exception):
    """The GPU does not have enough free memory for an allocation. A smaller launch can fit."""


class DeviceLost(Exception):
    """The GPU failed, and this process can no longer use it."""


class Device(Protocol):
    """A GPU that several threads can use. Launches of one thread run in order."""

    #: Product name of the GPU.
    name: str
    uuid: str
    #: Number of streaming multiprocessors.
    processors: int

    def __hash__(self) -> int: ...

    def compiled(self, source: str) -> Callable[..., None]:
        """Compile a CUDA source and return the function launch(name, blocks, threads, *arguments) for its kernels.

        Arguments are arrays or integers. The source is compiled on first use and then cached.
        """

    def put(self, values: Any) -> Array:
        """Copy a numpy array into GPU memory. Raises OutOfMemory if there is not enough free memory."""

    def zeros(self, length: int, kind: Any) -> Array:
        """Allocate a zero-filled array of the given length and dtype in GPU memory. Raises OutOfMemory."""

    def get(self, array: Array) -> Any:
        """Wait for all launches of this thread, then copy an array from GPU memory. Raises DeviceLost."""


_devices: list[Device] = []


def set_device(device: Device | None) -> None:
    """Set the GPU of this process; None if the process has no GPU."""
    _devices[:] = [] if device is None else [device]
    _launchers.clear()


def current_device() -> Device:
    """Return the GPU of this process. Raises DeviceLost if it has none."""
    if not _devices:
        raise DeviceLost("this process has no GPU")
    return _devices[0]


@dataclass(frozen=True)
class Source:
    """CUDA source file of a kind, and the constants that the file shares with Python."""

    path: Path
    constants: tuple[tuple[str, int], ...] = ()

    def text(self) -> str:
        """Return the source as one text, with its constants defined and its includes inlined.

        Caches of compiled code compare a single text.
        """
        defined = "".join(f"#define {name} {value}\n" for name, value in self.constants)
        return defined + _inline_includes(self.path)


def _inline_includes(path: Path) -> str:
    def text(include: re.Match[str]) -> str:
        beside = path.with_name(include[1])
        return _inline_includes(beside if beside.exists() else SHARED / include[1])

    return _INCLUDE.sub(text, path.read_text())


_compiling = threading.Lock()
_launchers: dict[Source, Callable[..., None]] = {}


def kernels(source: Source) -> Callable[..., None]:
    """Return the function that launches the CUDA kernels of a source on this process's GPU.

    Compiled kernels are available while another thread is compiling other kernels.
    """
    if source not in _launchers:
        with _compiling:
            if source not in _launchers:
                _launchers[source] = current_device().compiled(source.text())
    return _launchers[source]


class Batch:
    """Number of units per GPU launch, adapted so that a launch takes LAUNCH_SECONDS and fits into GPU memory.

    Threads can share a batch without a lock, because any value that it holds is a valid size. `wave` is the number of
    units that the device computes at once, one thread per unit. A smaller launch takes just as long, so launches grow
    to a wave unless a wave takes WAVE_SECONDS.
    """

    def __init__(self, first: int, most: int, wave: int = 1) -> None:
        self.size, self.most, self.wave = first, most, wave
        #: Maximum number of units that fits into device memory, as far as known.
        self.fits = most

    def take(self, wanted: int, launch: Callable[[int], int]) -> int:
        """Compute up to `wanted` units with `launch(units)`, and return the number of units that the launch computed.

        Retry with fewer units if memory runs out. Raises OutOfMemory if a single unit does not fit.
        """
        while True:
            units = max(1, min(self.size, self.fits, wanted))
            started = time.perf_counter()
            try:
                taken = launch(units)
            except OutOfMemory:
                if units == 1:
                    raise
                self.fits = units // 2
            else:
                self._adjust(taken, units, time.perf_counter() - started)
                return taken

    def _adjust(self, taken: int, units: int, seconds: float) -> None:
        """Adapt the launch size to the duration of the last launch. The next launch is at most four times larger."""
        fitting = int(taken * LAUNCH_SECONDS / max(seconds, 1e-6))
        if seconds < WAVE_SECONDS:
            fitting = max(fitting, self.wave)
        if units >= self.size or fitting < self.size:
            self.size = max(1, min(fitting, 4 * self.size, self.most))
