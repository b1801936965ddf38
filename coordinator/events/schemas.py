"""Answers about the fleet at one moment, for the API's description and the tests."""

from __future__ import annotations

from coordinator.fleet.schemas import FleetGpu, Queue, Status, Worker
from coordinator.jobs.schemas import Jobs
from coordinator.schemas import required
from coordinator.telemetry.schemas import Alert


class Snapshot(Jobs):
    """The fleet at one moment; the newest 100 jobs."""

    stream: str = required("Last-Event-ID from which /api/events goes on without a gap.")
    time: float = required("Seconds since 1970 by the clock of which all times of jobs are.")
    status: Status
    queues: list[Queue]
    workers: list[Worker]
    gpus: list[FleetGpu]
    alerts: list[Alert]
