"""Types of responses about schedules."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from threads_protocol.answers.fields import Answer, Count, Many, Moment, describe


class Schedule(Answer):
    name: str
    id: Annotated[str, describe("ID of the schedule. IDs of its jobs are s-ID-SECONDS.")]
    tenant: str
    type: Annotated[str, describe("Kind of the scheduled job, or workflow.")]
    every_seconds: Count | None
    cron: str | None
    timezone: Annotated[str, describe("Time zone of cron.")]
    overlap: Annotated[bool, describe("True if a run can start while the job of the previous run is unfinished.")]
    catch_up: Annotated[
        str, describe("last: after a downtime, the last missed run is submitted; none: no missed run is.")
    ]
    state: Annotated[str, describe("active, paused, or ended if there are no further runs.")]
    created: Moment
    next_run: Moment | None
    last_run: Annotated[Moment | None, describe("Time of the last run, regardless of its outcome.")]
    last_job_id: Annotated[str | None, describe("Last job that the schedule submitted.")]
    last_workflow_id: Annotated[str | None, describe("Last workflow that the schedule submitted, if any.")]
    last_workflow_state: Annotated[str | None, describe("Current state of the last workflow; null if it was deleted.")]
    last_outcome: Annotated[str | None, describe("Outcome of the last run.")]
    submitted: Count
    skipped: Annotated[Count, describe("Number of runs skipped because the previous run was unfinished.")]
    missed: Annotated[Count, describe("Number of runs missed because no coordinator was leading.")]
    failed: Annotated[Count, describe("Number of runs whose job or workflow was rejected.")]
    next_runs: NotRequired[
        Annotated[Many[Moment], describe("Times of the next five runs; only for a single schedule.")]
    ]
    job: NotRequired[Annotated[dict[str, Any], describe("Job that the schedule submits; only for a single schedule.")]]
    workflow: NotRequired[
        Annotated[str, describe("Text of the workflow that the schedule submits; only for a single schedule.")]
    ]


class ScheduleList(Answer):
    schedules: Annotated[Many[Schedule], describe("Schedules, sorted by name.")]


class Started(Answer):
    name: str
    job_id: str | None
    workflow_id: str | None
