"""Live output of running programs for users who follow a job. Sending output never delays a program."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from jobs.store.server.connection import RedisError
from runner.files.inputs import Files
from runner.programs.recorder import Recorder

log = logging.getLogger(__name__)

#: Interval in seconds between calls for a unit.
#: `MOST_BYTES` is the maximum number of bytes per call. Coordinators accept 64 KiB/s per job.
EVERY_SECONDS, MOST_BYTES = 0.25, 15 << 10
#: Maximum number of output chunks per call.
MOST_CHUNKS = 1000
#: Number of unsent bytes above which older output is skipped.
BEHIND_BYTES = 1 << 20


@dataclass
class Line:
    """Live output of one running unit, and the progress of sending it."""

    job: str
    unit: int
    attempt: int
    recorder: Recorder
    files: Files
    sent: int = 0
    #: True if no client follows this unit's output. The next heartbeat reply that names the job resets it.
    muted: bool = False


class Live:
    """Sends live output in a thread that starts with the first follower. Thread-safe."""

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
        """Replace the set of jobs whose output users follow."""
        with self._lock:
            before, self._followed = self._followed, frozenset(jobs)
            for line in self._lines.values():
                if line.job in self._followed - before:
                    line.sent = 0  # The cluster has deleted the output for earlier followers.
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
        """Send the new output of a unit in one call. Output beyond the maximum size of a call waits for the
        next call.
        """
        if line.recorder.total_bytes - line.sent > BEHIND_BYTES and line.sent:
            line.sent = line.recorder.total_bytes - MOST_BYTES
        start, chunks = line.recorder.since(line.sent, MOST_BYTES)
        chunks = chunks[:MOST_CHUNKS]
        if not chunks:
            return
        try:
            line.muted = not line.files.output(line.unit, line.attempt, start, chunks)
            line.sent = 0 if line.muted else start + sum(len(data) for _, data in chunks)
        except RedisError as error:
            log.info("cannot send live output: %s", error)
            line.muted = True
