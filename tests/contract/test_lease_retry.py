"""Tests RETRY of more ranges than one call moves: several calls, with any events between them."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs import queues
from jobs.models import Device
from jobs.store import Store, keys
from jobs.store.server.functions import LIMITS
from tests.contract.lease_invariants import check
from tests.contract.lease_model import Bench, JobView

RUNNER = queues.for_worker(Device.RUNNER)
OFFER = {"cpus": 8, "memory_mib": 16_000, "gpus": [], "host": "amber", "labels": [], "tenant": ""}
UNITS = 40
#: Outcomes of a lease before and after the job fails.
ENDS = ("dead", "waits", "release", "crash", "commit", "split", "stays")


def ended(bench: Bench, how: str, token: str) -> None:
    lo = bench.granted[token][1][0]
    calls: dict[str, Callable[[], object]] = {
        "dead": lambda: bench.fail_unit(token, most=0),
        "waits": lambda: bench.fail_unit(token, most=5),
        "release": lambda: bench.release(token),
        "crash": lambda: bench.crash(token),
        "commit": lambda: bench.commit(token, lo + 1),
        "split": lambda: bench.split(token, lo + 1),
        "stays": lambda: None,
    }
    calls[how]()


def failed(bench: Bench, fates: list[tuple[str, int]]) -> tuple[str, list[str]]:
    """A program whose leases ended in these ways before its timeout was over, and the tokens of those that did not."""
    job = bench.submit(UNITS, "runner.normal", max_lease_seconds=3600, timeout_ms=10_000)
    bench.hold("runner-1", RUNNER, lanes=UNITS, offer=OFFER)
    tokens = []
    for how, want in fates:
        answer = bench.lease(job, want, "runner-1")
        if not isinstance(answer, str):
            ended(bench, how, answer.token)
            tokens += [answer.token] * (how in ("stays", "split"))
    bench.advance(11_000)
    bench.sweep()
    assert bench.job(job).state == "failed"
    return job, tokens


def step(bench: Bench, job: str) -> str:
    answer = bench.store.functions.run_acknowledged_texts("retry", job, 1, "", "", 0)
    check(bench, bench.look())
    return answer[0]


def open_ranges(view: JobView) -> list[tuple[int, int]]:
    return sorted([*view.free, *view.retry, *view.dead])


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(
    fates=st.lists(st.tuples(st.sampled_from(ENDS), st.integers(1, 3)), min_size=4, max_size=30),
    later=st.lists(st.sampled_from([*ENDS[:-1], "", "", "other"]), max_size=20),
    seed=st.integers(0, 99),
)
def test_nothing_is_lost_between_its_calls(
    redis_url: str, fates: list[tuple[str, int]], later: list[str], seed: int
) -> None:
    """Leases that are still alive end in every way, a user retries one unit, and another replica goes on."""
    bench, pick = Bench(redis_url), random.Random(seed)
    with closing(bench.client):
        job, tokens = failed(bench, fates)
        for number in range(500):
            if step(bench, job) == "ok":
                break
            what = later[number] if number < len(later) else ""
            if what == "other" and bench.job(job).dead:
                assert bench.store.jobs.retry_dead(job, bench.job(job).dead[0][0], 1)[0] == "ok"
            elif what in ENDS and tokens:
                ended(bench, what, tokens.pop(pick.randrange(len(tokens))))
            check(bench, bench.look())
        assert bench.job(job).state in ("queued", "running", "finishing")
        for _ in range(500):
            answer = bench.lease(job, 5, "runner-1")
            if isinstance(answer, str):
                break
            bench.commit(answer.token)
        check(bench, bench.look())
        assert answer in ("finishing", "gone", "wait")
        view = bench.job(job)
        left = sum(hi - lo for lo, hi in view.leases.values())
        assert view.number("done") == UNITS - left, "all but what others still have"


def test_one_unit_that_somebody_retries_between_its_calls_leaves_no_other_behind(bench: Bench) -> None:
    job, _ = failed(bench, [("dead", 1)] * 5)
    assert step(bench, job) == "more"
    assert bench.store.jobs.retry_dead(job, bench.job(job).dead[0][0], 1)[0] == "ok"
    answers = [step(bench, job)]
    while answers[-1] == "more":
        answers.append(step(bench, job))
    assert answers[-1] == "ok" and bench.job(job).dead == [] and "retry_stage" not in bench.job(job).fields


def test_what_touches_is_one_range_again_and_counts_begin_anew(bench: Bench) -> None:
    job = bench.submit(UNITS, "runner.normal", max_lease_seconds=3600)
    bench.hold("runner-1", RUNNER, lanes=UNITS, offer=OFFER)
    tokens = [bench.grant(job, 1, worker="runner-1").token for _ in range(UNITS)]
    random.Random(1).shuffle(tokens)
    for number, token in enumerate(tokens):
        ended(bench, "commit" if bench.granted[token][1][0] == 20 else "waits" if number % 3 == 0 else "dead", token)
    bench.store.jobs.cancel(job)
    answers = [step(bench, job)]
    while answers[-1] == "more":
        assert bench.job(job).state == "cancelled"
        answers.append(step(bench, job))
    assert answers.count("more") > UNITS / 3, "it was done in many calls"
    assert bench.client.lrange(keys.job_free(job), 0, -1) == [b"0:20:0:0", b"21:40:0:0"]
    assert open_ranges(bench.job(job)) == [(0, 20), (21, 40)]
    assert not any(name.startswith("dead|") or name == "retry_stage" for name in bench.job(job).fields)


def test_each_call_moves_some_ranges_alone(bench: Bench) -> None:
    """Moving 100,000 ranges at once blocked Redis for 0.3 s."""
    store = Store(bench.client)
    job = bench.submit(10_000, "runner.normal")
    units = list(range(0, 10_000, 2))
    random.Random(1).shuffle(units)
    free, dead = keys.job_free(job), keys.job_dead(job)
    bench.client.rpush(dead, *(f"{unit}:{unit + 1}:0:4" for unit in units[:4000]))
    bench.client.rpush(free, *(f"{unit}:{unit + 1}:1:0" for unit in units[4000:]))
    bench.client.hset(keys.job(job), mapping={"cursor": 10_000, "done": 5000, "state": "failed"})
    bench.client.zrem("ct:in:queued", job)
    bench.client.zadd("ct:in:failed", {job: 1})
    calls = 0
    while store.functions.run_acknowledged_texts("retry", job, 1, "", "", 0) == ["more"]:
        calls += 1
        assert calls < 20
    assert calls == 2 * 5000 / LIMITS.retried
    assert bench.client.llen(free) == 5000 and not bench.client.exists(dead, keys.job_retry(job))
    texts = bench.client.lrange(free, 0, -1)
    assert texts == [f"{unit}:{unit + 1}:0:0".encode() for unit in range(0, 10_000, 2)]


@pytest.mark.parametrize("verb", ["delete", "cancel"])
def test_a_job_may_go_between_two_calls(bench: Bench, verb: str) -> None:
    job, tokens = failed(bench, [("dead", 1)] * 10)
    assert not tokens and step(bench, job) == "more"
    answer = getattr(bench.store.jobs, verb)(job)
    check(bench, bench.look())
    if verb == "delete":
        assert answer[0] == "ok" and step(bench, job) == "missing"
        assert not bench.client.keys(f"ct:job:{job}*")
    else:
        assert answer == ["conflict", "failed"] and bench.store.jobs.retry(job, 1) == ["ok", "queued"]
