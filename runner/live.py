"""Live output: while somebody follows a job, what its running units write is passed on; it is never waited for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from jobs.store.server.connection import RedisError
from runner.files.inputs import Files
from runner.programs.recorder import Recorder

log = logging.getLogger(__name__)

#: Seconds between two calls for one unit, and most bytes of one: a coordinator takes 64 KiB/s of a job.
EVERY_SECONDS, MOST_BYTES = 0.25, 15 << 10
#: Most pieces of stdout and stderr in one call.
MOST_CHUNKS = 1000
#: A follower that is this many bytes behind goes on with what is recent.
BEHIND_BYTES = 1 << 20


@dataclass
class Line:
    """One running unit's output, on its way to who follows it."""

    job: str
    unit: int
    attempt: int
    recorder: Recorder
    files: Files
    sent: int = 0
    #: Nobody follows this unit; a later beat may name its job again.
    muted: bool = False


class Live:
    """Passes output on, on a thread of its own, which begins with the first follower. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._lines: dict[int, Line] = {}
        self._followed: frozenset[str] = frozenset()
        self._thread: threading.Thread | None = None

    def add(self, line: Line) -> None:
        with self._lock:
            self._lines[id(line)] = line

    def remove(self, line: Line) -> None:
        with self._lock:
            self._lines.pop(id(line), None)

    def follow(self, jobs: Iterable[str]) -> None:
        """Take in which jobs are followed now."""
        with self._lock:
            self._followed = frozenset(jobs)
            for line in self._lines.values():
                line.muted = line.muted and line.job not in self._followed
            if self._followed and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="live", daemon=True)
                self._thread.start()
            self._lock.notify_all()

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._followed:
                    self._lock.wait()
                lines = [one for one in self._lines.values() if one.job in self._followed and not one.muted]
                self._lock.wait(EVERY_SECONDS)
            for line in lines:
                self.send(line)

    @staticmethod
    def send(line: Line) -> None:
        """Pass on what a unit wrote since the last time, and no more than a call takes."""
        if line.recorder.total_bytes - line.sent > BEHIND_BYTES and line.sent:
            line.sent = line.recorder.total_bytes - MOST_BYTES
        start, chunks = line.recorder.since(line.sent, MOST_BYTES)
        chunks = chunks[:MOST_CHUNKS]
        if not chunks:
            return
        try:
            line.muted = not line.files.output(line.unit, line.attempt, start, chunks)
            line.sent = start + sum(len(data) for _, data in chunks)
        except RedisError as error:
            log.info("live output is not passed on: %s", error)
            line.muted = True
