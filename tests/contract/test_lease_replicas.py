"""Tests that replicas of services take no slot: a runner without a free slot starts them, but no programs."""

from __future__ import annotations

from typing import Any

from jobs import queues
from jobs.models import Device
from jobs.store import keys
from tests.contract.lease_invariants import check
from tests.contract.lease_model import Bench

RUNNER = queues.for_worker(Device.RUNNER)
FULL = {"cpus": 0, "memory_mib": 4000, "gpus": [], "host": "h", "labels": []}


def replica(bench: Bench, number: int, priority: str = "normal", **more: Any) -> str:
    return bench.submit(1, f"runner.{priority}", job_id=f"v-aaa-{number}", max_lease_seconds=36_000, **more)


def ask(bench: Bench, **more: Any) -> str:
    """Return the replica that a runner without a free slot starts; empty if there is none."""
    found = bench.next("runner-1", RUNNER, offer={**FULL, **more}, kinds={"sum": 1}, replicas=True)
    if found == "none":
        return ""
    assert not isinstance(found, str)
    job = getattr(found, "job_id", "")
    bench.grant(job, worker="runner-1")
    bench.store.slots.leave("runner-1")
    return str(job)


def waiting(bench: Bench) -> set[str]:
    return {job.decode() for job in bench.client.smembers(keys.WAITING_REPLICAS)}


def test_a_runner_without_a_free_slot_starts_a_replica_and_leaves_programs_where_they_wait(bench: Bench) -> None:
    programs = [bench.submit(1, "runner.normal", requirements={"cpus": 1}) for _ in range(150)]
    last = replica(bench, 1)
    assert ask(bench) == last and ask(bench) == ""
    seen = bench.look()
    assert seen.pending("runner.normal") == programs and not seen.unsupported()
    assert not bench.client.exists(keys.UNSCHEDULABLE) and not waiting(bench)
    check(bench, seen)


def test_replicas_start_by_priority_and_then_by_age(bench: Bench) -> None:
    low, first, second, high = (replica(bench, at, name) for at, name in enumerate(("low", "normal", "normal", "high")))
    assert [ask(bench) for _ in range(5)] == [high, first, second, low, ""]


def test_a_replica_that_does_not_fit_waits_for_room_and_holds_up_no_other(bench: Bench) -> None:
    large, small = (replica(bench, at, requirements={"memory_mib": size}) for at, size in enumerate((5000, 3000)))
    assert ask(bench) == small and ask(bench) == ""
    assert bench.client.zscore(keys.UNSCHEDULABLE, large) is not None and waiting(bench) == {large}
    assert ask(bench, memory_mib=5000) == large


def test_a_replica_that_another_runner_has_left_aside_is_found(bench: Bench) -> None:
    aside = replica(bench, 1, requirements={"memory_mib": 3000})
    assert bench.next("runner-2", RUNNER, offer={**FULL, "cpus": 4, "memory_mib": 1}, kinds={"sum": 1}) == "none"
    assert list(bench.look().unsupported()) == [aside] and waiting(bench) == {aside}
    assert ask(bench) == aside
    assert not bench.look().unsupported() and not waiting(bench)
    check(bench, bench.look())


def test_a_replica_of_another_version_or_tenant_is_left_to_others(bench: Bench) -> None:
    own, other = replica(bench, 1, tenant="a"), replica(bench, 2, tenant="b")
    assert bench.next("runner-1", RUNNER, offer=FULL, kinds={"sum": 2}, replicas=True) == "none"
    assert ask(bench, tenant="b") == other and ask(bench, tenant="b") == ""
    assert ask(bench) == own


def test_replicas_that_ended_or_started_wait_no_longer_and_one_whose_runner_died_does(bench: Bench) -> None:
    gone, started, other = (replica(bench, number) for number in range(3))
    bench.store.jobs.cancel(gone)
    assert waiting(bench) == {started, other}
    assert bench.hold("runner-2", RUNNER, offer={**FULL, "cpus": 4}, kinds={"sum": 1}) == started
    grant = bench.grant(started, worker="runner-2")
    bench.store.slots.leave("runner-2")
    assert waiting(bench) == {other}
    bench.crash(grant.token)
    assert waiting(bench) == {started, other} == {ask(bench), ask(bench)}
    check(bench, bench.look())


def test_of_very_many_replicas_that_fit_nowhere_each_call_looks_at_some(bench: Bench) -> None:
    for number in range(300):
        replica(bench, number, requirements={"memory_mib": 5000})
    assert ask(bench) == ""
    assert bench.client.zcard(keys.UNSCHEDULABLE) == 100
    fits = replica(bench, 300)
    assert fits in {ask(bench) for _ in range(60)}


def test_broken_contents_stop_nobody(bench: Bench) -> None:
    waits = replica(bench, 1)
    bench.client.delete(keys.WAITING_REPLICAS)
    bench.client.set(keys.WAITING_REPLICAS, "nonsense")
    assert ask(bench) == ""
    bench.client.sadd(keys.WAITING_REPLICAS, "v-none-1", "j99", waits)
    assert ask(bench) == waits and not waiting(bench)
