"""Faults of this host, beside those of programs: after some, the runner takes no work until it is well again."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from runner.files.cache import free_bytes

#: Fewest bytes free where programs work.
LEAST_FREE = 200 << 20
#: Starts that fail in a row, and the jobs that they are of, before the host is taken to be the reason.
MOST_FAILURES, MOST_JOBS = 5, 3
#: Times in a row that this host may fail a unit; then it counts as tried, since its program may be the reason.
MOST_FAULTS = 3
#: Jobs of which such units are remembered.
_MOST_REMEMBERED = 1000
#: Errors of a disk that has no space left.
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
#: Errors of the host's own, whatever the job.
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
    """This host could not do its part; the unit was not tried."""


def is_of_host(error: OSError) -> bool:
    """Tell whether an error would have come whatever the job is."""
    return error.errno in HOST_ERRORS


class Cordon:
    """Why this runner takes no work by itself. Thread-safe."""

    def __init__(self, folder: Path, least_free: int = LEAST_FREE) -> None:
        self._folder, self._least_free = folder, least_free
        self._lock = threading.Lock()
        #: Starts that failed since one worked, by job.
        self._failed: Counter[str] = Counter()
        #: The unit of each job that this host failed last, and how often in a row.
        self._units: dict[str, tuple[int, int]] = {}
        self._faulty = ""

    def why(self) -> str:
        """Return the reason in words for people; empty: it takes work."""
        if self._faulty:
            return self._faulty
        try:
            free = free_bytes(self._folder)
        except OSError as error:
            return f"where programs work cannot be looked at: {error}"
        if free < self._least_free:
            return (
                f"its disk is full: {free >> 20} MiB are free where programs work, and it needs"
                f" {self._least_free >> 20} MiB; remove files in RUNNER_DIR, or give it a larger disk"
            )
        return ""

    def is_disk_full(self) -> bool:
        """Return True if less space is free for programs than this runner needs to start one."""
        with contextlib.suppress(OSError):  # the folder was removed
            return free_bytes(self._folder) < self._least_free
        return False

    def record_start(self) -> None:
        """Take in that a program started."""
        self._failed.clear()

    def did_not_start(self, job: str, why: str, can_start: Callable[[], bool]) -> bool:
        """Take in that a program could not be started; True when this host is taken to be the reason from now on.

        `can_start` tries a program that is there for sure: where it starts, the others' commands are wrong.
        """
        with self._lock:
            self._failed[job] += 1
            if self._faulty or self._failed.total() < MOST_FAILURES or len(self._failed) < MOST_JOBS:
                return bool(self._faulty)
            if can_start():
                self._failed.clear()
                return False
            self._faulty = (
                f"{self._failed.total()} programs of {len(self._failed)} jobs in a row could not be started, the"
                f" last: {why}; mend the host and start this runner again"
            )
            return True

    def record_failure(self, job: str, unit: int) -> int:
        """Take in that this host failed a unit; return how often in a row it failed that one of its job."""
        with self._lock:
            last, times = self._units.pop(job, (unit, 0))
            times = times + 1 if last == unit else 1
            self._units[job] = (unit, times)
            while len(self._units) > _MOST_REMEMBERED:
                del self._units[next(iter(self._units))]
            return times
