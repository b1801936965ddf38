"""Responses about live changes."""

from __future__ import annotations

from typing import Annotated

from threads_protocol.answers.fields import Many, describe
from threads_protocol.answers.fleet import FleetGpu, Queue, Status, Worker
from threads_protocol.answers.jobs import Jobs
from threads_protocol.answers.telemetry import Alert


class Snapshot(Jobs):
    """The fleet at one time, with the newest 100 jobs."""

    stream: Annotated[str, describe("Last-Event-ID from which /api/events goes on without a gap.")]
    time: Annotated[float, describe("Seconds since 1970 by the clock of which all times of jobs are.")]
    status: Status
    queues: Many[Queue]
    workers: Many[Worker]
    gpus: Many[FleetGpu]
    alerts: Many[Alert]
