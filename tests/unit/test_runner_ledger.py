"""Resources of a runner: leases get what their jobs require, or nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jobs.store.slots import Facts
from runner.gpus import Gpu
from runner.ledger import Ledger, Resources


class Claims:
    """Claims to GPUs; `others` are another worker's."""

    def __init__(self, *others: str) -> None:
        self.others, self.mine = set(others), set[str]()

    def claim(self, gpu: str, worker: str) -> bool:
        if gpu not in self.others:
            self.mine.add(gpu)
        return gpu not in self.others

    def give_up(self, gpu: str, worker: str) -> None:
        self.mine.discard(gpu)


def gpu(uuid: str, memory: int = 80_000, capability: str = "9.0") -> Gpu:
    return Gpu(uuid=uuid, index=0, name="H100", memory_mib=memory, compute_capability=capability)


GPUS = (gpu("GPU-a"), gpu("GPU-b"), gpu("GPU-c", 16_000, "7.5"))


def ledger(claims: Claims | None = None, **more: Any) -> Ledger:
    resources = {"slots": 4, "cpus": 4.0, "memory_mib": 1000, "gpus": GPUS, "host": "h", **more}
    return Ledger(Resources(**resources), claims or Claims(), "runner-1")


def lane(name: str) -> Any:
    return SimpleNamespace(name=name)


def facts(tenant: str = "default", job: str = "j", **needs: Any) -> Facts:
    return Facts(
        job_id=job, kind="command", spec={"requirements": needs}, queue="runner.normal", total=1, expected_rate=1.0,
        nominal_rate=1.0, tenant=tenant,
    )  # fmt: skip


def test_a_job_that_says_nothing_counts_as_the_cpus_of_a_slot() -> None:
    room = ledger(cpus=8.0)
    assert room.take(lane("0"), facts())
    assert room.offer()["cpus"] == 6.0
    assert room.take(lane("1"), facts(cpus=5.5)) and not room.open()
    assert not room.take(lane("2"), facts()), "half a CPU is left"
    room.give_back(lane("1"))
    assert room.open() and room.take(lane("2"), facts())


@pytest.mark.parametrize("needs", [
    {"cpus": 5}, {"memory_mib": 1001}, {"gpus": 4}, {"gpus": 3, "compute_capability": "8.0"}, {"host": "other"},
    {"labels": ["fast"]}, {"gpu_memory_mib": 90_000},
])  # fmt: skip
def test_what_there_is_not_is_not_taken(needs: dict[str, Any]) -> None:
    room = ledger()
    assert not room.take(lane("0"), facts(**needs))
    assert not room.running()


def test_gpus_are_claimed_all_or_none_and_others_are_not_offered_for_a_while() -> None:
    claims = Claims("GPU-b")
    room = ledger(claims)
    assert not room.take(lane("0"), facts(gpus=2, compute_capability="9.0"))
    assert not claims.mine, "GPU-a was given back"
    assert len(room.offer()["gpus"]) == 2
    assert room.take(lane("0"), facts(gpus=2))
    assert [each.uuid for each in room.gpus("0")] == ["GPU-a", "GPU-c"]
    assert claims.mine == {"GPU-a", "GPU-c"}
    room.give_back(lane("0"))
    assert not claims.mine


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
    room.give_back(lane("0"))
    assert not freed
    assert room.take(lane("0"), facts())
    room.give_back(lane("0"))
    assert freed == [True]
