"""Answers about schedules, for the API's description and the tests."""

from __future__ import annotations

from typing import Any

from coordinator.schemas import Answer, optional, required


class Schedule(Answer):
    name: str
    id: str = required("Part of the ids of its jobs: s-ID-SECONDS.")
    tenant: str
    type: str = required("The kind of its job, or workflow.")
    every_seconds: int | None
    cron: str | None
    timezone: str = required("In which cron is read.")
    overlap: bool = required("Whether a run begins while the job of the run before goes on.")
    catch_up: str = required("last: of runs that were missed, the last is made up for; none: no run is.")
    state: str = required("active, paused, or ended: it has no further time.")
    created: str
    next_run: str | None
    last_run: str | None = required("The time of the last run, whatever became of it.")
    last_job_id: str | None = required("The last job that it submitted.")
    last_workflow_id: str | None = required("The last workflow that it submitted, where it submits one.")
    last_workflow_state: str | None = required("The state that this has now; null once it is deleted.")
    last_outcome: str | None = required("What became of the last run.")
    submitted: int
    skipped: int = required("Runs that were left out, as what the run before submitted went on.")
    missed: int = required("Runs whose time passed while no coordinator led.")
    failed: int = required("Runs whose job or workflow was refused.")
    next_runs: list[str] | None = optional("The next five times; of one schedule alone.")
    job: dict[str, Any] | None = optional("What it submits; of one schedule alone.")
    workflow: str | None = optional("The text of the workflow that it submits; of one schedule alone.")


class ScheduleList(Answer):
    schedules: list[Schedule] = required("By name.")


class Started(Answer):
    name: str
    job_id: str | None
    workflow_id: str | None
