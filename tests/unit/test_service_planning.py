"""Tests the planning of a service: as many replicas as desired, despite deaths, and as few gaps as possible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.services import planning
from coordinator.services.planning import (
    LONGEST_WAIT_MS,
    SETTLE_MS,
    SURGE_MS,
    WELL_MS,
    Cancel,
    End,
    Forget,
    Recover,
    Retire,
    Start,
    Submit,
)
from jobs.store.services import Replica, Report, Service, new_replica

ROUND_MS = 1000


def service(**more: object) -> Service:
    return replace(
        Service(service_id="a", tenant="default", name="chat", engine="http", replicas=2),
        **more,  # type: ignore[arg-type]
    )


def report(state: str, since: int, worker: str = "runner-1") -> Report:
    return Report(state=state, why="", since=since, address="127.0.0.1", port=1, key="k" * 16, worker=worker, host="h")


@dataclass
class World:
    """A cluster with room for some replicas, whose clock advances with each round."""

    service: Service
    room: int = 100
    now: int = 1_000_000
    replicas: dict[int, Replica] = field(default_factory=dict)
    begun_at: list[int] = field(default_factory=list)
    died: int = 0
    leaving: frozenset[str] = frozenset()
    #: Number of rounds until a running replica is ready.
    slow: int = 0
    forgotten: bool = False

    def round(self) -> None:
        self.now += ROUND_MS
        self._run()
        for step in planning.plan(
            self.service, list(self.replicas.values()), self.now, drain_ms=20_000, leaving=self.leaving
        ):
            self._take(step)

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.round()

    def _run(self) -> None:
        """Start queued jobs if there is room, make running ones ready, and finish cancelled ones."""
        running = sum(each.job_state in ("running", "cancelling") for each in self.replicas.values())
        for number, each in sorted(self.replicas.items()):
            if each.job_state == "queued" and running < self.room:
                running += 1
                self.replicas[number] = replace(each, job_state="running", report=self._said("starting"))
            elif each.job_state == "running" and each.report and each.report.state == "starting":
                if self.now - each.report.since >= self.slow * ROUND_MS:
                    self.replicas[number] = replace(each, report=replace(each.report, state="ready", since=self.now))
            elif each.job_state == "cancelling":
                self.replicas[number] = replace(each, job_state="cancelled", report=None)

    def _said(self, state: str) -> Report:
        return report(state, self.now, "runner-2" if self.leaving else "runner-1")

    def _take(self, step: planning.Step) -> None:
        if isinstance(step, Start):
            if step.number == self.service.next:
                self.begun_at.append(self.now)
                new = new_replica(self.service, step.number, self.now)
                self.replicas[step.number] = replace(new, job_state="queued")
                self.service = replace(self.service, next=step.number + 1)
        elif isinstance(step, Retire):
            old = self.replicas[step.replica.number]
            self.replicas[old.number] = replace(old, stopping=old.stopping or self.now)
        elif isinstance(step, Cancel):
            old = self.replicas[step.replica.number]
            state = "cancelled" if old.job_state == "queued" else "cancelling"
            self.replicas[old.number] = replace(old, job_state=state)
        elif isinstance(step, End):
            del self.replicas[step.replica.number]
            if step.died:
                failures = self.service.failures + 1
                retry_at = self.now + planning.wait_ms(failures)
                self.service = replace(self.service, failures=failures, retry_at=retry_at)
        elif isinstance(step, Recover):
            self.service = replace(self.service, failures=0)
        elif isinstance(step, Forget):
            self.forgotten = True
        else:
            assert isinstance(step, Submit)
            old = self.replicas[step.replica.number]
            self.replicas[old.number] = replace(old, job_state="queued")

    @property
    def ready(self) -> list[int]:
        return [number for number, each in sorted(self.replicas.items()) if planning.is_ready(each)]

    def kill(self, number: int) -> None:
        self.died += 1
        self.replicas[number] = replace(self.replicas[number], job_state="failed", report=None)


def test_as_many_as_are_wanted_begin_and_stay() -> None:
    world = World(service(replicas=3))
    world.rounds(5)
    assert world.ready == [1, 2, 3]
    world.rounds(50)
    assert world.ready == [1, 2, 3] and len(world.begun_at) == 3


def test_a_replica_that_dies_a_hundred_times_in_a_row_waits_longer_each_time_and_is_never_given_up() -> None:
    """Other services are not affected, and the failures are forgotten after ten minutes without one."""
    world = World(service(replicas=2))
    world.rounds(3)
    [stays, dies] = world.ready
    waits = []
    for _ in range(100):
        world.kill(dies)
        at = world.now
        while len(world.ready) < 2:
            world.round()
            assert stays in world.ready
        dies = max(world.ready)
        waits.append(world.begun_at[-1] - at)
        # What stays is old enough for the row to be forgotten only while nothing dies: keep it young.
        keeps = world.replicas[stays]
        world.replicas[stays] = replace(keeps, report=report("ready", world.now))
    assert waits[:4] == sorted(waits[:4]) and waits[0] <= 3 * ROUND_MS
    assert all(LONGEST_WAIT_MS <= wait <= LONGEST_WAIT_MS + 2 * ROUND_MS for wait in waits[12:])
    assert world.service.failures == 100 and world.begun_at[-1] > 0
    world.rounds(WELL_MS // ROUND_MS + 2)
    assert world.service.failures == 0
    world.kill(max(world.ready))
    at = world.now
    world.rounds(4)
    assert len(world.ready) == 2 and world.begun_at[-1] - at <= 3 * ROUND_MS


def test_several_that_die_at_once_count_once() -> None:
    world = World(service(replicas=8))
    world.rounds(3)
    before = world.service
    for number in world.ready[:6]:
        world.kill(number)
    steps = planning.plan(before, list(world.replicas.values()), world.now)
    assert sum(isinstance(step, End) for step in steps) == 6
    assert not any(isinstance(step, Start) for step in steps), "they wait"


def test_scaling_down_ends_those_that_are_not_ready_and_then_the_youngest() -> None:
    world = World(service(replicas=3))
    world.rounds(4)
    world.replicas[1] = replace(world.replicas[1], report=report("unhealthy", world.now))
    world.service = replace(world.service, replicas=1)
    world.round()
    assert [each.number for each in world.replicas.values() if each.stopping] == [1, 3]
    world.rounds(6)
    assert world.ready == [2] and list(world.replicas) == [2]


@pytest.mark.parametrize("busy", [0, 3])
def test_a_replica_that_is_to_end_gets_time_for_its_requests(busy: int) -> None:
    world = World(service(replicas=1))
    world.rounds(3)
    world.service = replace(world.service, stopped=True)
    world.round()
    began = world.now
    world.replicas[1] = replace(world.replicas[1], busy=busy)
    while world.replicas:
        world.round()
    took = world.now - began
    assert (took >= 20_000) if busy else (SETTLE_MS <= took < 20_000)
    world.rounds(30)
    assert not world.replicas


@pytest.mark.parametrize("wanted", [1, 2, 5])
def test_a_restart_with_room_leaves_as_many_ready_as_are_wanted(wanted: int) -> None:
    world = World(service(replicas=wanted), slow=3)
    world.rounds(8)
    old = set(world.ready)
    world.service = replace(world.service, generation=2)
    for _ in range(60):
        world.round()
        assert len(world.ready) >= wanted
        assert len([each for each in world.replicas.values() if not each.stopping]) <= wanted + 1
    assert len(world.ready) == wanted and not old & set(world.ready)


@pytest.mark.parametrize("wanted", [1, 2, 5])
def test_a_restart_without_room_replaces_one_after_the_other(wanted: int) -> None:
    world = World(service(replicas=wanted), room=wanted)
    world.rounds(8)
    old = set(world.ready)
    world.service = replace(world.service, generation=2)
    for _ in range(wanted * (SURGE_MS // ROUND_MS + 12)):
        world.round()
        assert len(world.ready) >= wanted - 1
    assert len(world.ready) == wanted and not old & set(world.ready)


def test_a_restart_whose_new_replicas_die_leaves_the_old_ones() -> None:
    world = World(service(replicas=2))
    world.rounds(4)
    old = world.ready
    world.service = replace(world.service, generation=2)
    for _ in range(200):
        world.round()
        for number, each in list(world.replicas.items()):
            if each.generation == 2 and each.job_state == "running":
                world.kill(number)
        assert world.ready == old
    assert world.died > 3


def test_a_replica_on_a_worker_that_leaves_is_replaced_first() -> None:
    world = World(service(replicas=1))
    world.rounds(3)
    [old] = world.ready
    world.leaving = frozenset({"runner-1"})
    world.slow = 2
    seen = []
    for _ in range(6):
        world.round()
        seen.append(len(world.ready))
    world.rounds(6)
    assert min(seen) == 1 and world.ready != [old]


def test_what_was_begun_and_not_submitted_is_submitted_by_the_next_leader() -> None:
    lost = new_replica(service(next=2), 1, 5)
    assert Submit(replica=lost) in planning.plan(service(next=2), [lost], 10)
    stopping = replace(lost, stopping=7)
    assert planning.plan(service(next=2, stopped=True), [stopping], 10) == [End(replica=stopping, died=False)]


def test_a_deleted_service_ends_its_replicas_and_goes() -> None:
    world = World(service())
    world.rounds(3)
    world.service = replace(world.service, stopped=True, deleted=True)
    world.rounds(8)
    assert world.forgotten and not world.replicas


def test_a_replica_that_was_cancelled_by_somebody_else_has_died() -> None:
    world = World(service(replicas=1))
    world.rounds(3)
    world.replicas[1] = replace(world.replicas[1], job_state="cancelled")
    world.rounds(5)
    assert world.ready == [2] and world.service.failures == 1


_EVENTS: dict[str, Callable[[World, int], None]] = {
    "nothing": lambda world, number: None,
    "kill": lambda world, number: world.kill(world.ready[number % len(world.ready)]) if world.ready else None,
    "scale": lambda world, number: _set(world, replicas=number % 5, stopped=False),
    "restart": lambda world, number: _set(world, generation=world.service.generation + 1, stopped=False),
    "stop": lambda world, number: _set(world, stopped=True),
    "room": lambda world, number: setattr(world, "room", 1 + number % 6),
}


def _set(world: World, **fields: object) -> None:
    world.service = replace(world.service, **fields)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(_EVENTS)), st.integers(0, 30)), max_size=25))
def test_whatever_happens_there_are_as_many_as_are_wanted_in_the_end(events: list[tuple[str, int]]) -> None:
    world = World(service())
    for name, number in events:
        _EVENTS[name](world, number)
        world.rounds(1 + number % 4)
        assert len([each for each in world.replicas.values() if not each.stopping]) <= 6
    world.room = 100
    world.rounds(LONGEST_WAIT_MS // ROUND_MS + 60)
    wanted = 0 if world.service.stopped else world.service.replicas
    assert len(world.ready) == len(world.replicas) == wanted
    assert all(each.generation == world.service.generation for each in world.replicas.values())
