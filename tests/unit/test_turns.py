"""Tests lanes that wait for a job whose ranges are all leased."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.models import Device
from jobs.store.work.slots import JobFacts
from jobs.worker import lane_loop
from jobs.worker.lane_loop import Slot, Turns
from jobs.worker.lanes import LanePool
from jobs.worker.state import WorkerState
from jobs.worker.telemetry.meter import Meter

FACTS = JobFacts(job_id="j", kind="k", spec={}, queue="runner.normal", total=1, expected_rate=1, nominal_rate=1)


class Lane:
    ready = True

    def __init__(self, name: str) -> None:
        self.name = name


@pytest.fixture
def pool() -> LanePool:
    return LanePool([Lane("0"), Lane("1")])  # type: ignore[list-item]


def test_a_preferred_lane_is_lent_first(pool: LanePool) -> None:
    names = [lane.name for _ in pool.lanes if (lane := pool.borrow(prefers=lambda lane: lane.name == "0"))]
    assert names == ["0", "1"]
    for lane in pool.lanes:
        pool.give_back(lane)
    assert (last := pool.borrow()) and last.name == "1"


def waiting(pool: LanePool) -> Turns:
    """Return turns of a worker for which all ranges of the job are leased and nothing else is waiting."""
    leases = SimpleNamespace(lease=lambda *_, **__: "wait")
    store: Any = SimpleNamespace(leases=leases, slots=SimpleNamespace(waiting=lambda _: [0]))
    return Turns(WorkerState(store, "w", Device.RUNNER, (), pool, Meter()))


def test_a_lane_that_lingers_is_free_once_the_job_has_ended(pool: LanePool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that the finished job released would otherwise wait for the lane."""
    monkeypatch.setattr(lane_loop, "FIRST_LINGER_SECONDS", 600.0)
    monkeypatch.setattr(lane_loop, "LINGER_SECONDS", 600.0)
    last, other = pool.borrow(), pool.borrow()
    assert last and other
    slot = Slot(FACTS, ())
    lingering = threading.Thread(target=waiting(pool).take, args=(other, slot), daemon=True)
    lingering.start()
    slot.close("finishing")
    pool.give_back(last)
    lingering.join(60)
    assert not lingering.is_alive() and pool.idle == [last, other]


def test_a_lane_asks_soon_at_first_and_then_rarely(pool: LanePool, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    slot = Slot(FACTS, ())

    def wait_until(_true: Any, seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 7:
            slot.close("enough")

    monkeypatch.setattr(pool, "wait_until", wait_until)
    waiting(pool).take(pool.lanes[0], slot)
    assert waits == [0.01, 0.02, 0.04, 0.08, 0.15, 0.15, 0.15]
