"""Types of responses about live changes."""

from __future__ import annotations

from typing import Annotated

from threads_protocol.answers.fields import Many, describe
from threads_protocol.answers.fleet import FleetGpu, Queue, Status, Worker
from threads_protocol.answers.jobs import Jobs
from threads_protocol.answers.telemetry import Alert


class Snapshot(Jobs):
    """Current state of workers and queues, with the newest 100 jobs."""

    stream: Annotated[str, describe("Last-Event-ID with which /api/events continues without a gap.")]
    time: Annotated[
        float, describe("Current Unix time in seconds on Redis's clock, which also provides all times of jobs.")
    ]
    status: Status
    queues: Many[Queue]
    workers: Many[Worker]
    gpus: Many[FleetGpu]
    alerts: Many[Alert]
