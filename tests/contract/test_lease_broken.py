"""Broken jobs are quarantined and stop nobody else. A broken key is put aside, and no job is accepted until REINDEX."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
import redis

from jobs import queues, settings
from jobs.partial_reader import GatheredPartials
from jobs.store import keys, reindex
from jobs.store.server import connection
from jobs.store.work.leases import Grant
from jobs.store.work.slots import Taken
from tests.contract.lease_invariants import check
from tests.contract.lease_model import Bench, total_of

#: Ways to break a job for the functions, keyed by name.
BREAKS: dict[str, Callable[[redis.Redis, str], object]] = {
    "type": lambda client, job: (client.delete(keys.job(job)), client.lpush(keys.job(job), "x")),
    "state": lambda client, job: client.hset(keys.job(job), "state", b"\xff\xfe"),
    "total": lambda client, job: client.hset(keys.job(job), "total", "many"),
    "infinite": lambda client, job: client.hset(keys.job(job), "cursor", "inf"),
    "not a number": lambda client, job: client.hset(keys.job(job), "rate", "nan"),
    "beyond": lambda client, job: client.hset(keys.job(job), "done", "11"),
    "holders": lambda client, job: client.hset(keys.job(job), "holders", "1.5"),
    "no queue": lambda client, job: client.hdel(keys.job(job), "queue"),
    "free": lambda client, job: client.set(keys.job_free(job), "x"),
    "a range": lambda client, job: client.rpush(keys.job_free(job), "x"),
    "leases": lambda client, job: client.set(keys.job_leases(job), "x"),
    "retry": lambda client, job: client.set(keys.job_retry(job), "x"),
}
#: Keys of all jobs, and values that can be found there.
FLEET = [
    "ct:pending:any.normal",
    "ct:recheck",
    "ct:expiry",
    "ct:slots",
    "ct:slotjob",
    "ct:jobs",
    "ct:in:queued",
    "ct:in:running",
    "ct:in:done",
    "ct:load",
    "ct:seq",
    "ct:sweep:running",
    "ct:leader",
    "ct:events",
    "ct:span",
    "ct:spans",
    "ct:outcomes",
    "ct:units",
    "ct:submitted",
    "ct:ended",
    "ct:waits",
    "ct:durations",
    "ct:pace",
    "ct:broken",
    "rq:queue:any.normal",
    "ct:worker:w",
    "ct:mark:sum:m",
    "ct:idem:a:k",
]


def told(bench: Bench, job: str, field: str = "state") -> str:
    """Return a field of one job; other fields may be unreadable."""
    found: bytes | None = bench.client.hget(keys.job(job), field)
    return (found or b"").decode()


def serve_all(bench: Bench) -> None:
    """Run rounds of the leader and of a correct worker, and one repair by the operator, until no work is left."""
    for number in range(6):
        bench.store.fleet.lead("me")
        bench.sweep()
        if number == 2:
            bench.store.repairs.reindex()
        bench.work()
        bench.advance(61_000)


@pytest.mark.parametrize("how", BREAKS)
@pytest.mark.parametrize("started", [False, True])
def test_a_broken_job_holds_up_nobody(bench: Bench, how: str, started: bool) -> None:
    bad = bench.submit(10)
    if started:
        bench.hold("v")
        bench.grant(bad, 2, worker="v")
    good = [bench.submit(10) for _ in range(3)]
    BREAKS[how](bench.client, bad)
    serve_all(bench)
    for job in good:
        assert told(bench, job) == "done"
        assert json.loads(bench.client.get(keys.job_result(job))) == total_of(0, 10)
    assert bench.client.sismember("ct:broken", bad)
    indexes = ["ct:recheck", *(f"ct:pending:{queue}" for queue in queues.ALL)]
    assert [bench.client.zscore(index, bad) for index in indexes] == [None] * len(indexes)
    assert bench.store.jobs.delete(bad)[0] == "ok" and not bench.client.keys(f"ct:job:{bad}*")
    assert not bench.client.sismember("ct:broken", bad)


def test_a_job_that_can_still_be_written_fails_and_says_why(bench: Bench) -> None:
    job = bench.submit(10)
    bench.client.set(keys.job_free(job), "x")
    bench.hold("w")
    assert bench.lease(job) == "gone"
    assert told(bench, job) == "failed" and "WRONGTYPE" in told(bench, job, "error")
    [(_, fields)] = bench.client.xrevrange("ct:events", count=1)
    assert fields[b"state"] == b"failed"


def test_a_token_of_a_broken_job_is_dropped_by_every_script(bench: Bench) -> None:
    job = bench.submit(10)
    bench.hold("w")
    token = bench.grant(job, 5).token
    bench.client.delete(keys.job(job))
    bench.client.set(keys.job(job), "x")
    assert bench.beat(token) == 0 and not bench.commit(token).merged
    assert not bench.release(token) and not bench.crash(token) and not bench.fail(token)
    assert not bench.store.results.fold(
        job, GatheredPartials(accumulator=None, parts=(b"{}",), done=5, spec=None), b"{}"
    )
    assert bench.store.results.gather(job).spec is None
    assert bench.store.slots.facts([job], "cpu") == [None]
    assert bench.store.jobs.cancel(job) == ["missing"]


@pytest.mark.parametrize("spec", [b"\xff", b"{", b"[" * 100_000])
def test_a_small_job_without_a_readable_spec_is_not_taken_with_the_others(bench: Bench, spec: bytes) -> None:
    bad, good = (bench.submit(1, small=True, estimate_ms=1) for _ in range(2))
    bench.client.hset(keys.job(bad), "spec", spec)
    found = bench.next("w")
    assert isinstance(found, Taken) and [job for job, _ in found.jobs] == [good]
    assert told(bench, bad) == "failed"
    alone = bench.submit(1, small=True)
    bench.client.hset(keys.job(alone), "spec", spec)
    assert bench.next("w") == "none" and told(bench, alone) == "failed"


def test_small_jobs_taken_before_a_broken_one_are_told_of(bench: Bench) -> None:
    """The script ran again and forgot them: they were leased to nobody until that expired, and counted as deaths."""
    first, bad, last = (bench.submit(1, small=True, estimate_ms=1) for _ in range(3))
    bench.client.set(keys.job_leases(bad), "x")
    found = bench.next("w")
    assert isinstance(found, Taken) and [job for job, _ in found.jobs] == [first]
    assert told(bench, bad) == "failed" and bench.done1(found.jobs[0][1])
    bench.work()
    assert told(bench, last) == "done" and not bench.client.hexists("ct:outcomes", "expired")


@pytest.mark.parametrize("name", FLEET)
def test_a_key_of_another_type_is_put_aside_and_everything_is_done(bench: Bench, name: str) -> None:
    first = bench.submit(10, key="a:k")
    bench.hold("w")
    token = bench.grant(first, 4).token
    waiting = [bench.submit(10, small=number == 0) for number in range(3)]
    bench.client.delete(name)
    if name.split(":")[1] in ("seq", "leader", "sweep", "idem"):
        bench.client.lpush(name, "x")
    else:
        bench.client.set(name, "x")
    bench.commit(token)
    bench.store.repairs.reindex()
    late = bench.submit(10, key="a:k2")
    serve_all(bench)
    for job in (first, *waiting, late):
        assert told(bench, job) == "done", job
    everyone = {job.encode() for job in (first, *waiting, late)}
    assert set(bench.client.zrange("ct:in:done", 0, -1)) == set(bench.client.zrange("ct:jobs", 0, -1)) == everyone
    assert not bench.client.exists("ct:recheck", "ct:slotjob", *(f"ct:pending:{one}" for one in queues.ALL))


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("ct:outcomes", "committed"),
        ("ct:units", "sum|cpu"),
        ("ct:pace", "sum||cpu"),
        ("ct:slotjob", "x"),
        ("ct:span", "honest"),
        ("ct:waits", "any.normal|count"),
        ("ct:ended", "sum|done"),
        ("ct:submitted", "sum"),
        ("ct:load", "any.normal"),
    ],
)
def test_a_field_of_nonsense_stops_no_work(bench: Bench, name: str, field: str) -> None:
    bench.client.hset(name, field, b"\xffnonsense")
    job = bench.submit(10)
    serve_all(bench)
    assert told(bench, job) == "done"
    bench.store.telemetry.put_spans_away()


@pytest.mark.parametrize("value", ["nonsense", "99999999999999999999", "-1"])
def test_counters_and_cursors_of_nonsense_stop_no_work(bench: Bench, value: str) -> None:
    for name in ("seq", "sweep:running", "sweep:gpu.normal", "leader"):
        bench.client.set(f"ct:{name}", value)
    bench.store.repairs.reindex()
    jobs = [bench.submit(10), bench.submit(10, "gpu.normal", prefer=True)]
    serve_all(bench)
    assert all(bench.job(job).state == "done" for job in jobs)
    assert bench.store.fleet.lead("me"), "a leader without an end is none"


def test_a_new_job_is_numbered_above_those_there_are(bench: Bench) -> None:
    old = [bench.submit(1) for _ in range(5)]
    bench.client.set("ct:seq", "nonsense")
    bench.store.repairs.reindex()
    new = bench.submit(1)
    numbers = bench.look().zset("ct:jobs")
    assert numbers[new] > max(numbers[job] for job in old)


def test_a_refusal_of_redis_quarantines_nothing(bench: Bench) -> None:
    job = bench.submit(10)
    bench.hold("w")
    bench.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.exceptions.RedisError, match="OOM"):
            bench.submit(10)
    finally:
        bench.client.config_set("maxmemory", 0)
    assert not bench.client.exists("ct:broken")
    assert isinstance(bench.lease(job), Grant)


def test_a_full_redis_takes_what_frees_memory(bench: Bench) -> None:
    job = bench.submit(10)
    bench.client.config_set("maxmemory", 1)
    try:
        assert bench.store.fleet.lead("me")
        assert bench.store.jobs.cancel(job)
    finally:
        bench.client.config_set("maxmemory", 0)
    assert bench.job(job).state == "cancelled"


def test_no_job_is_accepted_while_an_index_is_broken(bench: Bench) -> None:
    waiting = bench.submit(10)
    bench.client.delete("ct:pending:any.normal")
    bench.client.set("ct:pending:any.normal", "x")
    assert bench.next("w") == "none"
    with pytest.raises(connection.Refused) as refused:
        bench.submit(10)
    reason = connection.reason(refused.value)
    assert "ct:pending:any.normal" in reason and "python -m jobs.store.reindex" in reason
    assert bench.store.repairs.reindex() == 1
    later = bench.submit(10)
    bench.work()
    assert [bench.job(job).state for job in (waiting, later)] == ["done", "done"]
    bench.sweep()
    check(bench, bench.look())


@pytest.fixture
def unread_settings() -> Iterator[None]:
    """Let a command read the environment again, as a new process does."""
    settings.load.cache_clear()
    yield
    settings.load.cache_clear()


@pytest.mark.usefixtures("unread_settings")
@pytest.mark.parametrize(
    ("url", "words"),
    [("redis://127.0.0.1:1/0", "no server is listening at REDIS_URL"), ("nonsense", "REDIS_URL must start with")],
)
def test_a_rebuild_without_redis_says_what_to_set(
    url: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REDIS_URL", url)
    assert reindex.main() == 1
    assert words in capsys.readouterr().err


def test_an_index_that_does_not_fit_its_jobs_is_named(bench: Bench) -> None:
    paused = bench.submit(10)
    bench.store.jobs.pause(paused)
    bench.client.zadd("ct:pending:any.normal", {paused: 1})
    assert bench.next("w") == "none"
    with pytest.raises(connection.Refused, match=r"ct:pending:any\.normal"):
        bench.submit(10)
    bench.store.repairs.reindex()
    assert bench.submit(10)
    check(bench, bench.look())


@pytest.mark.usefixtures("unread_settings")
def test_the_operator_rebuilds_the_indexes_with_one_command(
    bench: Bench, redis_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [bench.submit(10) for _ in range(3)]
    bench.client.rename("ct:jobs", "lost")
    monkeypatch.setenv("REDIS_URL", redis_url)
    reindex.main()
    assert "3 jobs" in capsys.readouterr().out
    assert set(bench.look().zset("ct:jobs")) == set(jobs)
    check(bench, bench.look())


def test_quarantine_is_for_what_only_python_reads(bench: Bench) -> None:
    job = bench.submit(10)
    bench.store.repairs.quarantine(job, "its spec: no")
    assert bench.job(job).state == "failed" and json.loads(json.dumps(bench.job(job).fields["error"])).count("no") == 1
