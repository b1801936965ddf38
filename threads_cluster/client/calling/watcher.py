"""Notification of changed jobs. One event stream serves all executors of a client."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING
from weakref import WeakSet

import httpx

from threads_cluster.client import bodies
from threads_cluster.client.connection import LONGEST_PAUSE, Patience
from threads_cluster.client.sse import Reader
from threads_cluster.errors import ClientError, Unreachable
from threads_protocol.states import TERMINAL

if TYPE_CHECKING:
    from threads_cluster.client.api import Cluster

#: Seconds after which listeners check their jobs without an event, in case an event was lost.
_SWEEP_SECONDS = 60.0
#: Number of remembered jobs that have ended before a listener knew their ID.
_EARLY = 1000
_PATH = "/api/events?topics=jobs"

#: Function that is called with the state of the changed job, or with None if it is unknown.
Listener = Callable[[str | None], object]
#: State of a job of which no unit has started.
_QUEUED = "queued"


class Watcher:
    """Calls the listeners of jobs when the jobs change. Its thread ends soon after its last user has left."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._users = 0
        self._listeners: dict[str, Listener] = {}
        self._early: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._swept = 0.0
        _watchers.add(self)

    def reset(self) -> None:
        """Forget the users and the thread, which do not exist in a forked process."""
        self.__init__(self._cluster)  # type: ignore[misc]

    def enter(self) -> None:
        """Open the event stream, unless it is open."""
        with self._lock:
            self._users += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="cluster-watcher", daemon=True)
                self._thread.start()

    def leave(self) -> None:
        """Close the event stream soon, unless it has other users."""
        with self._lock:
            self._users -= 1

    def add(self, job_id: str, listener: Listener) -> None:
        """Call a listener when a job changes. It is called at once if the job has ended already."""
        with self._lock:
            self._listeners[job_id] = listener
            ended = self._early.get(job_id)
        if ended:
            listener(ended)

    def remove(self, job_id: str) -> None:
        """Stop to report changes of a job."""
        with self._lock:
            self._listeners.pop(job_id, None)

    def _run(self) -> None:
        enduring = Patience(self._cluster.wait_patience)
        while self._is_needed():
            try:
                with self._cluster.connection.stream(_PATH, {"Accept": "text/event-stream"}) as chunks:
                    self._read(chunks, enduring)
            except (httpx.HTTPError, ClientError, RuntimeError):  # RuntimeError: the client was closed
                pass
            if self._is_needed():
                self._sweep()
                self._pause(enduring)

    def _pause(self, enduring: Patience) -> None:
        """Sleep before the next connection. Listeners notice by their own requests if the cluster does not answer."""
        try:
            enduring.failed(Unreachable(self._cluster.url, "the stream of events ended"))
        except Unreachable:
            time.sleep(LONGEST_PAUSE)

    def _is_needed(self) -> bool:
        with self._lock:
            if not self._users:
                self._thread = None
                self._early.clear()
            return self._thread is threading.current_thread()

    def _read(self, chunks: Iterable[bytes], enduring: Patience) -> None:
        for message in Reader().messages(self._checked(chunks, enduring)):
            event = bodies.parse(message)
            if isinstance(event, dict) and isinstance(job_id := event.get("job"), str):
                state = str(event.get("state"))
                if state in TERMINAL and event.get("type") != state:  # Such as the event of a deleted job
                    self._notify(job_id, None)
                elif state != _QUEUED:
                    self._notify(job_id, state)

    def _checked(self, chunks: Iterable[bytes], enduring: Patience) -> Iterator[bytes]:
        """Yield the chunks of a stream. No event after the first chunk is lost."""
        is_first = True
        for chunk in chunks:
            enduring.succeeded()
            if is_first or time.monotonic() - self._swept > _SWEEP_SECONDS:
                self._sweep()
            is_first = False
            yield chunk
            if not self._is_needed():
                return

    def _notify(self, job_id: str, state: str | None) -> None:
        with self._lock:
            listener = self._listeners.get(job_id)
            if listener is None and state in TERMINAL:
                self._early[job_id] = state
                if len(self._early) > _EARLY:
                    self._early.popitem(last=False)
        if listener is not None:
            listener(state)

    def _sweep(self) -> None:
        """Let all listeners check their jobs."""
        with self._lock:
            listeners = list(self._listeners.values())
        self._swept = time.monotonic()
        for listener in listeners:
            listener(None)


_watchers: WeakSet[Watcher] = WeakSet()


def _reset_all() -> None:
    for watcher in list(_watchers):
        watcher.reset()


if hasattr(os, "register_at_fork"):  # Windows cannot fork
    os.register_at_fork(after_in_child=_reset_all)
