"""Read spans of work by lane, from stored spans and from current leases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import Any, TypeAlias

from jobs.store import Store, unreadable_entries
from jobs.store.fleet_reads import LastHeard
from jobs.store.telemetry import StoredSpans
from threads_protocol.answers import telemetry as answers
from threads_protocol.numbers import exact

MAX_SECONDS, MAX_SPANS = 3600, 20_000
#: Milliseconds without a heartbeat after which the work of a worker is unknown. Heartbeats are sent every second.
SILENT_MS = 3000


@dataclass(frozen=True, kw_only=True)
class Span:
    """Continuous work of a lane. Times are in milliseconds of the Redis clock."""

    lane: str
    device: str | None
    job: str | None
    kind: str | None
    start: int
    end: int
    busy: int = 0
    units: int = 0
    leases: int = 1
    jobs: int = 1
    open: bool = False
    #: True if the worker was lost during this work.
    lost: bool = False
    #: True if jobs, kinds and units are hidden from the reader, because they can belong to other tenants.
    untold: bool = False


def parse_span(lane: str, text: str) -> Span:
    job, kind, device, *numbers, _small = text.split(":")
    start, end, busy, units, count, jobs = map(int, numbers)
    return Span(
        lane=lane,
        device=device,
        job=job or None,
        kind=kind,
        start=start,
        end=end,
        busy=busy,
        units=units,
        leases=count,
        jobs=jobs,
    )


#: Function that returns which of some jobs are hidden.
Hidden: TypeAlias = Callable[[Sequence[str]], Set[str]]


def read(store: Store, seconds: int, most: int, hidden: Hidden | None = None) -> answers.Spans:
    """Return all spans in the last `seconds` as an API response. If there are more than `most`, spans are joined.

    For `hidden` jobs, only the times are returned. A span of several small jobs is also hidden, because it does not
    name its jobs.
    """
    stored = store.telemetry.spans(seconds)
    since = stored.now - seconds * 1000
    leased = list(_open(store, stored.running, stored.now))
    heard = store.fleet_reads.last_heard(_worker(span.lane) for span in leased)
    computing = (_end_at_loss(span, heard.get(_worker(span.lane))) for span in leased)
    spans = [span for span in chain(_read_ended(stored), computing) if span.end >= since]
    spans = _redact(spans, hidden) if hidden else spans
    complete = stored.now - MAX_SECONDS * 1000
    joined, resolution = join_spans(spans, seconds, most)
    lanes = {span.lane: span.device for span in sorted(spans, key=lambda span: span.lane)}
    places = {lane: number for number, lane in enumerate(lanes)}
    return {
        "from": since / 1000,
        "to": stored.now / 1000,
        "complete_since": (max(complete, stored.oldest) if stored.full else complete) / 1000,
        "resolution_seconds": resolution / 1000,
        "lanes": [_lane(lane, device, heard.get(_worker(lane)), stored.now) for lane, device in lanes.items()],
        "spans": [_build_span(span, places[span.lane]) for span in joined],
    }


def read_by_job(store: Store, jobs: Set[str], seconds: int) -> dict[str, list[Span]]:
    """Return the spans of these jobs that ended within the last `seconds`. Small jobs have no spans."""
    found: dict[str, list[Span]] = {}
    for span in _read_ended(store.telemetry.spans(seconds)):
        if span.job and span.job in jobs:
            found.setdefault(span.job, []).append(span)
    return found


def _read_ended(stored: StoredSpans) -> Iterator[Span]:
    """Yield the stored spans. The latest span of each lane is last."""
    yield from unreadable_entries.readable(
        "span", stored.past, lambda _, row: parse_span(row[b"lane"].decode(), row[b"span"].decode())
    )
    yield from unreadable_entries.readable(
        "span", stored.latest, lambda lane, text: parse_span(lane.decode(), text.decode())
    )


def _redact(spans: Sequence[Span], hidden: Hidden) -> list[Span]:
    """Return the spans, with jobs and kinds removed from hidden ones."""
    veiled = {None, *hidden(sorted({span.job for span in spans if span.job}))}
    return [replace(span, job=None, kind=None, untold=True) if span.job in veiled else span for span in spans]


def _build_span(span: Span, lane: int) -> answers.Span:
    row: answers.Span = {
        "lane": lane,
        "job_id": span.job,
        "type": span.kind,
        "jobs": span.jobs,
        "start": span.start / 1000,
        "end": span.end / 1000,
        "busy_seconds": span.busy / 1000,
        "units": None if span.untold else exact(span.units),
        "leases": span.leases,
        "open": span.open,
    }
    if span.lost:
        row["lost"] = True
    if span.untold:
        row["untold"] = True
    return row


def _lane(lane: str, device: str | None, heard: LastHeard | None, now: int) -> answers.SpanLane:
    row: answers.SpanLane = {"lane": lane, "worker": _worker(lane), "device": device}
    if heard is None or heard.lost or not heard.seen_ms or now - heard.seen_ms <= SILENT_MS:
        return row
    return {**row, "silent_since": heard.seen_ms / 1000}


def _end_at_loss(span: Span, heard: LastHeard | None) -> Span:
    """Return the span up to the last heartbeat if its worker was lost, because the worker may have stopped then."""
    if heard is None or not heard.lost:
        return span
    return replace(span, end=max(span.start, heard.seen_ms), open=False, lost=True)


def _worker(lane: str) -> str:
    return lane.partition("/")[0]


def _open(store: Store, running: Sequence[str], now: int) -> Iterator[Span]:
    """Yield spans of current leases. Small jobs that a worker leased together form one span."""
    small: dict[tuple[str, str], Span] = {}
    leased = unreadable_entries.readable(
        "span", store.telemetry.held(running), lambda job, pair: _leases(job, *pair, now)
    )
    for is_small, span in chain.from_iterable(leased):
        if is_small:
            known = small.get((span.lane, span.kind or ""))
            small[(span.lane, span.kind or "")] = _join(known, span) if known else span
        else:
            yield span
    yield from small.values()


def _leases(job: str, facts: Sequence[Any], held: Sequence[bytes], now: int) -> list[tuple[bool, Span]]:
    """Return the spans of a job's current leases, each with a flag that is True if the job is small."""
    kind, small, queue = facts
    spans = []
    for text in held if kind else ():
        # The text can contain billed milliseconds before the lane's name, which contains no colon.
        *_, granted, place = text.decode().split(":", 6)
        lane = place.rpartition(":")[2]
        device = queue.decode().partition(".")[0]
        span = Span(
            lane=lane,
            device=None if device == "any" else device,
            job=job,
            kind=kind.decode(),
            start=int(granted),
            end=now,
            open=True,
        )
        spans.append((small == b"1", span))
    return spans


def _join(left: Span, right: Span) -> Span:
    """Join two spans of one lane. The result includes the time between them."""
    return replace(
        left,
        device=left.device or right.device,
        job=left.job if left.job == right.job else None,
        kind=left.kind if left.kind == right.kind else None,
        start=min(left.start, right.start),
        end=max(left.end, right.end),
        busy=left.busy + right.busy,
        units=left.units + right.units,
        leases=left.leases + right.leases,
        jobs=left.jobs + right.jobs if left.job is None or left.job != right.job else left.jobs,
        open=left.open or right.open,
        lost=left.lost and right.lost,
        untold=left.untold or right.untold,
    )


def join_spans(spans: Sequence[Span], seconds: int, most: int) -> tuple[list[Span], int]:
    """Join spans until at most `most` are left, or one per lane. Return them in order, with the resolution in ms."""
    ordered = sorted(spans, key=lambda span: (span.lane, span.start))
    resolution = 0
    while len(ordered) > most and resolution < seconds * 1000:
        resolution = resolution * 2 or max(100, seconds)
        ordered = list(_join_within(ordered, resolution))
    return ordered, resolution


def _join_within(spans: Iterable[Span], resolution: int) -> Iterator[Span]:
    """Join the spans of a lane that start within the same step of time."""
    for _, run in groupby(spans, key=lambda span: (span.lane, span.start // resolution)):
        first, *rest = run
        for span in rest:
            first = _join(first, span)
        yield first
