"""The snapshot as the API shows it; `schemas.py` describes it to clients, and a test compares both."""

from __future__ import annotations

from coordinator.fleet.rows import FleetGpuRow, QueueRow, StatusRow, WorkerRow
from coordinator.jobs.rows import JobsPage
from coordinator.telemetry.rows import AlertRow


class SnapshotRow(JobsPage):
    """The fleet at one moment, and the newest jobs."""

    stream: str
    time: float
    status: StatusRow
    queues: list[QueueRow]
    workers: list[WorkerRow]
    gpus: list[FleetGpuRow]
    alerts: list[AlertRow]
