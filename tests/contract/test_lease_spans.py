"""Tests spans, which record who computed what: their sum equals the work, and their number is limited."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.telemetry import spans
from coordinator.telemetry.spans import Span
from jobs.store import keys
from jobs.store.server import functions
from jobs.store.work import leases
from jobs.store.work.slots import Held, Taken
from tests.contract.lease_model import Bench

P = keys.PREFIX


def kept(bench: Bench) -> list[Span]:
    """Return the stored spans, then the latest span of each lane."""
    rows = [row for _, row in bench.client.xrange(f"{P}spans")]
    past = [spans.parse_span(row[b"lane"].decode(), row[b"span"].decode()) for row in rows]
    latest = bench.client.hgetall(f"{P}span")
    return past + [spans.parse_span(lane.decode(), text.decode()) for lane, text in latest.items()]


def lease(bench: Bench, job: str, lane: str = "w/0", ms: int = 100, units: int = 1) -> None:
    """Lease, compute for some time, and commit."""
    token = bench.grant(job, units, lane=lane).token
    bench.advance(ms)
    bench.commit(token)


def test_leases_that_follow_each_other_on_one_job_are_one_span(bench: Bench) -> None:
    job = bench.submit(100)
    bench.hold("w")
    for _ in range(5):
        lease(bench, job)
        bench.advance(50)
    [span] = kept(bench)
    assert (span.lane, span.job, span.kind, span.device) == ("w/0", job, "sum", "cpu")
    assert (span.leases, span.units, span.jobs, span.busy) == (5, 5, 1, 5)
    assert span.end - span.start == 5 * 100 + 4 * 50


def test_another_job_a_pause_and_half_a_minute_begin_a_new_span(bench: Bench) -> None:
    one, other = bench.submit(1000), bench.submit(1000)
    bench.hold("w"), bench.hold("v")
    lease(bench, one)
    lease(bench, other)
    bench.advance(2000)
    lease(bench, other)
    assert [(span.job, span.leases) for span in kept(bench)] == [(one, 1), (other, 1), (other, 1)]
    for _ in range(40):
        lease(bench, other, ms=1000)
    found = [span for span in kept(bench) if span.job == other][1:]
    assert sum(span.leases for span in found) == 41 and len(found) == 2
    assert all(span.end - span.start <= 31_000 for span in found)


def test_lanes_have_spans_of_their_own(bench: Bench) -> None:
    job = bench.submit(10)
    bench.hold("w")
    lease(bench, job, "w/0")
    lease(bench, job, "w/1")
    assert {(span.lane, span.leases) for span in kept(bench)} == {("w/0", 1), ("w/1", 1)}


def test_small_jobs_are_counted_in_one_span(bench: Bench) -> None:
    for _ in range(30):
        bench.submit(3, small=True, estimate_ms=1)
    bench.work("w")
    [span] = kept(bench)
    assert (span.job, span.jobs, span.units, span.leases, span.lane) == (None, 30, 90, 30, "w")
    bench.submit(3, small=True)
    bench.advance(5000)
    bench.work("w")
    assert [span.job for span in kept(bench)] == [None, "j30"]


def test_what_is_dropped_is_in_no_span(bench: Bench) -> None:
    job = bench.submit(10)
    bench.hold("w")
    stale = bench.grant(job).token
    bench.advance(functions.LEASE_TTL_MS + 1)
    lease(bench, job)
    assert not bench.commit(stale).merged
    bench.release(bench.grant(job).token)
    assert [span.units for span in kept(bench)] == [1]


def test_the_leader_puts_away_what_ended_and_keeps_an_hour(bench: Bench) -> None:
    job = bench.submit(100)
    bench.hold("w")
    lease(bench, job)
    assert bench.store.telemetry.put_spans_away() == 0
    bench.advance(2000)
    assert bench.store.telemetry.put_spans_away() == 1
    assert not bench.client.exists(f"{P}span") and len(kept(bench)) == 1
    lease(bench, job)
    assert [span.units for span in kept(bench)] == [1, 1]


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    totals=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    steps=st.lists(st.tuples(st.sampled_from("wvu"), st.integers(0, 4000)), max_size=20),
)
def test_spans_add_up_to_what_was_committed(
    any_redis_url: str, totals: Sequence[int], steps: Sequence[tuple[str, int]]
) -> None:
    bench = Bench(any_redis_url)
    for number, total in enumerate(totals):
        bench.submit(total, small=number % 2 == 1, estimate_ms=1)
    for worker, ms in steps:
        found = bench.next(worker)
        if isinstance(found, Taken):
            for _, token in found.jobs:
                bench.done1(token)
        elif isinstance(found, Held):
            bench.advance(ms)
            answer = bench.lease(found.job_id, 2, worker, lane=f"{worker}/0")
            if isinstance(answer, leases.Grant):
                bench.advance(ms // 4)
                bench.commit(answer.token, worker=worker)
        if ms % 3 == 0:
            bench.store.telemetry.put_spans_away()
    look = bench.look()
    committed = sum(view.number("done") for view in look.jobs.values())
    found_spans = kept(bench)
    assert sum(span.units for span in found_spans) == committed
    for lane in {span.lane for span in found_spans}:
        mine = sorted((span for span in found_spans if span.lane == lane), key=lambda span: (span.start, span.end))
        assert all(before.end <= after.start for before, after in pairwise(mine))
