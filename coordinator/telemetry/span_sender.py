"""Periodic work on traces: send spans of answered requests and of ended jobs.

The leader sends those of jobs; others remember for some seconds what ended, so that whoever leads next sends it, some
of it a second time under the same ids. What the receiver does not take is lost: nothing about work depends on it, and
nothing waits for it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from coordinator.telemetry import job_spans, spans
from coordinator.telemetry.job_spans import EndedJob, TraceSpan
from jobs.store import Store, skipped

log = logging.getLogger(__name__)

#: A coordinator that does not lead remembers ends for this long: nobody may have led for LEAD's 3 s and some rounds.
LEADERLESS_SECONDS = 10.0
#: Jobs and spans of requests that wait to be sent; beyond them the oldest are lost. Jobs read, spans sent, at once.
MAX_WAITING, JOBS_AT_ONCE, SPANS_AT_ONCE = 20_000, 500, 2000
_T = TypeVar("_T")


class Receiver(Protocol):
    """Takes spans elsewhere."""

    def send(self, spans: Sequence[TraceSpan]) -> bool:
        """Return False when they were not taken, and are lost."""

    def close(self) -> None:
        """Take no more, and try nothing again."""


class SpanSender:
    """Keeps spans until they are sent."""

    def __init__(self, store: Store, receiver: Receiver, leads: Callable[[], bool]) -> None:
        self._store = store
        self._receiver = receiver
        self._leads = leads
        #: With the time of each by time.monotonic.
        self.waiting_jobs: deque[tuple[float, str]] = deque(maxlen=MAX_WAITING)
        self.waiting_requests: deque[TraceSpan] = deque(maxlen=MAX_WAITING)
        self._refused = False

    def note(self, jobs: Iterable[str]) -> None:
        """Send spans of jobs that have just ended soon, if this coordinator leads then. Any thread."""
        now = time.monotonic()
        self.waiting_jobs.extend((now, job) for job in jobs)

    def add(self, span: TraceSpan) -> None:
        """Send the span of a request soon. Any thread."""
        self.waiting_requests.append(span)

    def run_once(self) -> None:
        """Send what waits at this moment."""
        while self.waiting_requests:
            self._deliver(_take(self.waiting_requests, SPANS_AT_ONCE))
        if not self._leads():
            self._forget_old()
            return
        for _ in range(len(self.waiting_jobs) // JOBS_AT_ONCE + 1):
            found = list(self._of_jobs([job for _, job in _take(self.waiting_jobs, JOBS_AT_ONCE)]))
            for first in range(0, len(found), SPANS_AT_ONCE):
                self._deliver(found[first : first + SPANS_AT_ONCE])

    def _forget_old(self) -> None:
        since = time.monotonic() - LEADERLESS_SECONDS
        while self.waiting_jobs and self.waiting_jobs[0][0] < since:
            self.waiting_jobs.popleft()

    def _deliver(self, some: Sequence[TraceSpan]) -> None:
        refused = not self._receiver.send(some)
        if refused and not self._refused:
            log.warning("OTEL_EXPORTER_OTLP_ENDPOINT did not take spans, which are lost; the next ones are tried")
        self._refused = refused

    def _of_jobs(self, ids: Sequence[str]) -> Iterator[TraceSpan]:
        rows = self._store.job_reads.fields(ids, job_spans.FIELDS)
        jobs = skipped.readable("job", rows, job_spans.parse_ended)
        large = [job for job in jobs if job and not job.is_small]
        lanes = spans.of_jobs(self._store, {job.job_id for job in large}, self._seconds(large)) if large else {}
        finishing = dict(
            zip((job.job_id for job in large), self._store.events.finishing([job.job_id for job in large]), strict=True)
        )
        for job in jobs:
            if job:
                yield from job_spans.spans(job, lanes.get(job.job_id, ()), finishing.get(job.job_id))

    def _seconds(self, jobs: Sequence[EndedJob]) -> int:
        """Return how far back the work of these jobs reaches, in whole seconds."""
        since = time.time() - min(job.began for job in jobs) / 1000
        return min(spans.MAX_SECONDS, max(60, int(since) + 60))

    def close(self) -> None:
        """Send the spans that are waiting, then stop."""
        try:
            self.run_once()
        finally:
            self._receiver.close()


def _take(queue: deque[_T], most: int) -> list[_T]:
    return [queue.popleft() for _ in range(min(most, len(queue)))]
