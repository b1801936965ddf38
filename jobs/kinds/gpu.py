"""The device as GPU kernels see it: compiled sources, arrays, launches. A worker brings the device.

`gpu_worker` brings one on CuPy, the tests one that runs the same sources on the host.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeAlias

#: An array in the device's memory.
Array: TypeAlias = Any

#: Seconds that a launch aims at: long enough to cost nothing, short enough for cancel and SIGTERM.
LAUNCH_SECONDS = 0.1
#: Seconds that a launch may take which computes no more units than the device does at once.
WAVE_SECONDS = 0.5

#: Where includes are looked for that are not beside the file: what kinds share.
SHARED = Path(__file__).parent

_INCLUDE = re.compile(r'^#include "([\w.]+)"$', re.MULTILINE)


class OutOfMemory(Exception):
    """The device has no room for what was asked; a smaller launch may fit."""


class DeviceLost(Exception):
    """The device failed; nothing more can be computed by this process."""


class Device(Protocol):
    """One GPU. Calls come from several threads; each has launches of its own, in their order."""

    #: Name for people.
    name: str
    uuid: str
    #: Streaming multiprocessors.
    processors: int

    def __hash__(self) -> int: ...

    def compiled(self, source: str) -> Callable[..., None]:
        """Return launch(name, blocks, threads, *arguments) of a source's kernels; arguments are arrays or integers.

        The source is compiled on first use and kept.
        """

    def put(self, values: Any) -> Array:
        """A copy of a numpy array in the device's memory. Raises OutOfMemory."""

    def zeros(self, length: int, kind: Any) -> Array:
        """Raises OutOfMemory."""

    def get(self, array: Array) -> Any:
        """A numpy array, after all launches of this thread. Raises DeviceLost."""


_devices: list[Device] = []


def use(device: Device | None) -> None:
    """Make this the device of the process; None: it has none."""
    _devices[:] = [] if device is None else [device]
    _launchers.cache_clear()


def current() -> Device:
    """Return the device of this process; DeviceLost when it has none."""
    if not _devices:
        raise DeviceLost("this process has no GPU")
    return _devices[0]


@dataclass(frozen=True)
class Source:
    """A file of kernels beside its kind, and the constants that it shares with Python."""

    path: Path
    constants: tuple[tuple[str, int], ...] = ()

    def text(self) -> str:
        """Return the source with its constants defined and its includes in place of their lines: compilers' caches look
        at one text only.
        """
        defined = "".join(f"#define {name} {value}\n" for name, value in self.constants)
        return defined + _included(self.path)


def _included(path: Path) -> str:
    def text(include: re.Match[str]) -> str:
        beside = path.with_name(include[1])
        return _included(beside if beside.exists() else SHARED / include[1])

    return _INCLUDE.sub(text, path.read_text())


_compiling = threading.Lock()


@lru_cache
def _launchers(source: Source) -> Callable[..., None]:
    return current().compiled(source.text())


def kernels(source: Source) -> Callable[..., None]:
    """Return the function that launches the kernels of a source on this process' device."""
    with _compiling:
        return _launchers(source)


class Batch:
    """Size of launches in units: as many as take LAUNCH_SECONDS, fewer when memory runs out. Threads may share one: any
    value that it holds is a good one.

    A `wave` is what the device computes at once, a thread for each unit: fewer take as long, so that launches grow
    to a wave unless one takes WAVE_SECONDS.
    """

    def __init__(self, first: int, most: int, wave: int = 1) -> None:
        self.size, self.most, self.wave = first, most, wave
        #: More did not fit into the memory.
        self.fits = most

    def take(self, wanted: int, launch: Callable[[int], int]) -> int:
        """Have at most `wanted` units computed by `launch(units)`, which returns how many it took; return that.

        When memory runs out fewer are tried. Raises OutOfMemory when a single unit does not fit.
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
                self._took(taken, units, time.perf_counter() - started)
                return taken

    def _took(self, taken: int, units: int, seconds: float) -> None:
        """Learns from a launch; the next may be four times as great."""
        fitting = int(taken * LAUNCH_SECONDS / max(seconds, 1e-6))
        if seconds < WAVE_SECONDS:
            fitting = max(fitting, self.wave)
        if units >= self.size or fitting < self.size:
            self.size = max(1, min(fitting, 4 * self.size, self.most))
