"""Tests a runner's resources: leases get what their jobs require, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.store.work.lease_store import Claimed
from jobs.store.work.slots import JobFacts
from runner.gpus import Gpu
from runner.ledger import FOREIGN_SECONDS, TAKEN_SECONDS, Ledger, Resources


class Claims:
    """Fake GPU claims; `others` belong to another worker."""

    def __init__(self, *others: str) -> None:
        self.others, self.mine = set(others), set[str]()
        #: GPUs and priority of each claim.
        self.asked: list[tuple[str, ...]] = []

    def claim(self, gpus: Sequence[str], worker: str, priority: str = "") -> Claimed:
        held = not self.others & set(gpus)
        self.mine.update(gpus if held else ())
        self.asked.append((*gpus, priority))
        return Claimed(held=held, by="" if held else "worker")

    def give_up(self, gpus: Sequence[str], worker: str, priority: str = "") -> None:
        self.mine.difference_update(gpus)


def gpu(uuid: str, memory: int = 80_000, capability: str = "9.0") -> Gpu:
    return Gpu(uuid=uuid, index=0, name="H100", memory_mib=memory, compute_capability=capability)


GPUS = (gpu("GPU-a"), gpu("GPU-b"), gpu("GPU-c", 16_000, "7.5"))


def ledger(claims: Claims | None = None, *, foreign: Callable[[Gpu], str] = lambda gpu: "", **more: Any) -> Ledger:
    resources = {"slots": 4, "cpus": 4.0, "memory_mib": 1000, "gpus": GPUS, "host": "h", **more}
    return Ledger(Resources(**resources), claims or Claims(), "runner-1", foreign=foreign)


def lane(name: str) -> Any:
    return SimpleNamespace(name=name)


def facts(tenant: str = "default", job: str = "j", kind: str = "command", **needs: Any) -> JobFacts:
    return JobFacts(
        job_id=job,
        kind=kind,
        spec={"requirements": needs},
        queue="runner.high",
        total=1,
        expected_rate=1.0,
        nominal_rate=1.0,
        tenant=tenant,
        priority="high",
    )


#: Kinds that a runner computes.
KINDS = {"command": 1, "service": 2}


def replica(tenant: str = "default", **needs: Any) -> JobFacts:
    return facts(tenant, kind="service", **needs)


def test_a_job_that_says_nothing_counts_as_the_cpus_of_a_slot() -> None:
    room = ledger(cpus=8.0)
    assert room.take(lane("0"), facts())
    assert room.offer()["cpus"] == 6.0
    assert room.take(lane("1"), facts(cpus=5.5)) and not room.startable(KINDS, [lane("2")])
    assert not room.take(lane("2"), facts()), "half a CPU is left"
    room.give_back(lane("1"))
    assert room.startable(KINDS, [lane("2")]) and room.take(lane("2"), facts())


@pytest.mark.parametrize(
    "needs",
    [
        {"cpus": 5},
        {"memory_mib": 1001},
        {"gpus": 4},
        {"gpus": 3, "compute_capability": "8.0"},
        {"host": "other"},
        {"labels": ["fast"]},
        {"gpu_memory_mib": 90_000},
    ],
)
def test_what_there_is_not_is_not_taken(needs: dict[str, Any]) -> None:
    room = ledger()
    assert not room.take(lane("0"), facts(**needs))
    assert not room.running()


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("runner.ledger.time", found)
    return found


def test_gpus_are_claimed_all_or_none_and_others_are_not_offered_for_a_while(clock: Clock) -> None:
    claims = Claims("GPU-b")
    room = ledger(claims)
    assert not room.take(lane("0"), facts(gpus=2, compute_capability="9.0"))
    assert claims.asked == [("GPU-a", "GPU-b", "high")] and not claims.mine
    assert len(room.offer()["gpus"]) == 1
    assert room.take(lane("0"), facts(gpus=1))
    assert [each.uuid for each in room.gpus("0")] == ["GPU-c"]
    room.give_back(lane("0"))
    assert not claims.mine
    clock.now += TAKEN_SECONDS
    claims.others.clear()
    assert room.take(lane("0"), facts(gpus=3)) and claims.mine == {"GPU-a", "GPU-b", "GPU-c"}


def test_a_gpu_on_which_something_of_others_lies_is_not_offered(clock: Clock) -> None:
    claims, lies = Claims(), {"GPU-a": "processes outside the cluster are using it: 7"}
    room = ledger(claims, foreign=lambda one: lies.get(one.uuid, ""))
    assert not room.take(lane("0"), facts(gpus=1)) and not claims.mine
    assert len(room.offer()["gpus"]) == 2 and len(room.total()["gpus"]) == 2
    assert room.take(lane("0"), facts(gpus=1)) and claims.mine == {"GPU-b"}
    clock.now += FOREIGN_SECONDS
    lies.clear()
    assert room.take(lane("1"), facts(gpus=1)) and claims.mine == {"GPU-a", "GPU-b"}
    assert len(room.total()["gpus"]) == 3


def test_a_claim_that_another_worker_has_taken_is_said() -> None:
    claims = Claims()
    room = ledger(claims)
    assert room.take(lane("0"), facts(gpus=1))
    assert room.renew() == []
    claims.others.add("GPU-a")
    assert room.renew() == ["0"]


@pytest.mark.parametrize("isolated", [False, True])
def test_programs_of_two_tenants_run_at_once_only_where_slots_have_users(isolated: bool) -> None:
    room = ledger(isolated=isolated)
    assert room.take(lane("0"), facts("alice"))
    assert room.offer()["tenant"] == ("" if isolated else "alice")
    assert room.take(lane("1"), facts("bob")) is isolated
    room.give_back(lane("0"))
    room.give_back(lane("1"))
    assert room.offer()["tenant"] == "" and room.take(lane("1"), facts("bob"))


def test_whoever_waits_hears_of_more_room() -> None:
    freed: list[bool] = []
    room = Ledger(Resources(slots=1, cpus=1.0, memory_mib=1), Claims(), "r", freed=lambda: freed.append(True))
    assert room.take(lane("0"), facts())
    room.give_back(lane("0"))
    assert not freed, "its lane is not idle yet: who asked now would get nothing"
    room.announce()
    assert freed == [True]


# -- replicas of services ---------------------------------------------------------------------------------------------


def test_replicas_run_in_lanes_of_their_own_and_are_asked_for_when_every_slot_is_taken() -> None:
    room = ledger(slots=1, cpus=1.0, replicas=2)
    slot, first = lane("0"), lane("replica-0")
    assert [room.suits(one, kind) for one in (slot, first) for kind in KINDS] == [True, False, False, True]
    assert room.startable(KINDS, [slot, first]) == KINDS
    assert room.take(slot, facts())
    assert room.startable(KINDS, [first]) == {"service": 2} and not room.startable(KINDS, [])
    assert room.take(first, replica()) and room.startable(KINDS, [slot]) == {}
    room.give_back(slot)
    assert room.startable(KINDS, [slot]) == {"command": 1} and room.width([slot, first]) == 1


def test_replicas_take_memory_and_gpus_and_only_the_cpus_that_they_name() -> None:
    room = ledger(replicas=4)
    assert room.take(lane("replica-0"), replica(memory_mib=600, gpus=1))
    assert room.take(lane("replica-1"), replica(cpus=1))
    assert (room.offer()["cpus"], room.offer()["memory_mib"], len(room.offer()["gpus"])) == (3.0, 400, 2)
    for needs in ({"memory_mib": 401}, {"gpus": 3}, {"cpus": 3.5}):
        assert not room.take(lane("0"), facts(**needs)) and not room.take(lane("replica-2"), replica(**needs))
    assert room.take(lane("0"), facts(memory_mib=400, gpus=2, cpus=3))
    for one in ("0", "replica-0", "replica-1"):
        room.give_back(lane(one))
    assert (room.offer()["cpus"], room.offer()["memory_mib"], len(room.offer()["gpus"])) == (4.0, 1000, 3)


def test_what_programs_can_have_beside_replicas_is_told_apart_from_what_is_free() -> None:
    room = ledger(replicas=4)
    assert room.take(lane("replica-0"), replica("a", memory_mib=600, gpus=1)) and room.take(lane("0"), facts("a"))
    left = room.beside_replicas()
    assert (left["cpus"], left["memory_mib"], len(left["gpus"])) == (4.0, 400, 2)
    assert (left["tenant"], left["works_for"], left["replicas"]) == ("a", "a", 3)
    room.give_back(lane("replica-0"))
    left = room.beside_replicas()
    assert (left["memory_mib"], left["tenant"], left["works_for"], left["replicas"]) == (1000, "", "a", 4)


@pytest.mark.parametrize("isolated", [False, True])
def test_a_replica_of_one_tenant_keeps_others_out_only_where_slots_have_no_users(isolated: bool) -> None:
    room = ledger(isolated=isolated, replicas=1)
    assert room.take(lane("replica-0"), replica("alice"))
    assert room.take(lane("0"), facts("bob")) is isolated
    assert room.beside_replicas()["tenant"] == ("" if isolated else "alice")


def test_whoever_waits_hears_when_a_gpu_is_offered_again(clock: Clock) -> None:
    freed: list[bool] = []
    room = Ledger(
        Resources(slots=1, cpus=1.0, memory_mib=1, gpus=GPUS), Claims("GPU-a"), "r", freed=lambda: freed.append(True)
    )
    assert not room.take(lane("0"), facts(gpus=1)) and room.renew() == []
    clock.now += TAKEN_SECONDS
    assert not freed
    room.renew()
    room.renew()
    assert freed == [True] and len(room.offer()["gpus"]) == 3
