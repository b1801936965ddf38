"""Validate a request for a new schedule, including the job or workflow that the schedule submits."""

from __future__ import annotations

import json
import secrets
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from coordinator.access.principal import Principal
from coordinator.cluster import Cluster
from coordinator.jobs import submissions
from coordinator.jobs.delegated_submission import Maker
from coordinator.jobs.references import References
from coordinator.schedules import times
from coordinator.schedules.times import LONGEST, SHORTEST, Times
from coordinator.workflows import submitting
from jobs import errors
from jobs.store.schedules import NAME, Schedule

#: Maximum length in characters of a schedule's workflow text, which Redis stores uncompressed.
MAX_WORKFLOW = 65_536


class NewSchedule(BaseModel):
    """The body of POST /api/schedules."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: str = Field(pattern=NAME, description="Name, unique within the tenant: up to 64 letters, digits, . _ or -.")
    every_seconds: int | None = Field(
        None, ge=SHORTEST, le=LONGEST, description="Interval between runs in seconds. Set either this or cron."
    )
    cron: str | None = Field(
        None,
        max_length=times.MAX_CRON,
        description="Cron expression with five fields. Set either this or every_seconds.",
    )
    timezone: str = Field("UTC", min_length=1, max_length=64, description="Timezone of cron, such as Europe/Berlin.")
    overlap: bool = Field(False, description="Whether a run may start while the previous run is active.")
    catch_up: Literal["last", "none"] = Field(
        "last", description="After missed runs: `last` makes up for the last one, `none` skips all."
    )
    job: dict[str, Any] | None = Field(
        None,
        description="Job to submit: a body of POST /api/submit without idempotency_key. Set either this or workflow.",
    )
    workflow: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_WORKFLOW,
        description="Workflow to submit: a text as in POST /api/workflows. Set either this or job.",
    )


def plan_schedule(cluster: Cluster, asked: NewSchedule, principal: Principal) -> tuple[Schedule, tuple[str, ...]]:
    """Return a new schedule and the artifacts that its jobs need. Raises InvalidRequest and other API errors."""
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
        raise errors.InvalidRequest("every_seconds: set either every_seconds or cron", field="every_seconds")
    for field, check in (("timezone", lambda: times.zone(asked.timezone)), ("cron", lambda: _check_cron(asked.cron))):
        try:
            check()
        except ValueError as error:
            raise errors.InvalidRequest(f"{field}: {error}", field=field) from None


def _check_cron(text: str | None) -> None:
    if text is not None:
        times.check_cron(text)


def _validate(cluster: Cluster, asked: NewSchedule, principal: Principal) -> tuple[str, ...]:
    """Validate the job or workflow of a schedule and return the artifacts that it needs."""
    if asked.job is not None and asked.workflow is None:
        return _validate_job(cluster, asked.job, principal)
    if asked.workflow is None or asked.job is not None:
        raise errors.InvalidRequest("job: set either job or workflow", field="job")
    try:
        whole = submitting.validate_submission(
            asked.workflow.encode(errors="surrogatepass"), principal, cluster.settings
        )
    except errors.InvalidRequest as error:
        error.field, error.detail = "workflow", f"workflow: {error.detail}"
        raise
    return submitting.artifacts(cluster, whole, principal)


def _validate_job(cluster: Cluster, body: dict[str, Any], principal: Principal) -> tuple[str, ...]:
    """Validate a job as if it were submitted now, and return the artifacts that it needs."""
    if body.get("idempotency_key") is not None:
        detail = "job.idempotency_key: must be omitted, since all runs would return the job of the first run"
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
