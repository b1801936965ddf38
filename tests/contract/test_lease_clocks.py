"""Tests wrong clocks: Redis' clock steps back by an hour, and a worker's clock is an hour ahead."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from jobs.models import Device
from jobs.settings import Settings
from jobs.store import Store, fleet, keys
from jobs.store.server import connection, functions
from jobs.worker import lifecycle
from jobs.worker.api import links
from jobs.worker.api.links import CannotStart
from jobs.worker.lanes import Lane
from tests.contract.lease_invariants import check
from tests.contract.lease_model import Bench, new_job, total_of
from tests.contract.test_audit_api import Api

HOUR = 3_600_000


def step_back(bench: Bench) -> None:
    """Step Redis' clock back by an hour, and continue with the leader."""
    bench.advance(-HOUR)
    bench.sweep()
    check(bench, bench.look())


def served_after(bench: Bench, ms: int) -> str:
    """Return the job that another worker gets when a dead worker's slot and leases have expired."""
    bench.advance(ms)
    bench.sweep()
    check(bench, bench.look())
    return bench.hold("alive")


def test_leases_and_slots_of_the_dead_end_in_seconds_when_the_clock_steps_back(bench: Bench) -> None:
    job = bench.submit(10)
    bench.hold("dead")
    bench.grant(job, 10, worker="dead")
    step_back(bench)
    assert served_after(bench, functions.SLOT_TTL_MS) == job
    bench.serve(job, "alive")
    assert bench.job(job).result == total_of(0, 10)


def test_a_job_that_waits_for_a_lease_is_looked_at_in_seconds_when_the_clock_steps_back(bench: Bench) -> None:
    job = bench.submit(10)
    bench.hold("dead")
    bench.grant(job, 10, worker="dead")
    bench.store.slots.leave("dead")
    step_back(bench)
    assert served_after(bench, functions.LEASE_TTL_MS) == job


def test_a_range_that_raised_is_tried_again_in_seconds_when_the_clock_steps_back(bench: Bench) -> None:
    job = bench.submit(1)
    bench.hold("w")
    bench.fail(bench.grant(job).token)
    bench.store.slots.leave("w")
    step_back(bench)
    assert served_after(bench, 4000) == job


def test_a_range_that_raised_under_a_holder_that_died_waits_no_minute_more_when_the_clock_steps_back(
    bench: Bench,
) -> None:
    """The holder's slot ended, and only whoever leased next brought the backoff near."""
    job = bench.submit(2)
    bench.hold("dead")
    bench.fail(bench.grant(job, 1).token)
    step_back(bench)
    for _ in range(2):
        bench.sweep()
        bench.advance(60_000)
    bench.sweep()
    bench.work("alive")
    assert bench.job(job).state == "done"


def test_a_small_job_of_a_dead_worker_is_taken_up_when_the_clock_steps_back(bench: Bench) -> None:
    job = bench.submit(small=True)
    bench.next("dead")
    step_back(bench)
    bench.advance(functions.LEASE_TTL_MS)
    bench.sweep()
    bench.work("alive")
    assert bench.job(job).state == "done"


def test_a_dead_worker_is_lost_in_seconds_when_the_clock_steps_back(bench: Bench) -> None:
    bench.store.fleet.heartbeat("w", "1", {"device": "gpu"})
    step_back(bench)
    bench.advance(functions.WORKER_TTL_MS)
    bench.sweep()
    assert bench.look().hash("ct:worker:w")["state"] == "lost"
    assert not any(bench.look().zset(f"ct:workers{device}") for device in ("", ":cpu", ":gpu"))


def test_the_living_lose_nothing_when_the_clock_steps_back(bench: Bench) -> None:
    job = bench.submit(10, max_lease_seconds=5)
    bench.hold("w")
    token = bench.grant(job, 10).token
    bench.store.fleet.heartbeat("w", "1", {"device": "cpu"})
    step_back(bench)
    for _ in range(5):
        assert (
            bench.beat(token) == 1 and bench.store.slots.hold("w") and bench.store.fleet.heartbeat("w", "1", {}) == "ok"
        )
        bench.advance(1000)
        bench.sweep()
    bench.advance(1000)
    assert bench.beat(token) == 0, "the longest lease counts from the step"
    assert bench.commit(token).finishing


def test_progress_and_rate_go_on_when_the_clock_steps_back(bench: Bench) -> None:
    job = bench.submit(100)
    bench.hold("w")
    bench.commit(bench.grant(job).token)
    bench.advance(-HOUR)
    for _ in range(4):
        bench.advance(1000)
        bench.commit(bench.grant(job).token)
    assert float(bench.job(job).fields["rate"]) == 1.0
    said = [event["done"] for _, event in bench.look().stream("ct:events") if event.get("type") == "progress"]
    assert said[-4:] == ["2", "3", "4", "5"]


@pytest.mark.parametrize("name", ["ct:leader", "ct:gpu:GPU-1"])
def test_a_lead_and_a_claim_of_the_dead_end_in_seconds_when_the_clock_steps_back(bench: Bench, name: str) -> None:
    """Redis expires these by itself: an hour too late."""
    bench.client.set(name, "dead", px=HOUR)

    def take() -> bool:
        return (
            bench.store.fleet.lead("alive") if name == "ct:leader" else bench.store.fleet.claim(["GPU-1"], "alive").held
        )

    assert not take()
    assert 0 < bench.client.pttl(name) <= (fleet.LEADER_TTL_MS if name == "ct:leader" else functions.GPU_TTL_MS)
    bench.client.delete(name)
    assert take()


def test_a_name_is_free_again_when_the_later_process_is_dead(bench: Bench) -> None:
    bench.store.fleet.heartbeat("w", "9", {})
    assert bench.store.fleet.heartbeat("w", "1", {}) == "taken"
    bench.advance(functions.WORKER_TTL_MS)
    assert bench.store.fleet.heartbeat("w", "1", {}) == "ok"
    assert bench.store.fleet.heartbeat("w", "1", {}, leaving=True) == "ok"
    assert bench.store.fleet.heartbeat("w", "0", {}) == "ok"


def test_a_heartbeat_that_comes_after_the_goodbye_of_its_process_brings_no_worker_back(bench: Bench) -> None:
    """A slow coordinator handles the heartbeat after the worker left. Before, the worker was reported as lost."""
    bench.store.fleet.heartbeat("w", "1", {"device": "cpu", "state": "idle"})
    bench.store.fleet.heartbeat("w", "1", {"device": "cpu", "state": "stopped"}, leaving=True)
    assert bench.store.fleet.heartbeat("w", "1", {"device": "cpu", "state": "idle"}) == "ok"
    assert bench.client.hget(keys.worker("w"), "state") == b"stopped"
    assert bench.client.zscore(keys.WORKERS, "w") is None
    assert bench.store.fleet.heartbeat("w", "2", {"device": "cpu", "state": "idle"}) == "ok"
    assert bench.client.zscore(keys.WORKERS, "w") is not None, "another process of its name is another worker"


def test_a_worker_is_born_by_the_clock_of_redis(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own, an hour ahead, it had its name for a day, whoever came later."""
    ahead = time.time_ns() + HOUR * 10**6
    monkeypatch.setattr(time, "time_ns", lambda: ahead)

    def start() -> Sequence[Lane]:
        raise CannotStart("no lanes")

    settings = Settings(worker_id="w")
    link = links.RedisLink(settings, bench.store, Device.CPU)
    assert lifecycle.Worker(settings, Device.CPU, 1).run(link, start, lambda: None) == 1
    seconds, _ = bench.client.time()
    assert int(bench.look().hash("ct:worker:w")["born"].partition("-")[0]) <= (seconds + 1) * 1000


@pytest.mark.parametrize("hours", [-3, 3])
def test_a_coordinator_whose_own_clock_is_wrong_shows_what_the_others_show(
    any_redis_url: str, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """One that was an hour ahead saw no worker, and no rate or wait was right."""
    store = Store(connection.connect(any_redis_url))
    store.jobs.submit([new_job("waits", 10, "any.normal"), new_job("runs", 10, "any.high")])
    wrong = time.time() + hours * 3600
    monkeypatch.setattr(time, "time", lambda: wrong)
    api = Api(any_redis_url)
    token = api.post("/api/tokens", {"name": "t", "scopes": ["read"], "ttl_seconds": 3600})["token"]

    def told(path: str) -> Any:
        """What it answers while the worker lives and the job has a rate, each of which takes some seconds to end."""
        store.fleet.heartbeat("w", "1", {"device": "cpu", "lanes": "1"})
        now = int(store.clock.now() * 1000)
        fields = {
            "state": "running",
            "started": now - 10_000,
            "rate": 5,
            "mark_at": now,
            "done": 1,
            "cursor": 1,
            "holders": 1,
        }
        store.client.hset("ct:job:runs", mapping=fields)
        return api.get(path, token).json()

    status = told("/api/status")
    assert status["workers"]["live"] == 1 and 0 <= status["oldest_wait_seconds"] < 60
    [worker] = told("/api/workers")["workers"]
    assert worker["live"] and worker["seen_seconds_ago"] < 60
    job = told("/api/jobs/runs")
    assert 10 <= job["seconds"] < 70 and (job["rate"], job["eta_seconds"]) == (5.0, 1.8)
    store.client.close()
