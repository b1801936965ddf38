"""Tests runners reserved for programs that wait for room: which, what else they start, and how it ends."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import pytest

from jobs import queues
from jobs.models import Device
from jobs.store import keys
from jobs.store.work.leases import Grant
from jobs.store.work.slots import Held, Taken
from tests.contract.lease_invariants import check
from tests.contract.lease_model import Bench

RUNNER = queues.for_worker(Device.RUNNER)
LARGE = {"cpus": 4}


class Runner:
    """A runner that offers its unleased CPUs and GPUs, with one slot per CPU."""

    def __init__(
        self, bench: Bench, name: str = "runner-1", cpus: int = 4, gpus: int = 0, isolation: str = "uid"
    ) -> None:
        self.bench, self.name, self.cpus, self.isolation = bench, name, cpus, isolation
        gpu = {"memory_mib": 40_000, "compute_capability": "9.0"}
        self.total = {"cpus": cpus, "memory_mib": 8000, "gpus": [gpu] * gpus, "host": name, "labels": []}
        #: Requirements and tenant of each of its leases; and the leases of replicas of services, which take no slot.
        self.leases: dict[str, tuple[Mapping[str, Any], str]] = {}
        self.replicas: dict[str, tuple[Mapping[str, Any], str]] = {}
        self.born = "1"
        self.beat()

    def beat(self, **more: str) -> None:
        row: dict[str, Any] = {
            "device": "runner",
            "lanes": self.cpus,
            "offer": json.dumps(self.total),
            "isolation": self.isolation,
            "kinds": '{"sum":1}',
            "cordoned": "",
            **more,
        }
        self.bench.store.fleet.heartbeat(self.name, self.born, row)
        for token in (*self.leases, *self.replicas):
            self.bench.beat(token)

    def offer(self) -> dict[str, Any]:
        both = [*self.leases.values(), *self.replicas.values()]
        gpus = self.total["gpus"][sum(needs.get("gpus", 0) for needs, _ in both) :]  # type: ignore[index]
        tenant = both[0][1] if both and self.isolation == "shared" else ""
        cpus = self.cpus - sum(needs.get("cpus", 1) for needs, _ in self.leases.values())
        cpus -= sum(needs.get("cpus", 0) for needs, _ in self.replicas.values())
        memory = self.total["memory_mib"] - sum(needs.get("memory_mib", 0) for needs, _ in both)
        return {**self.total, "cpus": cpus, "memory_mib": memory, "gpus": gpus, "tenant": tenant}

    def ask(self) -> str:
        """Return the job of one lease that it takes; empty for none."""
        offer = self.offer()
        if offer["cpus"] < 1 or len(self.leases) >= self.cpus:
            return ""
        return self._take(self.bench.next(self.name, RUNNER, offer=offer, kinds={"sum": 1}))

    def ask_for_replica(self) -> str:
        """Return the replica that it starts, even if no slot is free; empty if there is none."""
        return self._take(self.bench.next(self.name, RUNNER, offer=self.offer(), kinds={"sum": 1}, replicas=True))

    def _take(self, found: Held | Taken | str) -> str:
        if not isinstance(found, Held):
            return ""
        answer = self.bench.lease(found.job_id, 1, worker=self.name)
        self.bench.store.slots.leave(self.name)
        if not isinstance(answer, Grant):
            return ""
        fields = self.bench.job(found.job_id).fields
        taken = self.replicas if found.job_id.startswith("v-") else self.leases
        taken[answer.token] = (json.loads(fields.get("requirements", "{}")), fields["tenant"])
        return found.job_id

    def fill(self) -> list[str]:
        """Take as many leases as possible."""
        return list(iter(self.ask, ""))

    def end(self, count: int = 1) -> None:
        """Commit the oldest leases."""
        for token in list(self.leases)[:count]:
            del self.leases[token]
            self.bench.commit(token)


def submit(bench: Bench, total: int = 1, *, priority: str = "normal", **more: Any) -> str:
    return bench.submit(total, f"runner.{priority}", max_lease_seconds=36_000, **more)


def replica(bench: Bench, number: int = 1, **more: Any) -> str:
    """Submit a replica of a service, which never ends."""
    return submit(bench, job_id=f"v-aaa-{number}", **more)


def wait(bench: Bench, seconds: int, *runners: Runner) -> None:
    """Advance the clock, with heartbeats and sweeps."""
    for _ in range(seconds // 2):
        bench.advance(2000)
        for runner in runners:
            runner.beat()
        bench.sweep()
    check(bench, bench.look())


def kept(bench: Bench) -> dict[str, str]:
    """Return the runner reserved for each job."""
    return {job.decode(): text.decode().split("|")[0] for job, text in bench.client.hgetall(keys.RESERVED).items()}


def add_unschedulable(bench: Bench, *runners: Runner, **more: Any) -> str:
    """A large job that finds every runner busy with small units, and has waited for long."""
    flow = submit(bench, 1000, **more)
    for runner in runners:
        assert set(runner.fill()) == {flow}
    large = submit(bench, requirements=LARGE)
    go_on(bench, large, *runners)
    wait(bench, 62, *runners)
    return large


def go_on(bench: Bench, large: str, *runners: Runner) -> None:
    """Runners go on with small units until one has looked at a large job."""
    for at in range(10):
        if bench.client.zscore(keys.UNSCHEDULABLE, large) is not None:
            return
        runners[at % len(runners)].end()
        runners[at % len(runners)].fill()
    raise AssertionError("nobody has looked at it")


@pytest.mark.parametrize("reserve_seconds", [60.0, 0.0])
def test_a_large_job_starts_among_an_endless_flow_of_small_ones_only_by_a_reservation(
    bench: Bench, reserve_seconds: float
) -> None:
    """Small units of random length on three runners: without a reservation the large job never starts."""
    pick, runners = random.Random(4), [Runner(bench, f"runner-{at}") for at in range(3)]
    flow = submit(bench, 2000)
    for runner in runners:
        runner.fill()
    large, started = submit(bench, requirements=LARGE), -1
    for second in range(0, 160, 2):
        for runner in pick.sample(runners, 3):
            runner.end(pick.randint(0, 2))
            if large in runner.fill():
                started = second
            runner.beat()
        bench.advance(2000)
        bench.sweep(reserve_seconds=reserve_seconds)
        assert len(kept(bench)) <= 1
        if started >= 0:
            break
    check(bench, bench.look())
    assert (60 <= started < 100) if reserve_seconds else started == -1
    assert bench.job(flow).number("done") > 50 and not kept(bench)


def test_a_runner_is_kept_only_after_a_minute_and_others_go_on(bench: Bench) -> None:
    one, two = Runner(bench), Runner(bench, "runner-2")
    flow = submit(bench, 1000)
    assert one.fill() == two.fill() == [flow] * 4
    large = submit(bench, requirements=LARGE)
    go_on(bench, large, one, two)
    wait(bench, 58, one, two)
    assert not kept(bench)
    wait(bench, 4, one, two)
    assert kept(bench) == {large: "runner-1"}
    for runner in (one, two):
        runner.end()
    assert one.fill() == [] and two.fill() == [flow]
    one.end(3)
    assert one.fill() == [large]
    assert not kept(bench) and not bench.client.exists(keys.UNSCHEDULABLE)
    check(bench, bench.look())


@pytest.mark.parametrize(("seconds", "starts"), [(9, True), (11, False), (None, False)])
def test_what_ends_before_goes_in_between(bench: Bench, seconds: float | None, starts: bool) -> None:
    """The large job may start when the units that run are over by their timeouts."""
    runner = Runner(bench)
    long, short = submit(bench, 1, requirements={"cpus": 2}, unit_seconds=72.0), submit(bench, 1, unit_seconds=62.0)
    assert sorted(runner.fill()) == sorted([long, short])
    large = submit(bench, requirements=LARGE)
    assert runner.ask() == ""
    wait(bench, 62, runner)
    assert kept(bench) == {large: "runner-1"}
    runner.end(0)
    small = submit(bench, 1, unit_seconds=seconds)
    assert runner.fill() == ([small] if starts else [])


def test_a_lease_that_goes_in_between_has_no_more_units_than_there_is_time_for(bench: Bench) -> None:
    runner = Runner(bench)
    submit(bench, 1, requirements={"cpus": 2}, unit_seconds=72.0)
    runner.fill()
    submit(bench, requirements=LARGE)
    assert runner.ask() == ""
    wait(bench, 62, runner)
    units = submit(bench, 100, unit_seconds=3.0)
    assert bench.hold("runner-1", RUNNER, offer=runner.offer(), kinds={"sum": 1}) == units
    grant = bench.grant(units, 100, worker="runner-1")
    assert grant.hi - grant.lo == 3


def test_what_leaves_what_the_large_job_needs_starts_all_the_same(bench: Bench) -> None:
    runner = Runner(bench, cpus=8, gpus=2)
    first = submit(bench, 1, requirements={"gpus": 1})
    assert runner.fill() == [first]
    large = submit(bench, requirements={"gpus": 2, "cpus": 2})
    assert runner.ask() == ""
    wait(bench, 62, runner)
    assert kept(bench) == {large: "runner-1"}
    flow, other = submit(bench, 100), submit(bench, 1, requirements={"gpus": 1})
    assert runner.fill() == [flow] * 6, "two CPUs are for the large job, one of which the lease has that ends first"
    assert bench.job(other).state == "queued"


def test_what_fits_beside_the_large_job_starts_although_it_takes_what_that_waits_for(bench: Bench) -> None:
    runner = Runner(bench, cpus=8)
    first = submit(bench, requirements={"cpus": 4, "memory_mib": 4000})
    assert runner.fill() == [first]
    large = submit(bench, requirements={"cpus": 6, "memory_mib": 6000})
    assert not runner.ask()
    wait(bench, 62, runner)
    assert kept(bench) == {large: "runner-1"}
    fits = [submit(bench, requirements={"memory_mib": 1000}) for _ in range(3)]
    assert runner.fill() == fits[:2], "two CPUs and 2,000 MiB are left beside the large job"
    runner.end()
    assert runner.fill() == [large]
    runner.end(3)
    assert runner.fill() == fits[2:]


@pytest.mark.parametrize("how", ["cancel", "pause", "delete", "drain", "death", "cordon"])
def test_a_reservation_ends_with_its_reason(bench: Bench, how: str) -> None:
    one, two = Runner(bench), Runner(bench, "runner-2", cpus=2)
    large = add_unschedulable(bench, one)
    assert kept(bench) == {large: "runner-1"}
    if how in ("cancel", "pause"):
        getattr(bench.store.jobs, how)(large)
    elif how == "delete":
        bench.store.jobs.cancel(large)
        assert bench.store.jobs.delete(large)[0] == "ok"
    elif how == "drain":
        bench.store.fleet.drain("runner-1")
    elif how == "cordon":
        one.beat(cordoned="its disk is full")
    else:
        bench.advance(6000)
    two.beat()
    bench.sweep()
    assert not kept(bench) and not bench.client.hget(keys.worker("runner-1"), "reserved")
    if how in ("cancel", "pause", "delete"):
        one.end()
        assert one.fill()
    check(bench, bench.look())


def test_another_runner_is_kept_when_the_first_is_lost(bench: Bench) -> None:
    one, two = Runner(bench), Runner(bench, "runner-2")
    large = add_unschedulable(bench, one, two)
    [first] = kept(bench).values()
    left = two if first == "runner-1" else one
    bench.advance(6000)
    left.beat()
    bench.sweep()
    assert kept(bench) == {large: left.name}


def test_the_runner_that_has_room_first_is_kept(bench: Bench) -> None:
    slow, quick, endless = (Runner(bench, name) for name in ("a", "b", "c"))
    for runner, seconds in ((slow, 600.0), (quick, 90.0), (endless, None)):
        submit(bench, 1, requirements={"cpus": 2}, unit_seconds=seconds)
        assert runner.fill()
    large = submit(bench, requirements=LARGE)
    assert not slow.ask()
    wait(bench, 62, slow, quick, endless)
    assert kept(bench) == {large: "b"}


def test_a_runner_is_kept_for_one_job_and_the_more_urgent_comes_first(bench: Bench) -> None:
    runner = Runner(bench)
    submit(bench, 100)
    runner.fill()
    usual, high = submit(bench, requirements=LARGE), submit(bench, requirements=LARGE, priority="high")
    for job in (usual, high):
        go_on(bench, job, runner)
    wait(bench, 62, runner)
    assert kept(bench) == {high: "runner-1"}
    runner.end(4)
    assert runner.fill() == [high]
    runner.end()
    wait(bench, 10, runner)
    assert runner.ask() != high and not kept(bench), "others have their time first"
    assert bench.job(usual).state == "queued"


def test_two_large_jobs_and_two_runners_do_not_hold_each_other_up(bench: Bench) -> None:
    one, two = Runner(bench), Runner(bench, "runner-2")
    first = add_unschedulable(bench, one, two)
    second = submit(bench, requirements={"cpus": 3})
    go_on(bench, second, one, two)
    wait(bench, 62, one, two)
    assert sorted(kept(bench)) == sorted([first, second])
    assert sorted(kept(bench).values()) == ["runner-1", "runner-2"]
    for runner in (one, two):
        runner.end(4)
    assert {*one.fill(), *two.fill()} >= {first, second}


def test_higher_priorities_go_first_until_the_job_is_aged(bench: Bench) -> None:
    runner = Runner(bench)
    submit(bench, 100, priority="low")
    runner.fill()
    large = submit(bench, requirements=LARGE, priority="low")
    go_on(bench, large, runner)
    wait(bench, 62, runner)
    urgent = submit(bench, 1000, priority="high")
    runner.end()
    assert kept(bench) and runner.fill() == [urgent]
    wait(bench, 300, runner)
    runner.end()
    assert runner.fill() == []
    runner.end(3)
    assert runner.fill() == [large]


def test_a_tenant_that_is_kept_out_of_a_shared_runner_gets_its_turn(bench: Bench) -> None:
    runner = Runner(bench, isolation="shared")
    flow = submit(bench, 1000, tenant="a")
    runner.fill()
    other = submit(bench, 1, tenant="b")
    for _ in range(20):
        runner.end()
        assert runner.fill() == [flow]
    wait(bench, 62, runner)
    assert kept(bench) == {other: "runner-1"}
    runner.end(4)
    assert runner.ask() == other


def test_a_job_that_no_runner_can_ever_take_keeps_none(bench: Bench) -> None:
    runner = Runner(bench)
    submit(bench, requirements={"cpus": 64})
    assert not runner.ask()
    wait(bench, 130, runner)
    assert not kept(bench)


def test_jobs_that_waited_behind_start_after_the_large_one(bench: Bench) -> None:
    runner = Runner(bench)
    large = add_unschedulable(bench, runner)
    small = [submit(bench, 1) for _ in range(3)]
    runner.end()
    assert not runner.ask()
    runner.end(3)
    assert runner.fill() == [large]
    runner.end()
    assert set(runner.fill()) & set(small)


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_steps_delays_nothing_for_long(bench: Bench, step_ms: int) -> None:
    runner = Runner(bench)
    large = add_unschedulable(bench, runner)
    bench.advance(step_ms)
    runner.beat()
    for _ in range(20):
        bench.sweep()
        bench.advance(2000)
        runner.beat()
    wait(bench, 62, runner)
    assert kept(bench) == {large: "runner-1"}
    runner.leases.clear()
    for token in bench.look().jobs[large].leases:
        bench.commit(token)
    runner.end(4)
    assert runner.ask() == large


def test_a_reservation_that_nobody_looks_after_holds_nothing_up(bench: Bench) -> None:
    """As when no coordinator leads for some seconds."""
    runner = Runner(bench)
    add_unschedulable(bench, runner)
    runner.end()
    assert not runner.ask()
    bench.advance(6000)
    runner.beat()
    assert runner.ask()


def test_broken_reservations_stop_nobody(bench: Bench) -> None:
    runner = Runner(bench)
    large = add_unschedulable(bench, runner)
    bench.client.hset(keys.RESERVED, mapping={large: "nonsense", "gone": "runner-1|x"})
    bench.client.hset(keys.worker("runner-1"), "offer", "{")
    bench.sweep()
    assert not kept(bench)
    runner.end()
    assert runner.ask()
    for key in (keys.RESERVED, keys.UNSCHEDULABLE):
        bench.client.delete(key)
        bench.client.set(key, "nonsense")
    runner.beat()
    bench.sweep()
    runner.end()
    assert runner.ask()


# -- replicas of services, which never end ----------------------------------------------------------------------------


def test_no_runner_is_kept_where_a_job_would_wait_for_a_replica_of_another_tenant(bench: Bench) -> None:
    """Such a runner takes jobs of one tenant, and that tenant's programs go on."""
    runner = Runner(bench, isolation="shared")
    assert replica(bench, tenant="a") == runner.ask_for_replica()
    other, flow = submit(bench, tenant="b"), submit(bench, 1000, tenant="a")
    assert set(runner.fill()) == {flow}
    wait(bench, 130, runner)
    assert not kept(bench)
    runner.end()
    assert runner.fill() == [flow]
    for token in list(runner.replicas):
        bench.commit(token)
    runner.replicas.clear()
    runner.end(4)
    assert runner.ask() in (other, flow)


@pytest.mark.parametrize(("memory", "is_kept"), [(4000, True), (4001, False)])
def test_a_runner_is_kept_for_what_fits_beside_its_replicas_and_waits_for_programs_alone(
    bench: Bench, memory: int, is_kept: bool
) -> None:
    runner = Runner(bench)
    assert replica(bench, requirements={"memory_mib": 4000}) == runner.ask_for_replica()
    small = submit(bench, requirements={"memory_mib": 1000})
    assert runner.fill() == [small]
    large = submit(bench, requirements={"memory_mib": memory})
    assert not runner.ask()
    wait(bench, 62, runner)
    assert kept(bench) == ({large: "runner-1"} if is_kept else {})
    [place] = bench.store.job_reads.places([("runner.normal", "default", "sum", large)])
    assert place.kept_leases == int(is_kept)
    flow = submit(bench, requirements={"memory_mib": 500})
    assert runner.ask() == ("" if is_kept else flow)
    runner.end()
    assert runner.ask() == (large if is_kept else "")


def test_replicas_take_no_cpus_unless_they_name_some(bench: Bench) -> None:
    runner = Runner(bench)
    for number, needs in enumerate(({}, {"cpus": 1})):
        assert replica(bench, number, requirements=needs) == runner.ask_for_replica()
    flow, large = submit(bench, 100), submit(bench, requirements={"cpus": 3})
    assert set(runner.fill()) == {flow}
    go_on(bench, large, runner)
    wait(bench, 62, runner)
    assert kept(bench) == {large: "runner-1"}
    runner.end(3)
    assert runner.fill() == [large]


def test_a_reservation_ends_when_a_replica_of_a_higher_priority_takes_what_its_job_needs(bench: Bench) -> None:
    runner = Runner(bench)
    first = submit(bench, requirements={"memory_mib": 5000})
    assert runner.fill() == [first]
    large = submit(bench, requirements={"memory_mib": 8000})
    assert not runner.ask()
    wait(bench, 62, runner)
    assert kept(bench) == {large: "runner-1"}
    lower, higher = (
        replica(bench, at, requirements={"memory_mib": 1}, priority=name) for at, name in enumerate(("normal", "high"))
    )
    assert [runner.ask_for_replica(), runner.ask_for_replica()] == [higher, ""]
    wait(bench, 2, runner)
    assert not kept(bench)
    assert runner.ask_for_replica() == lower


def test_a_runner_is_kept_for_a_replica_until_programs_make_room(bench: Bench) -> None:
    runner = Runner(bench)
    flow = submit(bench, 100, requirements={"memory_mib": 2000})
    assert set(runner.fill()) == {flow}
    waits = replica(bench, requirements={"memory_mib": 6000})
    assert not runner.ask_for_replica()
    wait(bench, 62, runner)
    assert kept(bench) == {waits: "runner-1"}
    runner.end(3)
    assert runner.ask() == waits
    assert not kept(bench)


def test_a_runner_that_died_with_its_replica_is_kept_again(bench: Bench) -> None:
    runner = Runner(bench)
    assert replica(bench, requirements={"memory_mib": 6000}) == runner.ask_for_replica()
    large = submit(bench, requirements={"memory_mib": 8000})
    assert not runner.ask()
    wait(bench, 62, runner)
    assert not kept(bench)
    runner.replicas.clear()
    runner.born = "2"
    runner.beat()
    bench.store.jobs.cancel("v-aaa-1")
    assert runner.ask() == large
