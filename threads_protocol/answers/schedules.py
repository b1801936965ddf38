"""Responses about schedules."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from threads_protocol.answers.fields import Answer, Count, Many, Moment, describe


class Schedule(Answer):
    name: str
    id: Annotated[str, describe("Part of the ids of its jobs: s-ID-SECONDS.")]
    tenant: str
    type: Annotated[str, describe("The kind of its job, or workflow.")]
    every_seconds: Count | None
    cron: str | None
    timezone: Annotated[str, describe("In which cron is read.")]
    overlap: Annotated[bool, describe("Whether a run begins while the job of the run before goes on.")]
    catch_up: Annotated[str, describe("last: of runs that were missed, the last is made up for; none: no run is.")]
    state: Annotated[str, describe("active, paused, or ended: it has no further time.")]
    created: Moment
    next_run: Moment | None
    last_run: Annotated[Moment | None, describe("The time of the last run, whatever became of it.")]
    last_job_id: Annotated[str | None, describe("The last job that it submitted.")]
    last_workflow_id: Annotated[str | None, describe("The last workflow that it submitted, where it submits one.")]
    last_workflow_state: Annotated[str | None, describe("The state that this has now; null once it is deleted.")]
    last_outcome: Annotated[str | None, describe("What became of the last run.")]
    submitted: Count
    skipped: Annotated[Count, describe("Runs that were left out, as what the run before submitted went on.")]
    missed: Annotated[Count, describe("Runs whose time passed while no coordinator led.")]
    failed: Annotated[Count, describe("Runs whose job or workflow was refused.")]
    next_runs: NotRequired[Annotated[Many[Moment], describe("The next five times; of one schedule alone.")]]
    job: NotRequired[Annotated[dict[str, Any], describe("What it submits; of one schedule alone.")]]
    workflow: NotRequired[Annotated[str, describe("The text of the workflow that it submits; of one schedule alone.")]]


class ScheduleList(Answer):
    schedules: Annotated[Many[Schedule], describe("By name.")]


class Started(Answer):
    name: str
    job_id: str | None
    workflow_id: str | None
