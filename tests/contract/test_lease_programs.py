"""Tests leases of programs: runners take jobs whose requirements they meet, and each unit fails separately."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from jobs import queues
from jobs.hosts import requirements
from jobs.models import Device
from jobs.store import keys
from jobs.store.tenancy.tenants import Tenant
from jobs.store.work.jobs import CapReached
from jobs.store.work.leases import Grant
from jobs.store.work.slots import Held
from tests.contract.lease_invariants import check
from tests.contract.lease_model import Bench, History, new_job

QUEUE = "runner.normal"
RUNNER = queues.for_worker(Device.RUNNER)
GPU = {"memory_mib": 40_000, "compute_capability": "8.0"}
OFFER = {"cpus": 8, "memory_mib": 16_000, "gpus": [GPU], "host": "amber", "labels": ["ssd"], "tenant": ""}


def take(bench: Bench, worker: str = "runner-1", **offer: Any) -> str:
    """Return the job that a runner with this offer then holds; empty for none."""
    found = bench.next(worker, RUNNER, offer={**OFFER, **offer})
    check(bench, bench.look())
    return found.job_id if isinstance(found, Held) else ""


def program(bench: Bench, total: int = 10, want: int = 10) -> tuple[str, Grant]:
    """Return a program of which runner-1 has a lease."""
    job = bench.submit(total, QUEUE, max_lease_seconds=3600)
    bench.hold("runner-1", RUNNER, offer=OFFER)
    return job, bench.grant(job, want, worker="runner-1")


# -- queues -----------------------------------------------------------------------------------------------------------


def test_runners_hear_their_own_queues_alone(bench: Bench) -> None:
    kernel = bench.submit(queue="any.high")
    job = bench.submit(queue=QUEUE)
    assert RUNNER == ("runner.interactive", "runner.high", "runner.normal", "runner.low")
    assert not any(queue.startswith("runner.") for queue in queues.for_worker(Device.CPU))
    assert take(bench) == job
    assert bench.hold("cpu-1", queues.for_worker(Device.CPU)) == kernel


def test_any_never_means_a_runner(bench: Bench) -> None:
    """The first lease of a job for any device rings for idle workers, and runners are none of them."""
    for name in ("runner-1", "runner-2", "cpu-1", "cpu-2"):
        bench.store.fleet.heartbeat(name, "1", {"device": name.partition("-")[0]})
    bench.store.slots.next("runner-1", RUNNER, offer=OFFER)
    job = bench.submit(100, "any.normal")
    assert bench.pop(("any.normal",)) and bench.hold("cpu-1", queues.for_worker(Device.CPU)) == job
    bench.lease(job, 1, "cpu-1")
    assert bench.store.fleet_reads.count_wakeups()["any.normal"] == 1, "of cpu-2"
    job = bench.submit(100, QUEUE)
    assert bench.pop((QUEUE,)) and bench.hold("runner-1", RUNNER, offer=OFFER) == job
    bench.lease(job, 1, "runner-1")
    assert bench.store.fleet_reads.count_wakeups()[QUEUE] == 1, "of runner-2"


# -- requirements -----------------------------------------------------------------------------------------------------


def _requirements(pick: random.Random) -> dict[str, Any]:
    some: dict[str, list[Any]] = {
        "gpus": [1, 2, 4],
        "gpu_memory_mib": [1, 40_000, 40_001],
        "compute_capability": ["7.5", "8.0", "9.0", "10.0"],
        "cpus": [0.5, 1, 8, 8.5],
        "memory_mib": [1, 16_000, 16_001],
        "host": ["amber", "basalt"],
        "labels": [["ssd"], ["eu", "ssd"], ["eu"]],
    }
    return {name: pick.choice(values) for name, values in some.items() if pick.random() < 0.3}


def _offer(pick: random.Random) -> dict[str, Any]:
    gpus = [
        {"memory_mib": pick.choice([16_000, 40_000, 80_000]), "compute_capability": pick.choice(["7.5", "8.0", "12.0"])}
        for _ in range(pick.choice([0, 1, 2, 4]))
    ]
    return {
        "cpus": pick.choice([0, 0.5, 8, 64]),
        "memory_mib": pick.choice([0, 16_000, 64_000]),
        "gpus": gpus,
        "host": pick.choice(["amber", "basalt", ""]),
        "labels": pick.choice([[], ["ssd"], ["ssd", "eu"]]),
        "tenant": "",
    }


def test_redis_and_python_agree_on_what_fits(bench: Bench) -> None:
    pick, fits = random.Random(16), 0
    for _ in range(150):
        needed, offer = _requirements(pick), _offer(pick)
        job = bench.submit(1, QUEUE, requirements=needed)
        found = bench.next("runner-1", RUNNER, offer=offer)
        assert isinstance(found, Held) == (not requirements.describe_shortfalls(needed, offer)), (needed, offer)
        fits += isinstance(found, Held)
        bench.store.jobs.cancel(job)
    assert 30 < fits < 120


def test_a_job_that_no_runner_fits_holds_up_nobody_and_rings_for_nobody(bench: Bench) -> None:
    misfit = bench.submit(1, QUEUE, requirements={"gpus": 4})
    others = [bench.submit(1, QUEUE) for _ in range(3)]
    assert [take(bench, f"runner-{at}") for at in range(4)] == [*others, ""]
    assert bench.look().unsupported() == {misfit: QUEUE + ':sum|1|{"gpus":4}'}
    assert bench.store.fleet_reads.count_wakeups()[QUEUE] == 0
    assert bench.store.slots.anything(), "who waits for work looks now and then"
    assert take(bench, "large", gpus=[GPU] * 4) == misfit
    bench.store.slots.leave("large")
    assert take(bench, "large", gpus=[GPU] * 4) == misfit


def test_one_job_of_each_requirements_comes_back_at_once(bench: Bench) -> None:
    several = [bench.submit(1, QUEUE, requirements={"gpus": gpus}) for gpus in (2, 2, 2, 3)]
    assert not take(bench)
    assert set(bench.look().unsupported()) == set(several)
    assert take(bench, "large", gpus=[GPU] * 3) == several[0]
    assert set(bench.look().unsupported()) == {several[1], several[2]}
    assert bench.look().pending(QUEUE) == [several[3]]
    assert not take(bench) and set(bench.look().unsupported()) == set(several[1:])


def test_a_runner_that_is_shared_takes_jobs_of_one_tenant(bench: Bench) -> None:
    other, mine, again = (bench.submit(1, QUEUE, tenant=name) for name in ("a", "b", "b"))
    assert take(bench, "runner-1", tenant="b") == mine
    assert take(bench, "runner-2", tenant="b") == again
    assert not take(bench, "runner-3", tenant="b")
    assert take(bench, "runner-3") == other


def test_a_result_is_derived_by_whichever_runner_is_there(bench: Bench) -> None:
    job = bench.submit(2, QUEUE, requirements={"gpus": 1})
    assert take(bench) == job
    one, two = (bench.grant(job, 1, worker="runner-1") for _ in range(2))
    bench.commit(one.token)
    bench.store.slots.leave("runner-1")
    bench.advance(1000)
    assert not take(bench, gpus=[])
    assert bench.commit(two.token).finishing
    bench.advance(2000)
    bench.sweep()
    assert take(bench, gpus=[]) == job
    assert bench.finish(job) and bench.job(job).state == "done"


def test_at_most_256_different_requirements_wait(bench: Bench) -> None:
    news = [new_job(bench.new_id(), 1, QUEUE, requirements={"cpus": cpus}) for cpus in range(1, 257)]
    answers: Any = bench.store.jobs.submit(news)
    assert all(how == "new" for how, _ in answers)
    for new in news:
        bench.jobs[new.job_id] = History(new)
    [refused] = bench.store.jobs.submit([new_job("over", 1, QUEUE, requirements={"cpus": 300})])
    assert isinstance(refused, CapReached) and (refused.cap, refused.value) == ("requirements", 256)
    assert bench.submit(1, QUEUE, requirements={"cpus": 256}) and bench.submit(1, QUEUE)
    bench.store.jobs.cancel(news[0].job_id)
    bench.submit(1, QUEUE, requirements={"cpus": 300})
    check(bench, bench.look())
    assert bench.store.jobs.retry(news[0].job_id, 1)[0] == "ok"
    assert bench.client.zscore(keys.SHAPES, '{"cpus":1}') == 1
    assert bench.client.zscore(keys.SHAPES, '{"cpus":256}') == 2


def test_requirements_of_one_tenant_keep_no_other_out(bench: Bench) -> None:
    """Each of three may have its part of 256, whatever the others have."""
    for name in ("a", "b"):
        bench.store.tenants.put(Tenant(name=name))

    def submitted(tenant: str, count: int, label: str = "") -> list[str]:
        news = [
            new_job(bench.new_id(), 1, QUEUE, tenant=tenant, requirements={"labels": [f"{label or tenant}{number}"]})
            for number in range(count)
        ]
        ids = []
        for new, written in zip(news, bench.store.jobs.submit(news), strict=True):
            if isinstance(written, CapReached):
                assert (written.cap, written.value) == ("requirements", 256)
            else:
                bench.jobs[new.job_id] = History(new)
                ids.append(new.job_id)
        return ids

    greedy = submitted("a", 300)
    assert len(greedy) == 256
    assert len(submitted("b", 100)) == 86 and len(submitted("nobody", 3)) == 0
    assert bench.submit(1, QUEUE, tenant="b", requirements={"labels": ["a7"]}), "some that others have"
    check(bench, bench.look())
    for job in greedy[:10]:
        bench.store.jobs.cancel(job)
        bench.store.jobs.delete(job)
    assert not submitted("a", 300, "new"), "it has more than its part while the others have theirs"
    bench.client.set(keys.tenant_shapes("b"), "text")
    assert len(submitted("default", 100)) == 86 and bench.store.jobs.cancel(greedy[20]) == ["ok", "cancelled"]
    bench.submit(1, QUEUE, tenant="b", requirements={"labels": ["a8"]})
    assert bench.store.repairs.reindex() > 300
    check(bench, bench.look())


# -- leases -----------------------------------------------------------------------------------------------------------


def test_a_commit_keeps_the_rest_of_the_lease(bench: Bench) -> None:
    job, grant = program(bench)
    assert bench.commit(grant.token, 4, keep=True).merged
    view = bench.job(job)
    assert (view.leases, view.number("done")) == ({grant.token: (4, 10)}, 4)
    again = bench.store.leases.commit(job, grant.token, 4, b"{}", ms=1, worker="w", device="cpu", keep=True, lo=0)
    assert again.merged and bench.job(job) == view, "its answer was lost"
    assert bench.commit(grant.token, 10, keep=True).finishing
    check(bench, bench.look())


def test_a_commit_after_lost_writes_counts_nothing_that_was_lost(bench: Bench) -> None:
    job, grant = program(bench)
    backup = bench.back_up()
    assert bench.commit(grant.token, 4, keep=True).merged
    granted = bench.granted[grant.token]
    bench.come_back(backup)
    bench.granted[grant.token] = granted
    assert not bench.commit(grant.token, 6, keep=True).merged
    assert not bench.fail_unit(grant.token)
    assert bench.job(job).number("done") == 0 and bench.job(job).leases == {grant.token: (0, 10)}


def test_the_first_unit_fails_and_the_others_go_on(bench: Bench) -> None:
    job, grant = program(bench, 3)
    row = json.dumps({"unit": 0, "exit": 1})
    assert bench.fail_unit(grant.token, wait_ms=5000, row=row)
    view = bench.job(job)
    assert (view.free, list(view.retry)) == ([(1, 3)], [(0, 1)])
    assert not bench.fail_unit(grant.token), "its answer was lost"
    rest = bench.grant(job, 10, worker="runner-1")
    assert (rest.lo, rest.hi, rest.errors) == (1, 3, 0)
    bench.commit(rest.token)
    bench.advance(5000)
    second = bench.grant(job, 10, worker="runner-1")
    assert (second.lo, second.hi, second.errors) == (0, 1, 1)
    assert bench.fail_unit(second.token, row=json.dumps({"unit": 0, "exit": 2}))
    after = bench.job(job)
    assert after.state == "failed" and after.dead == [(0, 1)]
    assert "1 of 3 units" in after.fields["error"] and "exit 1" in after.fields["error"]
    assert bench.client.hgetall(keys.job_failures(job)) == {b"0": b'{"unit": 0, "exit": 2}'}
    check(bench, bench.look())
    bench.store.jobs.retry(job, 1)
    assert bench.client.exists(keys.job_failures(job))
    assert bench.hold("runner-1", RUNNER, offer=OFFER) == job
    assert bench.grant(job, 10, worker="runner-1").errors == 0


def test_a_program_fails_when_nothing_else_is_left(bench: Bench) -> None:
    """However many of its units were given up."""
    job, _ = program(bench, 1100, 1)
    for _ in range(1099):
        token = bench.grant(job, 1, worker="runner-1").token
        assert bench.job(job).state == "running" if int(token[1:]) % 100 == 0 else True
        assert bench.fail_unit(token, most=0, row="{}")
    view = bench.job(job)
    assert view.state == "running" and len(view.dead) == 1099
    assert bench.client.hlen(keys.job_failures(job)) == 1000
    assert sum(name.startswith("dead|") for name in view.fields) == 1000
    bench.fail_unit(next(iter(view.leases)), most=0)
    assert bench.job(job).state == "failed"
    bench.store.jobs.retry(job, 1)
    check(bench, bench.look())
    assert bench.job(job).free == [(0, 1100)] and not bench.job(job).dead


def test_a_lease_is_split_and_others_help(bench: Bench) -> None:
    for name in ("runner-1", "runner-2"):
        bench.store.fleet.heartbeat(name, "1", {"device": "runner"})
    job, grant = program(bench)
    bench.pop((QUEUE,))
    bench.client.delete(keys.rq_queue(QUEUE))
    assert bench.split(grant.token, 4) and bench.split(grant.token, 4)
    assert not bench.store.leases.split(job, grant.token, 0) and not bench.store.leases.split(job, grant.token, 5)
    assert bench.store.fleet_reads.count_wakeups()[QUEUE] == 1
    assert bench.hold("runner-2", RUNNER, offer=OFFER) == job
    tail = bench.grant(job, 10, worker="runner-2")
    assert (tail.lo, tail.hi) == (4, 5), "each runner takes half of its share"
    assert bench.commit(grant.token).merged and bench.commit(tail.token).merged
    bench.sweep()
    check(bench, bench.look())


@pytest.mark.parametrize("silent_ms", [3000, 29_000])
def test_a_lease_of_a_program_lasts_thirty_seconds(bench: Bench, silent_ms: int) -> None:
    job, grant = program(bench)
    bench.advance(silent_ms)
    assert bench.beat(grant.token) == 1
    bench.advance(29_999)
    assert bench.lease(job, worker="runner-2") == "wait"
    bench.advance(1)
    assert isinstance(bench.lease(job, worker="runner-2"), Grant)
    assert not bench.commit(grant.token).merged


def test_leases_outlive_the_absence_of_coordinators(bench: Bench) -> None:
    """Nobody sweeps and runners cannot beat: nothing is taken back until both could for 30 s again."""
    bench.sweep()
    job, grant = program(bench)
    bench.advance(40_000)
    assert bench.lease(job, worker="runner-2") == "wait"
    bench.sweep()
    for _ in range(9):
        bench.advance(3000)
        bench.sweep()
    assert bench.lease(job, worker="runner-2") == "wait" and bench.beat(grant.token) == 1
    check(bench, bench.look())
    bench.sweep()
    for _ in range(10):
        bench.advance(3000)
        bench.sweep()
    assert isinstance(bench.lease(job, worker="runner-2"), Grant)


@pytest.mark.parametrize("leaving", [False, True])
def test_a_runner_that_is_born_again_or_leaves_gives_up_its_leases(bench: Bench, leaving: bool) -> None:
    bench.store.fleet.heartbeat("runner-1", "1", {"device": "runner"})
    job, _ = program(bench)
    assert bench.store.fleet.heartbeat("runner-1", "1", {"device": "runner"}) == "ok" and bench.job(job).leases
    bench.store.fleet.heartbeat("runner-1", "1" if leaving else "2", {"device": "runner"}, leaving=leaving)
    view = bench.job(job)
    assert not view.leases and view.free == [(0, 10)] and not bench.client.exists(keys.leased("runner-1"))
    check(bench, bench.look())
    bench.store.fleet.heartbeat("runner-1", "3", {"device": "runner"})
    assert bench.grant(job, 10, worker="runner-1").lo == 0


def test_a_cpu_worker_that_is_born_again_keeps_its_leases(bench: Bench) -> None:
    bench.store.fleet.heartbeat("cpu-1", "1", {"device": "cpu"})
    job = bench.submit()
    bench.lease(job, 1, "cpu-1")
    bench.store.fleet.heartbeat("cpu-1", "2", {"device": "cpu"})
    assert bench.job(job).leases


# -- artifacts --------------------------------------------------------------------------------------------------------


def _artifact(bench: Bench, name: str) -> None:
    bench.client.hset(keys.artifact("default", name), "manifest", "m")
    bench.client.sadd(keys.holders("default", name), "kept")
    bench.client.zadd(keys.artifacts("default"), {name: 1})


def test_a_job_holds_its_artifacts_until_it_is_purged(bench: Bench) -> None:
    for name in ("given", "left"):
        _artifact(bench, name)
    job = bench.submit(1, QUEUE, artifacts=("given",))
    assert bench.client.smembers(keys.holders("default", "given")) == {b"kept", f"job:{job}".encode()}
    bench.client.sadd(keys.holders("default", "left"), f"job:{job}")
    bench.client.hset(keys.job_files(job), "0", "left")
    bench.client.hset(keys.job_kept(job), "left", 1)
    for name in ("given", "left"):
        bench.client.srem(keys.holders("default", name), "kept")
    bench.store.jobs.cancel(job)
    assert bench.client.exists(keys.holders("default", "given"))
    assert bench.store.jobs.delete(job)[0] == "ok"
    assert sorted(bench.client.zrange(keys.UNHELD, 0, -1)) == [b"default/given", b"default/left"]
    assert not bench.client.keys(f"ct:job:{job}*")


def test_a_job_whose_artifact_is_not_there_is_not_taken(bench: Bench) -> None:
    _artifact(bench, "given")
    new = new_job("j", 1, QUEUE, artifacts=("given", "gone"), requirements={"gpus": 1})
    assert bench.store.jobs.submit([new]) == [("artifact", "gone")]
    assert bench.client.smembers(keys.holders("default", "given")) == {b"kept"}
    assert not bench.look().jobs and not bench.client.exists(keys.SHAPES)


@pytest.mark.parametrize("broken", ["{", "[]", '{"gpus": "many"}', '{"labels": 3}'])
def test_broken_requirements_hold_up_nobody(bench: Bench, broken: str) -> None:
    job, other = bench.submit(1, QUEUE), bench.submit(1, QUEUE)
    bench.client.hset(keys.job(job), "requirements", broken)
    bench.client.hset(keys.job(job), "artifacts", broken)
    bench.client.hset(keys.GRACE, "swept", "never")
    bench.sweep()
    for worker in ("runner-1", "runner-2"):
        bench.next(worker, RUNNER, offer=OFFER)
    assert {job for job, _ in bench.look().slots.values()} >= {other}
    bench.store.jobs.cancel(job)
    assert bench.store.jobs.delete(job)[0] == "ok"
