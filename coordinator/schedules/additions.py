"""New schedules: a request's body is validated, with the job that it will submit."""

from __future__ import annotations

import json
import secrets
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from coordinator.access.principal import Principal
from coordinator.cluster import Cluster
from coordinator.jobs import submissions
from coordinator.jobs.on_behalf import Maker
from coordinator.jobs.references import References
from coordinator.schedules import times
from coordinator.schedules.times import LONGEST, SHORTEST, Times
from coordinator.workflows import submitting
from jobs import errors
from jobs.store.schedules import NAME, Schedule

#: Characters of the workflow of a schedule, which Redis keeps as it is.
MAX_WORKFLOW = 65_536


class NewSchedule(BaseModel):
    """The body of POST /api/schedules."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: str = Field(pattern=NAME, description="Letters, digits, . _ and -, at most 64; the tenant has one of a name.")
    every_seconds: int | None = Field(
        None, ge=SHORTEST, le=LONGEST, description="Seconds between runs, the first after so many; or cron."
    )
    cron: str | None = Field(
        None, max_length=times.MAX_CRON, description="Minute, hour, day of month, month, day of week; or every_seconds."
    )
    timezone: str = Field("UTC", min_length=1, max_length=64, description="In which cron is read, as Europe/Berlin.")
    overlap: bool = Field(False, description="Whether a run begins while the job of the run before goes on.")
    catch_up: Literal["last", "none"] = Field("last", description="Of runs that were missed, make up for the last.")
    job: dict[str, Any] | None = Field(
        None, description="What it submits: a body of POST /api/submit without idempotency_key; or workflow."
    )
    workflow: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_WORKFLOW,
        description="What it submits: a text as of POST /api/workflows.",
    )


def plan_schedule(cluster: Cluster, asked: NewSchedule, principal: Principal) -> tuple[Schedule, tuple[str, ...]]:
    """Return a new schedule and the artifacts that its jobs need. InvalidRequest and others name the field."""
    _check_times(asked)
    artifacts = _validate(cluster, asked, principal)
    now = cluster.store.schedules.now_ms() // 1000
    first = Times(every=asked.every_seconds or 0, anchor=now, cron=asked.cron or "", timezone=asked.timezone).after(now)
    maker = Maker.of(principal)
    schedule = Schedule(
        schedule_id=secrets.token_hex(6),
        tenant=maker.tenant,
        name=asked.name,
        token=maker.token,
        runs_programs=maker.runs_programs,
        workflow=asked.workflow or "",
        job="" if asked.job is None else json.dumps(asked.job, separators=(",", ":")),
        every=asked.every_seconds or 0,
        cron=" ".join((asked.cron or "").split()),
        timezone=asked.timezone,
        overlap=asked.overlap,
        catch_up=asked.catch_up,
        created=now,
        next=first or 0,
    )
    return schedule, artifacts


def _check_times(asked: NewSchedule) -> None:
    if (asked.every_seconds is None) == (asked.cron is None):
        raise errors.InvalidRequest("every_seconds: give it or cron, one of both", field="every_seconds")
    for field, check in (("timezone", lambda: times.zone(asked.timezone)), ("cron", lambda: _check_cron(asked.cron))):
        try:
            check()
        except ValueError as error:
            raise errors.InvalidRequest(f"{field}: {error}", field=field) from None


def _check_cron(text: str | None) -> None:
    if text is not None:
        times.check_cron(text)


def _validate(cluster: Cluster, asked: NewSchedule, principal: Principal) -> tuple[str, ...]:
    """Validate what a schedule submits; return the artifacts that it needs."""
    if asked.job is not None and asked.workflow is None:
        return _validate_job(cluster, asked.job, principal)
    if asked.workflow is None or asked.job is not None:
        raise errors.InvalidRequest("job: give it or workflow, one of both", field="job")
    try:
        whole = submitting.validate_submission(
            asked.workflow.encode(errors="surrogatepass"), principal, cluster.settings
        )
    except errors.InvalidRequest as error:
        error.field, error.detail = "workflow", f"workflow: {error.detail}"
        raise
    return submitting.artifacts(cluster, whole, principal)


def _validate_job(cluster: Cluster, body: dict[str, Any], principal: Principal) -> tuple[str, ...]:
    """Validate a job as its submission would be now; return the artifacts that it needs."""
    if body.get("idempotency_key") is not None:
        detail = "job.idempotency_key: every run would be the job of the first; leave it out"
        raise errors.InvalidRequest(detail, field="job.idempotency_key")
    references = References(principal, cluster.artifacts, cluster.secrets)
    try:
        asked = submissions.parse_submission(body)
        accepted = submissions.accept(asked, principal, cluster.queries.fleet_cache.get(), cluster.settings, references)
    except errors.ClusterError as error:
        error.field = f"job.{error.field}" if error.field and error.field != "Authorization" else error.field
        error.detail = error.detail if error.field == "Authorization" else f"job.{error.detail}"
        raise
    return accepted.job.plan.artifacts
