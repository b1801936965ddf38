"""Records the measurements of a host for a profile. A worker starts this module as a child process.

The command is `python -m jobs.worker.telemetry.sampler`. The worker writes one line of JSON, `Asked`, to stdin.
Sampling stops at a second line or when stdin is closed, for example because the worker died. Each sample is one line of
the file, written by one call, so a kill truncates only the last line. docs/profiles.md describes the lines. Times are
monotonic; the first line contains the matching wall time, so changes of the wall clock do not shift samples.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import psutil

from jobs.worker.telemetry.host import Packages

#: Maximum sampling rate in hertz, except for CPU time, network bytes and energy.
SLOW_HZ = 10
#: Space in bytes that is reserved for the last line of a file.
_LAST_LINE = 4096
#: Interval in seconds between progress messages to the worker.
_TOLD_SECONDS = 1.0
#: Fields of `jobs.worker.telemetry.gpus.Sample`, keyed by their short names in a recording.
GPU_FIELDS = {
    "u": "utilization_ratio",
    "s": "sm_active_ratio",
    "m": "memory_used_bytes",
    "w": "power_watts",
    "j": "energy_joules_total",
    "c": "temperature_celsius",
    "h": "clock_sm_hertz",
    "rx": "pcie_receive_bytes_per_second",
    "tx": "pcie_transmit_bytes_per_second",
}


class Gpus(Protocol):
    """Source of GPU measurements. A value that is not available is None."""

    def sample(self, uuid: str) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Request of a worker to record a profile."""

    file: str
    hz: int
    #: Maximum duration of the recording in seconds.
    seconds: float
    #: Maximum size of the file in bytes.
    most: int
    #: True to record the host's own measurements.
    host: bool
    #: UUIDs of the GPUs to sample.
    gpus: tuple[str, ...]
    #: First line of the file, without the fields that only this process knows.
    head: Mapping[str, Any]


class Lines:
    """Writes lines to a file, each by one call, so that a truncated line does not corrupt other lines."""

    def __init__(self, descriptor: int, most: int) -> None:
        self._descriptor, self._most = descriptor, most
        self._torn = False
        self.bytes = 0

    @property
    def full(self) -> bool:
        """Return True if the file has space only for the last line."""
        return self.bytes > self._most - _LAST_LINE

    def write(self, line: Mapping[str, Any]) -> bool:
        """Write a line. Return False if the write failed or was incomplete."""
        data = b"\n" * self._torn + json.dumps(line, separators=(",", ":")).encode() + b"\n"
        try:
            written = os.write(self._descriptor, data)
        except OSError:
            return False
        self.bytes += written
        self._torn = written < len(data)
        return not self._torn


class HostFigures:
    """Measurements of this host: monotonic counters, and the memory in use."""

    def __init__(self) -> None:
        self._packages = Packages()

    def fast(self) -> dict[str, float | int]:
        """Return busy CPU seconds since boot, bytes of network traffic, and joules since this object was created."""
        network, joules = psutil.net_io_counters(), self._packages.joules()
        return {
            "cpu": round(busy_seconds(psutil.cpu_times()), 2),
            **({"rx": network.bytes_recv, "tx": network.bytes_sent} if network else {}),
            **({} if joules is None else {"j": round(joules, 3)}),
        }

    def slow(self) -> dict[str, float | int]:
        """Return the memory in use and the disk traffic, in bytes."""
        memory, disk = psutil.virtual_memory(), _disks()
        return {
            "m": memory.total - memory.available,
            **({"rd": disk.read_bytes, "wr": disk.write_bytes} if disk else {}),
        }


def busy_seconds(times: Any) -> float:
    """Return the CPU time in seconds that was not idle. Guest time is not added, because user time includes it."""
    idle = times.idle + getattr(times, "iowait", 0.0)
    return float(sum(times) - idle - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0))


def _disks() -> Any:
    with contextlib.suppress(RuntimeError, OSError):  # /proc/diskstats is missing in some containers.
        return psutil.disk_io_counters(nowrap=False)
    return None


class Changes:
    """Filter that removes unchanged values from consecutive samples."""

    def __init__(self) -> None:
        self._last: dict[str, Any] = {}

    def of(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        fresh = {name: value for name, value in sample.items() if self._last.get(name) != value}
        self._last.update(fresh)
        return fresh


class Sampler:
    """Takes the samples of one recording at a fixed rate."""

    def __init__(
        self,
        asked: Asked,
        gpus: Gpus | None = None,
        *,
        lines: Lines,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], str] = lambda seconds: "",
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._asked, self._gpus, self._lines = asked, gpus, lines
        self._clock, self._wait, self._tell = clock, wait, tell
        self._host = HostFigures() if asked.host else None
        self._changes = {device: Changes() for device in ("", *asked.gpus)}
        #: Interval between samples that contain slow measurements, as a number of samples.
        self._every = max(1, round(asked.hz / SLOW_HZ))
        self.samples = self.missed = 0
        self._began = self._told = 0.0
        #: CPU time of the process when the recording began. It is subtracted: imports take longer than a sample.
        self._began_cpu = 0.0

    def run(self) -> str:
        """Sample until `wait` returns a reason, the time is over, or the file is full. Return the reason."""
        self._began, self._began_cpu = self._clock(), time.process_time()
        self._lines.write({**self._asked.head, "wall": round(time.time(), 4), "t": round(self._began, 4)})
        reason, number = "", 0
        while not reason:
            self._sample(number)
            now = self._clock()
            if now - self._told >= _TOLD_SECONDS:
                self._told = now
                self._tell(json.dumps(self.progress()))
            following = max(number + 1, int((now - self._began) * self._asked.hz) + 1)
            self.missed += following - number - 1
            number = following
            reason = self._over() or self._wait(max(0.0, self._began + number / self._asked.hz - now))
        self._lines.write({"end": reason, **self.progress()})
        self._tell(json.dumps(self.progress()))
        return reason

    def progress(self) -> dict[str, float | int]:
        """Return the progress of the recording and the CPU time that it used."""
        return {
            "samples": self.samples,
            "missed": self.missed,
            "bytes": self._lines.bytes,
            "seconds": round(self._clock() - self._began, 3),
            "cpu_seconds": round(time.process_time() - self._began_cpu, 3),
        }

    def _over(self) -> str:
        if self._lines.full:
            return "full"
        return "time" if self._clock() - self._began >= self._asked.seconds else ""

    def _sample(self, number: int) -> None:
        every = number % self._every == 0
        line: dict[str, Any] = {"t": round(self._clock() - self._began, 4)}
        if self._host:
            figures = self._host.fast() | (self._host.slow() if every else {})
            line |= self._changes[""].of(figures)
        if self._gpus and every:
            line |= self._of_gpus(self._gpus)
        if self._lines.write(line):
            self.samples += 1
        else:
            self.missed += 1
            self._changes = {device: Changes() for device in self._changes}  # The next sample contains all values.

    def _of_gpus(self, gpus: Gpus) -> dict[str, Any]:
        changed = {}
        for uuid in self._asked.gpus:
            sample = gpus.sample(uuid)
            figures = {short: getattr(sample, name) for short, name in GPU_FIELDS.items()}
            known = {short: value for short, value in figures.items() if value is not None}
            if fresh := self._changes[uuid].of(known):
                changed[uuid] = fresh
        return {"gpus": changed} if changed else {}


def _waits(descriptor: int) -> Callable[[float], str]:
    """Return a function that waits, and returns the reason to stop if the worker requests it or has exited."""

    def wait(seconds: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        if not ready:
            return ""
        return "stopped" if os.read(descriptor, 4096) else "worker lost"

    return wait


def _tells(descriptor: int) -> Callable[[str], None]:
    """Return a function that sends a line to the worker, or drops the line if the worker does not read."""
    os.set_blocking(descriptor, False)

    def tell(line: str) -> None:
        with contextlib.suppress(OSError):
            os.write(descriptor, line.encode() + b"\n")

    return tell


def _asked(descriptor: int) -> Asked:
    """Return the request on the descriptor's first line, without reading beyond it."""
    text = b""
    while not text.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            raise SystemExit(2)  # The worker has exited.
        text += byte
    words = json.loads(text)
    return Asked(**{**words, "gpus": tuple(words["gpus"])})


def main(gpus: Callable[[], Gpus | None] = lambda: None) -> int:
    """Record a profile as requested on stdin."""
    asked = _asked(sys.stdin.fileno())
    descriptor = os.open(asked.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    # The lock prevents other processes from treating the file as abandoned while this process runs.
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    sampler = Sampler(
        asked,
        gpus() if asked.gpus else None,
        lines=Lines(descriptor, asked.most),
        wait=_waits(sys.stdin.fileno()),
        tell=_tells(sys.stdout.fileno()),
    )
    sampler.run()
    with contextlib.suppress(OSError):
        os.fsync(descriptor)
    return 0


if __name__ == "__main__":
    sys.exit(main())
