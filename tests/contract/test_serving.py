"""Tests a worker's turns with a real Redis, directly and over the worker API, with lanes that die on request."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import redis

from jobs import queues
from jobs.errors import KernelFailed
from jobs.models import Device, Spec
from jobs.partial_reader import GatheredPartials
from jobs.store import Store, keys
from jobs.store.work import wakeups
from jobs.store.work.leases import Grant
from jobs.store.work.slots import JobFacts
from jobs.worker import execution
from jobs.worker import serving as serving_loop
from jobs.worker.execution import Computed, Derived, SmallJobResult, encode
from jobs.worker.free_capacity import LanesOnly
from jobs.worker.lanes import Lane, LaneDied, LanePool, Task
from jobs.worker.serving import Server
from tests.contract.api_transport import Reach, reaching
from tests.contract.lease_model import merge, new_job, total_of
from tests.integration.live import until


class FakeLane:
    """A fake lane that computes in steps of 10 ms; `die` kills it, and `healed` permits its repair."""

    def __init__(self, name: str) -> None:
        self.name, self.at = name, 0
        self.ready = True
        self.healed = threading.Event()
        self.computed: list[tuple[int, int]] = []
        self.derived: list[GatheredPartials] = []

    def die(self) -> None:
        self.ready = False

    def repair(self) -> None:
        assert self.healed.wait(120)
        self.ready = True

    def _check(self) -> None:
        time.sleep(0.01)
        if not self.ready:
            raise LaneDied(f"lane {self.name} was killed")

    def compute(self, task: Task) -> tuple[Computed, bytes]:
        lo, hi = task.grant.lo, task.grant.hi
        for _ in range(5):
            self._check()
        self.computed.append((lo, hi))
        return Computed(upto=hi, partial={}, seconds=0.05), encode(total_of(lo, hi))

    def compute_small(self, facts: Sequence[JobFacts], dropped: Callable[[], bool] = lambda: False) -> list[Any]:
        self._check()
        whole = [SmallJobResult(result=encode(total_of(0, fact.total)), marks="[]", seconds=0.01) for fact in facts]
        return list(whole)

    def derive(self, kind: str, spec: Spec, gathered: GatheredPartials) -> Derived:
        self._check()
        self.derived.append(gathered)
        texts = [gathered.accumulator, *gathered.parts]
        total = encode(merge(json.loads(text) for text in texts if text))
        return Derived(folded=total, result=total, marks="[]")


@pytest.fixture
def store(any_redis_url: str) -> Iterator[Store]:
    client = redis.Redis.from_url(any_redis_url)
    wakeups.create_wakeup_job(Store(client))
    yield Store(client)
    client.close()


@pytest.fixture(params=["redis", "api"])
def reach(request: pytest.FixtureRequest, any_redis_url: str, store: Store) -> Iterator[Reach]:
    """Return the store as workers reach it."""
    with reaching(request.param, any_redis_url, store) as found:
        yield found


@contextmanager
def serving(server: Server) -> Iterator[None]:
    """Serve on a separate thread, like an idle worker that calls NEXT again and again."""

    def go_on() -> None:
        while not server.stopping:
            server.serve("")
            time.sleep(0.01)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        server.stop()
        thread.join(60)
        server.settle_down()


def lanes_with_leases(store: Store, job: str) -> set[str]:
    leased = store.client.hvals(keys.job_lease(job))
    return {text.decode().rpartition(":")[2].rpartition("/")[2] for text in leased}


def state(store: Store, job: str) -> str:
    return (store.client.hget(keys.job(job), "state") or b"").decode()


def is_done(store: Store, job: str) -> bool:
    return state(store, job) == "done"


def test_a_lane_gets_no_lease_before_it_is_ready_again(store: Store, reach: Reach) -> None:
    """Its replacement takes seconds to warm up; meanwhile the range goes to the other lane."""
    sick, sound = FakeLane("0"), FakeLane("1")
    server = Server(reach("w"), "w", Device.CPU, [sick, sound], kinds={"sum": 1})
    store.jobs.submit([new_job("j", 10**9, "any.normal", estimate_ms=10**7)])
    with serving(server):
        until(lambda: lanes_with_leases(store, "j") == {"0", "1"})
        sick.die()
        until(lambda: int(store.client.hget("ct:outcomes", "crashed") or 0))
        before = len(sound.computed)
        until(lambda: len(sound.computed) > before + 5)
        assert "0" not in lanes_with_leases(store, "j") and server.busy() == 1
        assert store.client.hget("ct:outcomes", "crashed") == b"1"
        sick.healed.set()
        until(lambda: "0" in lanes_with_leases(store, "j"))


def test_a_worker_without_a_lane_gives_its_job_to_others_at_once(store: Store, reach: Reach) -> None:
    lane = FakeLane("0")
    store.jobs.submit([new_job("j", 10**9, "any.normal", estimate_ms=10**7)])
    with serving(Server(reach("w"), "w", Device.CPU, [lane], kinds={"sum": 1})):
        until(lambda: lanes_with_leases(store, "j") == {"0"})
        lane.die()
        until(lambda: store.client.zscore("ct:pending:any.normal", "j"))
        assert not store.client.hexists("ct:slotjob", "w") and not lanes_with_leases(store, "j")
        lane.healed.set()
        until(lambda: lanes_with_leases(store, "j") == {"0"})


def test_a_small_job_waits_for_a_lane_that_is_ready(store: Store, reach: Reach) -> None:
    lane = FakeLane("0")
    lane.die()
    store.jobs.submit([new_job("j", 10, "any.normal", small=True, estimate_ms=10)])
    with serving(Server(reach("w"), "w", Device.CPU, [lane], kinds={"sum": 1})):
        until(lambda: not lane.ready)
        time.sleep(0.1)
        assert state(store, "j") == "queued"
        lane.healed.set()
        until(lambda: state(store, "j") == "done")
    assert not store.client.hexists("ct:outcomes", "crashed")


def test_a_small_job_that_is_cancelled_waits_neither_for_its_lane_nor_for_its_lease_to_expire(
    store: Store, reach: Reach
) -> None:
    """A lane that compiles a kernel looks at no flag: the cancel took until the lease expired."""
    lane, ended = FakeLane("0"), threading.Event()
    lane.healed.set()
    computes = lane.compute_small

    def compute_small(facts: Sequence[JobFacts], dropped: Callable[[], bool] = lambda: False) -> list[Any]:
        while not ended.wait(0.01):
            if dropped():
                lane.die()
                raise LaneDied("nobody wants it")
        return computes(facts)

    lane.compute_small = compute_small  # type: ignore[method-assign]
    server = Server(reach("w"), "w", Device.CPU, [lane], kinds={"sum": 1})
    jobs = ["a", "b", "c"]
    store.jobs.submit([new_job(job, 10, "any.normal", small=True, estimate_ms=10) for job in jobs[:2]])

    def cancel(job: str) -> None:
        until(lambda: any(task.facts.job_id == job for task in server.tasks.values()))
        assert store.jobs.cancel(job) == ["ok", "cancelling"]
        for task in [task for task in server.tasks.values() if task.facts.job_id == job]:
            task.ask_to_stop(2)  # as a beat does, whose answer is 0 from now on
        until(lambda: state(store, job) == "cancelled")

    with serving(server):
        cancel("a")
        assert not ended.is_set() and state(store, "b") == "running", "the lane is still at work on the other"
        ended.set()
        until(lambda: state(store, "b") == "done")
        assert state(store, "a") == "cancelled", "its result came late"
        ended.clear()
        store.jobs.submit([new_job("c", 10, "any.normal", small=True, estimate_ms=10)])
        cancel("c")
        until(lambda: lane in server.pool.idle and lane.ready)
    assert not store.client.hexists("ct:outcomes", "crashed")


def test_of_small_jobs_that_are_dropped_the_one_that_a_lane_is_at_counts_as_crashed(store: Store, reach: Reach) -> None:
    """A job that never ends was handed back untouched at its longest lease, again and again."""
    lane = FakeLane("0")
    lane.healed.set()
    computes, hangs = lane.compute_small, [True]

    def compute_small(facts: Sequence[JobFacts], dropped: Callable[[], bool] = lambda: False) -> list[Any]:
        lane.at = min(1, len(facts) - 1)
        while hangs:
            if dropped():
                hangs.clear()
                lane.die()
                raise LaneDied("nobody wants it")
            time.sleep(0.01)
        return computes(facts)

    lane.compute_small = compute_small  # type: ignore[method-assign]
    server = Server(reach("w"), "w", Device.CPU, [lane], kinds={"sum": 1})
    jobs = ["a", "b", "c"]
    store.jobs.submit([new_job(job, 10, "any.normal", small=True, estimate_ms=10) for job in jobs])
    with serving(server):
        until(lambda: len(server.tasks) == 3)
        for task in list(server.tasks.values()):
            task.ask_to_stop(2)  # as a beat does of a lease that is older than its kind allows
        until(lambda: all(state(store, job) == "done" for job in jobs))
    assert store.client.hget("ct:outcomes", "crashed") == b"1"
    assert store.client.hget("ct:outcomes", "released") == b"2"


def test_a_lane_that_dies_over_small_jobs_is_held_against_the_one_that_it_was_at(store: Store, reach: Reach) -> None:
    lane = FakeLane("0")
    lane.healed.set()
    computes, alive = lane.compute_small, [False]

    def compute_small(facts: Sequence[JobFacts], dropped: Callable[[], bool] = lambda: False) -> list[Any]:
        if alive:
            alive.clear()
            lane.at = 2
            lane.die()
            raise LaneDied("killed")
        return computes(facts)

    lane.compute_small = compute_small  # type: ignore[method-assign]
    jobs = ["a", "b", "c", "d"]
    store.jobs.submit([new_job(job, 10, "any.normal", small=True, estimate_ms=10) for job in jobs])
    with serving(Server(reach("w"), "w", Device.CPU, [lane], kinds={"sum": 1})):
        until(lambda: all(state(store, job) == "done" for job in jobs))
    assert store.client.hget("ct:outcomes", "crashed") == b"1"
    assert store.client.hget("ct:outcomes", "released") == b"3"


def test_a_worker_that_is_told_to_stop_while_a_lane_is_mended_ends(store: Store, reach: Reach) -> None:
    sick, sound = FakeLane("0"), FakeLane("1")
    server = Server(reach("w"), "w", Device.CPU, [sick, sound], kinds={"sum": 1})
    with serving(server):
        sick.die()
        until(lambda: not server.pool.idle or sick not in server.pool.idle)
    assert server.busy() == 0
    sick.healed.set()


def test_a_result_is_derived_by_a_lane_and_not_beside_the_heartbeats(store: Store, reach: Reach) -> None:
    """Reading and writing tens of megabytes of JSON holds the parent's lock for seconds."""
    lane = FakeLane("0")
    store.jobs.submit([new_job("j", 10, "any.normal", estimate_ms=10**4)])
    with serving(Server(reach("w"), "w", Device.CPU, [lane], kinds={"sum": 1})):
        until(lambda: state(store, "j") == "done")
    assert json.loads(store.client.get(keys.job_result("j")) or "") == total_of(0, 10)
    assert len(lane.derived) == 1


def test_a_job_whose_lane_dies_over_its_result_is_finished_by_another(
    store: Store, reach: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    sick, sound = FakeLane("0"), FakeLane("1")
    server = Server(reach("w"), "w", Device.CPU, [sick], kinds={"sum": 1})

    def derive(*_: Any) -> Derived:
        sick.die()
        raise LaneDied("killed")

    monkeypatch.setattr(sick, "derive", derive)
    store.jobs.submit([new_job("j", 10, "any.normal", estimate_ms=10**4)])
    with serving(server):
        until(lambda: not sick.ready)
        with serving(Server(reach("v"), "v", Device.CPU, [sound], kinds={"sum": 1})):
            until(lambda: state(store, "j") == "done")
        sick.healed.set()
    assert len(sound.derived) == 1
    assert json.loads(store.client.get(keys.job_result("j")) or "") == total_of(0, 10)


def test_a_job_whose_result_kills_every_lane_fails(store: Store, reach: Reach, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stayed finishing for ever, where nobody can cancel it, and wore the fleet's lanes out."""
    lane = FakeLane("0")
    lane.healed.set()

    def derive(*_: Any) -> Derived:
        lane.die()
        raise LaneDied("killed over a result")

    monkeypatch.setattr(lane, "derive", derive)
    store.jobs.submit([new_job("j", 10, "any.normal", estimate_ms=10**4)])
    with serving(Server(reach("w"), "w", Device.CPU, [lane], kinds={"sum": 1})):
        until(lambda: state(store, "j") == "failed")
    assert b"killed over a result" in (store.client.hget(keys.job("j"), "error") or b"")
    assert store.jobs.retry("j", 1) == ["ok", "finishing"]


def test_a_result_is_derived_by_one_lane_of_a_worker(store: Store, reach: Reach) -> None:
    """Each that asked at once got the answer finishing, and held a copy of all there is."""
    store.jobs.submit([new_job("j", 10, "any.normal", estimate_ms=10**4)])
    store.slots.next("v", queues.ALL)
    grant = store.leases.lease("j", "t", want=10, worker="v")
    assert isinstance(grant, Grant)
    store.leases.commit("j", "t", 10, encode(total_of(0, 10)), ms=1, worker="v", device="cpu")
    store.slots.leave("v")
    lanes, mine = [FakeLane(str(number)) for number in range(8)], reach("w")
    lease = mine.leases.lease

    def answer_late(*given: Any, **more: Any) -> Any:
        answer = lease(*given, **more)
        time.sleep(0.1)
        return answer

    mine.leases.lease = answer_late  # type: ignore[method-assign]
    with serving(Server(mine, "w", Device.CPU, lanes, kinds={"sum": 1})):
        until(lambda: state(store, "j") == "done")
    assert sum(len(lane.derived) for lane in lanes) == 1


def test_a_worker_that_is_told_to_stop_while_it_has_no_lane_ends(store: Store, reach: Reach) -> None:
    lane = FakeLane("0")
    lane.die()
    server = Server(reach("w"), "w", Device.CPU, [lane], kinds={"sum": 1})
    thread = threading.Thread(target=server.serve, args=("",), daemon=True)
    thread.start()
    until(lambda: lane in server.pool.repairing)
    server.stop()
    thread.join(40)
    over = not thread.is_alive()
    lane.healed.set()
    assert over


def test_a_worker_that_is_told_to_stop_while_a_result_is_derived_waits_no_minute(
    store: Store, reach: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane, go_on, began = FakeLane("0"), threading.Event(), threading.Event()

    def derive(*_: Any) -> Derived:
        began.set()
        go_on.wait(120)
        raise LaneDied("it was told to stop")

    monkeypatch.setattr(lane, "derive", derive)
    store.jobs.submit([new_job("j", 10, "any.normal", estimate_ms=10**4)])
    server = Server(reach("w"), "w", Device.CPU, [lane], kinds={"sum": 1})
    thread = threading.Thread(target=server.serve, args=("",), daemon=True)
    thread.start()
    assert began.wait(60)
    server.stop()
    thread.join(40)
    over = not thread.is_alive()
    go_on.set()
    server.settle_down()
    assert over and state(store, "j") == "finishing"


def test_a_lane_that_cannot_be_mended_for_any_reason_is_tried_again(store: Store, reach: Reach) -> None:
    """An error that nobody thought of ended the thread, and the lane was away for good."""
    lane = FakeLane("0")
    lane.die()
    lane.healed.set()
    errors, repair = [AttributeError("no process"), RuntimeError("can't start new thread")], lane.repair

    def fail_at_first() -> None:
        if errors:
            raise errors.pop()
        repair()

    lane.repair = fail_at_first  # type: ignore[method-assign]
    server = Server(reach("w"), "w", Device.CPU, [lane], kinds={"sum": 1})
    server.pool.idle, server.pool.repairing = [], [lane]
    server.pool.repair(lane)
    assert lane.ready and server.pool.idle == [lane] and not server.pool.repairing


@pytest.mark.parametrize("count", [40, 300])
def test_parts_that_cannot_be_merged_fail_their_job(store: Store, count: int) -> None:
    """With more of them than are read at once it stayed finishing for ever."""
    store.jobs.submit([new_job("j", count, "any.normal", kind="collatz")])
    store.slots.next("v", queues.ALL)
    for number in range(count):
        store.leases.lease("j", f"t{number}", want=1, worker="v")
        store.leases.commit("j", f"t{number}", number + 1, b"{", ms=1, worker="v", device="cpu")
    assert state(store, "j") == "finishing"
    with pytest.raises(KernelFailed):
        execution.fold(store, "j", "collatz")
    assert not execution.finish(store, "j", "collatz", {})
    assert state(store, "j") == "failed"


def test_the_next_job_starts_at_once_when_all_units_of_a_job_are_leased(
    store: Store, reach: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_loop, "POLL_IDLE_SECONDS", 60.0)
    lanes = [Held("0"), Held("1")]
    with serving(Server(reach("w"), "w", Device.CPU, lanes, kinds={"sum": 1})):
        for job in ("a", "b"):
            store.jobs.submit([new_job(job, 1, "cpu.normal")])
        try:
            until(lambda: lanes_with_leases(store, "a") and lanes_with_leases(store, "b"), 20)
        finally:
            for lane in lanes:
                lane.go_on.set()


# -- lanes for some kinds ---------------------------------------------------------------------------------------------


class Held(FakeLane):
    """A lane that computes nothing until the test releases it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.go_on = threading.Event()

    def compute(self, task: Task) -> tuple[Computed, bytes]:
        assert self.go_on.wait(60)
        return super().compute(task)


class Divided(LanesOnly):
    """Room of a worker with one lane per kind, named after the kind."""

    def startable(self, kinds: Mapping[str, int], idle: Sequence[Lane]) -> Mapping[str, int]:
        return {kind: version for kind, version in kinds.items() if any(self.suits(lane, kind) for lane in idle)}

    def suits(self, lane: Lane, kind: str) -> bool:
        return lane.name == kind


def test_a_lane_computes_its_own_kind_while_the_one_of_another_kind_is_busy(reach: Reach, store: Store) -> None:
    long = Held("long")
    lanes, kinds = [long, FakeLane("short")], {"long": 1, "short": 1}
    server = Server(reach("w"), "w", Device.CPU, lanes, kinds=kinds, room=Divided())
    with serving(server):
        for job, kind in (("a", "long"), ("b", "long"), ("c", "short"), ("d", "short")):
            store.jobs.submit([new_job(job, 1, "cpu.normal", kind=kind)])
            if job == "a":
                until(lambda: lanes_with_leases(store, "a") == {"long"})
        for job in ("c", "d"):
            until(partial(is_done, store, job))
        assert [state(store, job) for job in ("a", "b")] == ["running", "queued"]
        long.go_on.set()
        for job in ("a", "b"):
            until(partial(is_done, store, job))


def test_a_job_that_came_when_the_only_idle_lane_had_failed_goes_to_another_worker_at_once(
    reach: Reach, store: Store
) -> None:
    """The other lane is at work for long, so that it takes no job meanwhile."""
    busy, idle = Held("busy"), FakeLane("idle")
    first = reach("w")
    server = Server(first, "w", Device.CPU, [idle, busy], kinds={"sum": 1})
    ask = first.slots.next

    def fail_while_asking(*arguments: Any, **more: Any) -> Any:
        found = ask(*arguments, **more)
        if lanes_with_leases(store, "long") and not isinstance(found, str):
            idle.die()
        return found

    first.slots.next = fail_while_asking  # type: ignore[method-assign]
    with serving(server):
        store.jobs.submit([new_job("long", 1, "cpu.normal", max_lease_seconds=600.0)])
        until(lambda: lanes_with_leases(store, "long") == {"busy"})
        store.jobs.submit([new_job("next", 1, "cpu.normal")])
        until(lambda: not idle.ready)
        began = time.monotonic()
        with serving(Server(reach("x"), "x", Device.CPU, [FakeLane("x")], kinds={"sum": 1})):
            until(lambda: state(store, "next") == "done")
        assert time.monotonic() - began < 10
        idle.healed.set()
        busy.go_on.set()


@pytest.mark.parametrize("how", ["given back", "repaired"])
def test_who_waits_for_work_hears_of_a_lane_once_it_is_idle(how: str) -> None:
    """If the worker requested work earlier, it would name only the kinds of the other lanes."""
    idle: list[int] = []
    lane = FakeLane("0")
    pool = LanePool([lane], lambda: idle.append(len(pool.idle)))
    assert pool.borrow(lambda _: False) is None and pool.borrow() is lane
    if how == "repaired":
        lane.die()
        pool.give_back(lane)
        assert idle == [0] and pool.all_repairing()
        idle.clear()
        lane.healed.set()
    else:
        pool.give_back(lane)
    until(lambda: idle == [1])
