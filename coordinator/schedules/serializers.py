"""Build the API responses about schedules."""

from __future__ import annotations

import json
from itertools import islice

from coordinator import decoding
from coordinator.schedules import runs
from jobs.store.schedules import Schedule
from threads_protocol.answers import schedules as answers

#: Maximum number of future runs in the response of a schedule.
NEXT_RUNS = 5


def serialize_schedule(schedule: Schedule, workflow_state: str | None) -> answers.Schedule:
    """Return a schedule with the current state of its last workflow, or None if that workflow was deleted."""
    state = "paused" if schedule.paused else "ended" if not (schedule.next or schedule.firing) else "active"
    return {
        "name": schedule.name,
        "id": schedule.schedule_id,
        "tenant": schedule.tenant,
        "type": "workflow" if schedule.workflow else str(json.loads(schedule.job)["type"]),
        "every_seconds": schedule.every or None,
        "cron": schedule.cron or None,
        "timezone": schedule.timezone,
        "overlap": schedule.overlap,
        "catch_up": schedule.catch_up,
        "state": state,
        "created": decoding.format_seconds(schedule.created),
        "next_run": _format_time(schedule.next),
        "last_run": _format_time(schedule.last),
        "last_job_id": None if schedule.workflow else schedule.last_job or None,
        "last_workflow_id": schedule.last_job or None if schedule.workflow else None,
        "last_workflow_state": workflow_state,
        "last_outcome": schedule.said or None,
        "submitted": schedule.submitted,
        "skipped": schedule.skipped,
        "missed": schedule.missed,
        "failed": schedule.failed,
    }


def serialize_details(schedule: Schedule, workflow_state: str | None) -> answers.Schedule:
    """Return a schedule with its job or workflow and its next runs."""
    coming = islice(runs.times(schedule).all_after(schedule.next - 1), NEXT_RUNS) if schedule.next else ()
    row: answers.Schedule = {
        **serialize_schedule(schedule, workflow_state),
        "next_runs": [decoding.format_seconds(at) for at in coming],
    }
    if schedule.workflow:
        return {**row, "workflow": schedule.workflow}
    return {**row, "job": json.loads(schedule.job)}


def _format_time(seconds: int) -> str | None:
    return decoding.format_seconds(seconds) if seconds else None
