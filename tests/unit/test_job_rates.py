"""Tests the speed and remaining time of a job, which are reported only while it is being computed."""

from __future__ import annotations

import pytest

from coordinator.jobs import scheduler, serializers
from jobs.models import Device, QueuePosition

NOW = 1_900_000_000.0
#: A job with 20 units/s two seconds ago and 80 remaining units.
ROW = {
    "state": "running",
    "kind": "sum",
    "version": "1",
    "total": "100",
    "done": "20",
    "cursor": "20",
    "tenant": "default",
    "queue": "any.normal",
    "priority": "normal",
    "device": "any",
    "parameters": "{}",
    "notes": "[]",
    "holders": "1",
    "rate": "20",
    "created": str(round((NOW - 9) * 1000)),
    "started": str(round((NOW - 8) * 1000)),
    "mark_at": str(round((NOW - 2) * 1000)),
}
#: A cluster with one live worker.
FLEET = scheduler.Fleet(workers={Device.CPU: 1}, lanes={Device.CPU: 2})


@pytest.mark.parametrize(
    ("holders", "place", "told"),
    [
        ("1", QueuePosition(), (20.0, 4.0)),
        ("0", QueuePosition(leases=2), (20.0, 4.0)),  # its last leases, or the maximum number that it can have
        ("0", QueuePosition(before=3), (None, None)),
        ("0", QueuePosition(before=0), (None, None)),
    ],
)
def test_a_job_that_went_back_into_its_queue_has_neither(
    holders: str, place: QueuePosition, told: tuple[float | None, float | None]
) -> None:
    shown = serializers.serialize_job("j", {**ROW, "holders": holders}, place, FLEET, NOW)
    assert (shown["rate"], shown["eta_seconds"]) == told


def test_a_job_has_neither_when_no_worker_is_live() -> None:
    """The leases of a lost worker remain for a few seconds."""
    shown = serializers.serialize_job("j", ROW, QueuePosition(leases=2), scheduler.Fleet(), NOW)
    assert (shown["rate"], shown["eta_seconds"]) == (None, None)
    stored = {name: ROW[name].encode() if name in ROW else None for name in serializers.RATED}
    assert serializers.read_rate(stored, scheduler.Fleet(), NOW) == ("sum", 0.0)
    assert serializers.read_rate(stored, FLEET, NOW) == ("sum", 20.0)
