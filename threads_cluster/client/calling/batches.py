"""Collection of calls into batches. Each batch has calls of one function, and becomes one job."""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass, field
from typing import Any

from threads_cluster.client.calling.futures import ClusterFuture
from threads_cluster.client.calling.pickling import Pickled

#: Seconds without a further call after which the collected calls become jobs, and maximum seconds of collection.
QUIET_SECONDS, LONGEST_SECONDS = 0.005, 0.1
#: Maximum number of calls per job.
MOST_CALLS = 10_000


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a function."""

    #: Name of the function, for people.
    name: str
    function: Pickled
    #: The arguments and the keyword arguments.
    arguments: Pickled
    future: ClusterFuture

    @property
    def files(self) -> list[str]:
        """Names of the files that a runner needs for the call."""
        return list({**self.function.sizes, **self.arguments.sizes})

    @property
    def item(self) -> Any:
        """Item of the job for this call."""
        text = self.arguments.text
        return {"call": text, "files": self.files} if self.files else text


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


class CallQueue:
    """Queue of calls that are not yet part of a job. Any thread can add calls; one thread takes batches."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()

    def put(self, call: Call) -> None:
        self._calls.put(call)

    def close(self) -> None:
        """Let `take` return False with the last calls."""
        self._calls.put(None)

    def take(self) -> tuple[list[Batch], bool]:
        """Return calls that arrived at about the same time, by function, and False if the queue was closed."""
        first = self._calls.get()
        if first is None:
            return [], False
        calls = [first]
        is_closed = self._collect(calls)
        return _by_function(calls), not is_closed

    def _collect(self, calls: list[Call]) -> bool:
        """Add further calls. Return True if the queue was closed."""
        until = time.monotonic() + LONGEST_SECONDS
        while len(calls) < MOST_CALLS and (left := until - time.monotonic()) > 0:
            try:
                found = self._calls.get(timeout=min(QUIET_SECONDS, left))
            except queue.Empty:
                return False
            if found is None:
                return True
            calls.append(found)
        return False


def _by_function(calls: list[Call]) -> list[Batch]:
    """Group the calls that were not cancelled by their functions."""
    batches: dict[str, Batch] = {}
    for call in calls:
        if not call.future.cancelled():
            batches.setdefault(call.function.text, Batch()).calls.append(call)
    return list(batches.values())
