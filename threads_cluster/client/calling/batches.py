"""Collection of calls into batches. Each batch has calls of one function, and becomes one job."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from threads_cluster.client.calling.futures import ClusterFuture
from threads_cluster.client.calling.pickling import Pickled

#: Seconds without a further call after which the collected calls become jobs, and maximum seconds of collection.
QUIET_SECONDS, LONGEST_SECONDS = 0.005, 0.1
#: Maximum number of calls per job.
MOST_CALLS = 10_000


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Other calls that must end before a call."""

    #: Futures of the calls.
    futures: Sequence[Future[Any]] = ()
    #: Jobs and numbers of the units whose results the runner reads from the cluster.
    units: Sequence[tuple[str, int]] = ()
    #: Function that makes the call again if the cluster cannot provide the results.
    again: Callable[[], object] | None = None

    @property
    def jobs(self) -> list[str]:
        """Jobs that must be done before the job of the call."""
        return sorted({job for job, _ in self.units})


#: Needs of a call without dependencies.
NOTHING = Needs()


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a function."""

    #: Name of the function, for people.
    name: str
    function: Pickled
    #: The arguments and the keyword arguments.
    arguments: Pickled
    future: ClusterFuture
    needs: Needs = NOTHING

    @property
    def files(self) -> list[str]:
        """Names of the files that a runner needs for the call."""
        return list({**self.function.sizes, **self.arguments.sizes})

    @property
    def item(self) -> Any:
        """Item of the job for this call."""
        text, units = self.arguments.text, {"units": self.needs.units} if self.needs.units else {}
        return {"call": text, "files": self.files, **units} if self.files or units else text


@dataclass(kw_only=True)
class Batch:
    """Calls of one function that become one job."""

    calls: list[Call] = field(default_factory=list)

    @property
    def function(self) -> Pickled:
        return self.calls[0].function

    @property
    def name(self) -> str:
        return self.calls[0].name

    @property
    def after(self) -> list[str]:
        """Jobs that must be done before the calls."""
        return self.calls[0].needs.jobs


#: Entries of the queue that are not calls: the queue was closed, and a burst has ended.
_CLOSED, _BURST_ENDED = "closed", "burst ended"


class CallQueue:
    """Queue of calls that are not yet part of a job. Any thread can add calls; one thread takes batches."""

    def __init__(self) -> None:
        self._entries: queue.SimpleQueue[Call | str] = queue.SimpleQueue()
        self._changing = threading.Lock()
        #: Number of threads that are adding several calls.
        self._bursts = 0

    def put(self, call: Call) -> None:
        self._entries.put(call)

    def close(self) -> None:
        """Let `take` return False with the last calls."""
        self._entries.put(_CLOSED)

    @contextmanager
    def burst(self) -> Iterator[None]:
        """Collect the calls that are added in this context, even if they do not arrive quickly."""
        self._count_bursts(1)
        try:
            yield
        finally:
            self._count_bursts(-1)
            self._entries.put(_BURST_ENDED)

    def _count_bursts(self, change: int) -> None:
        with self._changing:
            self._bursts += change

    def take(self, is_idle: Callable[[], bool]) -> tuple[list[Batch], bool]:
        """Return calls that arrived at about the same time, by function, and False if the queue was closed.

        A call does not wait for further calls if `is_idle` returns True.
        """
        while (first := self._entries.get()) == _BURST_ENDED:
            pass
        if not isinstance(first, Call):
            return [], False
        calls = [first]
        is_open = self._collect(calls, 0.0 if is_idle() else QUIET_SECONDS)
        return _by_function(calls), is_open

    def _collect(self, calls: list[Call], quiet: float) -> bool:
        """Add further calls until none arrives for `quiet` seconds. Return False if the queue was closed."""
        until = time.monotonic() + LONGEST_SECONDS
        while len(calls) < MOST_CALLS and (left := until - time.monotonic()) > 0:
            try:
                found = self._entries.get(timeout=left if self._bursts else min(quiet, left))
            except queue.Empty:
                return True
            if isinstance(found, Call):
                calls.append(found)
            elif found == _CLOSED or not self._bursts:
                return found != _CLOSED
        return True


def _by_function(calls: list[Call]) -> list[Batch]:
    """Group the calls that were not cancelled by their functions, and by the jobs that must be done before."""
    batches: dict[tuple[str, ...], Batch] = {}
    for call in calls:
        if not call.future.cancelled():
            batches.setdefault((call.function.text, *call.needs.jobs), Batch()).calls.append(call)
    return list(batches.values())
