"""Detection of host faults, as opposed to program errors. A faulty host stops its runner from taking work."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from runner.files.cache import free_bytes

#: Minimum free disk space in bytes that a runner needs to take programs.
LEAST_FREE = 200 << 20
#: Minimum number of consecutive failed starts that make a host faulty.
#: The failed starts must belong to at least `MOST_JOBS` different jobs.
MOST_FAILURES, MOST_JOBS = 5, 3
#: Number of consecutive host faults after which a unit counts as failed, because its program can be the cause.
MOST_FAULTS = 3
#: Maximum number of jobs for which host faults are remembered.
_MOST_REMEMBERED = 1000
#: Error numbers of a full disk.
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
#: Error numbers that indicate a fault of the host, not of the job.
HOST_ERRORS = frozenset(
    {
        *DISK_FULL,
        errno.EIO,
        errno.EROFS,
        errno.ENOMEM,
        errno.EAGAIN,
        errno.EMFILE,
        errno.ENFILE,
    }
)


class HostFault(Exception):
    """The host failed, so the attempt to run a unit does not count."""


def is_of_host(error: OSError) -> bool:
    """Return True if an error is caused by the host and not by the job."""
    return error.errno in HOST_ERRORS


class Cordon:
    """Decides whether this runner takes work, based on disk space and failed starts. Thread-safe."""

    def __init__(self, folder: Path, least_free: int = LEAST_FREE) -> None:
        self._folder, self._least_free = folder, least_free
        self._lock = threading.Lock()
        #: Number of failed starts per job since the last successful start.
        self._failed: Counter[str] = Counter()
        #: For each job, the last unit that failed because of this host, and its number of consecutive host faults.
        self._units: dict[str, tuple[int, int]] = {}
        self._faulty = ""

    def why(self) -> str:
        """Return the reason why the runner takes no work, or an empty string if it takes work."""
        if self._faulty:
            return self._faulty
        try:
            free = free_bytes(self._folder)
        except OSError as error:
            return f"cannot read the free disk space for programs: {error}"
        if free < self._least_free:
            return (
                f"the disk is full: {free >> 20} MiB are free for programs, but the runner needs"
                f" {self._least_free >> 20} MiB; delete files in RUNNER_DIR, or use a larger disk"
            )
        return ""

    def is_disk_full(self) -> bool:
        """Return True if the free disk space is below the minimum for starting a program."""
        with contextlib.suppress(OSError):  # The folder does not exist any more
            return free_bytes(self._folder) < self._least_free
        return False

    def record_start(self) -> None:
        """Record that a program started."""
        self._failed.clear()

    def record_failed_start(self, job: str, why: str, can_start: Callable[[], bool]) -> bool:
        """Record that a program could not be started. Return True if the host is probably the cause.

        `can_start` starts a program that exists on every host. If that works, the commands of the jobs are wrong.
        """
        with self._lock:
            self._failed[job] += 1
            if self._faulty or self._failed.total() < MOST_FAILURES or len(self._failed) < MOST_JOBS:
                return bool(self._faulty)
            if can_start():
                self._failed.clear()
                return False
            self._faulty = (
                f"{self._failed.total()} consecutive programs of {len(self._failed)} jobs could not be started,"
                f" the last one because of: {why}; repair the host and restart this runner"
            )
            return True

    def record_failure(self, job: str, unit: int) -> int:
        """Record that a unit failed because of this host. Return its number of consecutive host faults."""
        with self._lock:
            last, times = self._units.pop(job, (unit, 0))
            times = times + 1 if last == unit else 1
            self._units[job] = (unit, times)
            while len(self._units) > _MOST_REMEMBERED:
                del self._units[next(iter(self._units))]
            return times
