"""Periodic task that sends the spans of requests and of ended jobs.

The leader sends the spans of jobs. Other coordinators remember ended jobs for some seconds, so that the next leader can
send their spans. Spans sent twice have the same IDs. Spans that the receiver rejects are lost, and delay no work.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from coordinator.telemetry import job_spans, spans
from coordinator.telemetry.job_spans import EndedJob, TraceSpan
from jobs.store import Store, unreadable_entries

log = logging.getLogger(__name__)

#: Seconds for which a coordinator that is not the leader remembers ended jobs. Electing a leader can take over 3 s.
LEADERLESS_SECONDS = 10.0
#: Maximum number of queued jobs, and separately of queued request spans.
#: Maximum number of jobs read at once.
#: Maximum number of spans sent at once.
MAX_WAITING, JOBS_AT_ONCE, SPANS_AT_ONCE = 20_000, 500, 2000
_T = TypeVar("_T")


class Receiver(Protocol):
    """Receives spans, for example an OTLP collector."""

    def send(self, spans: Sequence[TraceSpan]) -> bool:
        """Send spans. Return False if the receiver rejected them, so that they are lost."""

    def close(self) -> None:
        """Stop sending, without retries."""


class SpanSender:
    """Queues spans until they are sent."""

    def __init__(self, store: Store, receiver: Receiver, leads: Callable[[], bool]) -> None:
        self._store = store
        self._receiver = receiver
        self._leads = leads
        #: Ended jobs, with the time at which each was added (time.monotonic).
        self.waiting_jobs: deque[tuple[float, str]] = deque(maxlen=MAX_WAITING)
        self.waiting_requests: deque[TraceSpan] = deque(maxlen=MAX_WAITING)
        self._refused = False

    def note(self, jobs: Iterable[str]) -> None:
        """Queue jobs that have just ended. Their spans are sent if this coordinator is the leader. Can be called from
        any thread.
        """
        now = time.monotonic()
        self.waiting_jobs.extend((now, job) for job in jobs)

    def add(self, span: TraceSpan) -> None:
        """Queue the span of a request. Can be called from any thread."""
        self.waiting_requests.append(span)

    def run_once(self) -> None:
        """Send the queued spans."""
        while self.waiting_requests:
            self._deliver(_pop(self.waiting_requests, SPANS_AT_ONCE))
        if not self._leads():
            self._forget_old()
            return
        for _ in range(len(self.waiting_jobs) // JOBS_AT_ONCE + 1):
            found = list(self._create_job_spans([job for _, job in _pop(self.waiting_jobs, JOBS_AT_ONCE)]))
            for first in range(0, len(found), SPANS_AT_ONCE):
                self._deliver(found[first : first + SPANS_AT_ONCE])

    def _forget_old(self) -> None:
        since = time.monotonic() - LEADERLESS_SECONDS
        while self.waiting_jobs and self.waiting_jobs[0][0] < since:
            self.waiting_jobs.popleft()

    def _deliver(self, some: Sequence[TraceSpan]) -> None:
        refused = not self._receiver.send(some)
        if refused and not self._refused:
            log.warning("OTEL_EXPORTER_OTLP_ENDPOINT rejected spans, which are lost; further spans will be sent")
        self._refused = refused

    def _create_job_spans(self, ids: Sequence[str]) -> Iterator[TraceSpan]:
        rows = self._store.job_reads.fields(ids, job_spans.FIELDS)
        jobs = unreadable_entries.readable("job", rows, job_spans.parse_ended)
        large = [job for job in jobs if job and not job.is_small]
        lanes = spans.read_by_job(self._store, {job.job_id for job in large}, self._seconds(large)) if large else {}
        finishing = dict(
            zip((job.job_id for job in large), self._store.events.finishing([job.job_id for job in large]), strict=True)
        )
        for job in jobs:
            if job:
                yield from job_spans.spans(job, lanes.get(job.job_id, ()), finishing.get(job.job_id))

    def _seconds(self, jobs: Sequence[EndedJob]) -> int:
        """Return how many seconds ago the oldest of these jobs started, with a margin."""
        since = time.time() - min(job.began for job in jobs) / 1000
        return min(spans.MAX_SECONDS, max(60, int(since) + 60))

    def close(self) -> None:
        """Send the queued spans, and then stop."""
        try:
            self.run_once()
        finally:
            self._receiver.close()


def _pop(queue: deque[_T], most: int) -> list[_T]:
    return [queue.popleft() for _ in range(min(most, len(queue)))]
