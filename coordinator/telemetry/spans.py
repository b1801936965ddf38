"""Spans of work by lane, from the spans that the functions keep and the leases of this moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import Any, TypeAlias

from jobs.store import Store, skipped
from jobs.store.fleet_reads import LastHeard
from jobs.store.telemetry import StoredSpans
from threads_protocol.answers import telemetry as answers
from threads_protocol.numbers import exact

MAX_SECONDS, MAX_SPANS = 3600, 20_000
#: A worker beats each second; nobody knows what one computes that was silent for longer than this.
SILENT_MS = 3000


@dataclass(frozen=True, kw_only=True)
class Span:
    """Times in ms of Redis' clock."""

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
    #: Its worker was lost while it computed this.
    lost: bool = False
    #: Whoever asks is told neither the jobs nor their kinds, nor how many units: some may be of other tenants.
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


#: Those of some jobs that are not told.
Hidden: TypeAlias = Callable[[Sequence[str]], Set[str]]


def read(store: Store, seconds: int, most: int, hidden: Hidden | None = None) -> answers.Spans:
    """Return every span that reaches into the last `seconds`, as the API shows it; joined where over `most`.

    With `hidden`, the time of hidden jobs is shown, and nothing else of them. Of several small jobs nobody knows whose
    they are: they are hidden too.
    """
    stored = store.telemetry.spans(seconds)
    since = stored.now - seconds * 1000
    leased = list(_open(store, stored.running, stored.now))
    heard = store.fleet_reads.last_heard(_worker(span.lane) for span in leased)
    computing = (_until(span, heard.get(_worker(span.lane))) for span in leased)
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


def of_jobs(store: Store, jobs: Set[str], seconds: int) -> dict[str, list[Span]]:
    """Return the spans of each of these jobs that ended within the last `seconds`; of small ones there are none."""
    found: dict[str, list[Span]] = {}
    for span in _read_ended(store.telemetry.spans(seconds)):
        if span.job and span.job in jobs:
            found.setdefault(span.job, []).append(span)
    return found


def _read_ended(stored: StoredSpans) -> Iterator[Span]:
    """The spans that the functions keep, each lane's latest last."""
    yield from skipped.readable(
        "span", stored.past, lambda _, row: parse_span(row[b"lane"].decode(), row[b"span"].decode())
    )
    yield from skipped.readable("span", stored.latest, lambda lane, text: parse_span(lane.decode(), text.decode()))


def _redact(spans: Sequence[Span], hidden: Hidden) -> list[Span]:
    """The same spans; those that are not told without their jobs and kinds."""
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


def _until(span: Span, heard: LastHeard | None) -> Span:
    """The span up to the last heartbeat of a worker that was lost: it computed until then and no longer."""
    if heard is None or not heard.lost:
        return span
    return replace(span, end=max(span.start, heard.seen_ms), open=False, lost=True)


def _worker(lane: str) -> str:
    return lane.partition("/")[0]


def _open(store: Store, running: Sequence[str], now: int) -> Iterator[Span]:
    """Spans of what is leased now. Small jobs that a worker took at once are one span."""
    small: dict[tuple[str, str], Span] = {}
    leased = skipped.readable("span", store.telemetry.held(running), lambda job, pair: _leases(job, *pair, now))
    for is_small, span in chain.from_iterable(leased):
        if is_small:
            known = small.get((span.lane, span.kind or ""))
            small[(span.lane, span.kind or "")] = _both(known, span) if known else span
        else:
            yield span
    yield from small.values()


def _leases(job: str, facts: Sequence[Any], held: Sequence[bytes], now: int) -> list[tuple[bool, Span]]:
    """The leases of one job, and whether it is small."""
    kind, small, queue = facts
    spans = []
    for text in held if kind else ():
        # Milliseconds that are billed may stand before the lane, in whose name there is no colon.
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


def _both(left: Span, right: Span) -> Span:
    """Two spans of one lane as one, over the time between them too."""
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
    """At most `most` spans unless there are more lanes, in order; and the time in ms within which they were joined."""
    ordered = sorted(spans, key=lambda span: (span.lane, span.start))
    resolution = 0
    while len(ordered) > most and resolution < seconds * 1000:
        resolution = resolution * 2 or max(100, seconds)
        ordered = list(_coarser(ordered, resolution))
    return ordered, resolution


def _coarser(spans: Iterable[Span], resolution: int) -> Iterator[Span]:
    """Spans of a lane that begin within one step of time become one."""
    for _, run in groupby(spans, key=lambda span: (span.lane, span.start // resolution)):
        first, *rest = run
        for span in rest:
            first = _both(first, span)
        yield first
