"""Submissions: a request's body is validated, planned and routed, and becomes a job to write."""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from coordinator import destinations
from coordinator.access.principal import Principal
from coordinator.jobs import scheduler
from coordinator.jobs.references import References, artifact_deleted
from coordinator.server import patterns
from jobs import errors
from jobs.kinds import registry
from jobs.models import MAX_UNITS, Device, Plan, Priority
from jobs.settings import Settings
from jobs.store.work.jobs import CapReached, NewJob
from threads_protocol.answers import jobs as answers
from threads_protocol.numbers import short

#: Jobs in one batch.
MAX_BATCH = 1000
#: Characters of an idempotency key.
MAX_KEY = 200
#: An answer to a question is kept this long.
QUESTION_SECONDS = 600
#: Lanes and seconds that a submitter may limit a job to.
MAX_RUNNING, MAX_TIMEOUT = 1_000_000, 366 * 86400.0
#: Jobs that one may come after.
MAX_PARENTS = 1000
#: A spec travels with every lease.
_MAX_SPEC = 64 * 1024
#: Errors of a body that are described one by one to find the first, and items of each list that are then looked at.
_MAX_ERRORS = 100
#: Longest Retry-After, in seconds, that is computed from the present rate of a job. The rate may change.
_LONGEST_GUESS = 3600

AnyModel = TypeVar("AnyModel", bound=BaseModel)

#: Ids of jobs that a job comes after.
Parents = Annotated[list[Annotated[str, StringConstraints(pattern=patterns.JOB_ID)]], Field(max_length=MAX_PARENTS)]


class Submission(BaseModel):
    """The body of POST /api/submit."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    type: str = Field(description="The kind of job; GET /api/job-types lists them.", max_length=64)
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="The kind's parameters; see GET /api/job-types."
    )
    priority: str = Field(
        "normal", description="high, normal or low.", json_schema_extra={"enum": ["high", "normal", "low"]}
    )
    device: str | None = Field(
        None,
        description="gpu, cpu or any (default); runner, which programs need not name.",
        json_schema_extra={"enum": ["gpu", "any", "cpu", "runner", None]},
    )
    gpu_preferred: bool = Field(False, description="On a GPU while one lives and its wait is not worse, else anywhere.")
    idempotency_key: str | None = Field(
        None, min_length=1, max_length=MAX_KEY, description="The same key and body again answer with the same job."
    )
    max_running: int | None = Field(
        None, ge=1, le=MAX_RUNNING, description="Most lanes that compute it at once; null: any number."
    )
    hold: bool = Field(
        False, description="Where a cap of its tenant refuses it: queue it, to be admitted when there is room."
    )
    timeout_seconds: float | None = Field(
        None,
        ge=0.001,
        le=MAX_TIMEOUT,
        allow_inf_nan=False,
        description="It fails this long after it started, the time while it is paused apart; null: never.",
    )
    notify: str | None = Field(
        None,
        min_length=1,
        max_length=destinations.MAX_URL,
        description="A URL that is sent a signed POST when the job has ended: docs/webhooks.md.",
    )
    after: Parents = Field(
        default_factory=list,
        description="Ids of jobs that must be done before it starts. If one fails or is cancelled, it is skipped.",
    )
    after_any: Parents = Field(
        default_factory=list,
        description="Ids of jobs that must have ended before it starts, however. With after at most 1,000.",
    )


@dataclass(frozen=True, kw_only=True)
class AcceptedJob:
    """A valid job, ready to be written, and the answer to its submitter."""

    job: NewJob
    estimated_wait_seconds: float | None

    def answer(self, job_id: str, state: str = "queued") -> answers.Submitted:
        """Return the answer to the submitter. How long a job waits that comes after others, nobody knows."""
        return {
            "job_id": job_id,
            "status": state,
            "estimated_wait_seconds": None if state in ("blocked", "skipped") else self.estimated_wait_seconds,
            "notes": list(self.job.plan.notes),
        }


def problem(error: ValidationError, model: type[BaseModel], prefix: str = "") -> errors.InvalidRequest:
    """Return a model's first complaint as InvalidRequest: the field's path, what was expected, what came.

    A key that is not known comes first: it explains the one that is missing.
    """
    complaints = error.errors(include_url=False, include_context=False)
    first = min(complaints, key=lambda one: one["type"] != "extra_forbidden")
    parts = [part for part in prefix.split(".") if part] + [str(part)[:64] for part in first["loc"]]
    path = ".".join(parts) or "body"
    others = f"; there are {', '.join(model.model_fields)}" if len(first["loc"]) == 1 else ""
    known = {"extra_forbidden": f"is not known{others}", "missing": "is needed"}
    text = known.get(first["type"], patterns.explain(first["msg"].removeprefix("Value error, ")))
    given = "" if first["type"] in known or "got" in text else f"; got {short(first['input'])}"
    return errors.InvalidRequest(f"{path}: {text[0].lower() + text[1:]}{given}", field=path)


def validate(model: type[AnyModel], body: Any, prefix: str = "") -> AnyModel:
    """Return the body as this model. InvalidRequest with the first complaint; `prefix` is the path of the body.

    pydantic describes all errors while no other thread runs. If there are many, only the beginning is validated again.
    """
    if not isinstance(body, dict):
        raise errors.InvalidRequest(f"the body must be an object; got {short(body)}", field="body")
    most = len(model.model_fields) + 1  # enough to name an unknown key
    few = body if len(body) <= most else dict(islice(body.items(), most))
    try:
        return model.model_validate(few)
    except ValidationError as error:
        if (count := error.error_count()) <= _MAX_ERRORS:
            raise problem(error, model, prefix) from None
    try:
        model.model_validate(_truncate(few))
    except ValidationError as error:
        raise problem(error, model, prefix) from None
    detail = f"{count} values are wrong, after the first {_MAX_ERRORS} of a list or object"
    raise errors.InvalidRequest(f"{prefix or 'body'}: {detail}", field=prefix or "body")


def _truncate(value: Any) -> Any:
    """Return a JSON value with the first items of each list and object in it."""
    if isinstance(value, dict):
        return {name: _truncate(item) for name, item in islice(value.items(), _MAX_ERRORS)}
    return [_truncate(item) for item in value[:_MAX_ERRORS]] if isinstance(value, list) else value


def is_quick(body: Any) -> bool:
    """Return True for a submission that is planned by arithmetic: it is no program, and tells nobody of its end."""
    kind = body.get("type") if isinstance(body, dict) else None
    return (
        isinstance(kind, str) and kind in registry.names() and not registry.program_kind(kind) and "notify" not in body
    )


def parse_submission(body: Any) -> Submission:
    """Return a valid submission. InvalidRequest naming the field."""
    return validate(Submission, body)


def question(kind: str, parameters: dict[str, Any], principal: Principal, fleet: scheduler.Fleet) -> AcceptedJob:
    """Return a job that answers a question: served before all others, soon forgotten.

    It is one for equal questions of a tenant.
    """
    asked = Submission.model_validate({"type": kind, "parameters": parameters, "priority": Priority.INTERACTIVE.value})
    version, plan = _plan_job(asked, None)
    route = scheduler.route(plan, Device.ANY, False, Priority.INTERACTIVE, fleet)
    digest = _digest(asked)
    job = NewJob(
        job_id=secrets.token_hex(8),
        kind=kind,
        version=version,
        plan=plan,
        priority=Priority.INTERACTIVE,
        device="any",
        queue=route.queue,
        prefer=False,
        small=scheduler.is_small(plan),
        estimate_ms=math.ceil(min(plan.cpu_seconds, 1e12) * 1000),
        ttl_seconds=QUESTION_SECONDS,
        idempotency=f"question@{principal.tenant}:{version}:{digest}",
        digest=digest,
        tenant=principal.tenant,
        token=principal.token,
    )
    return AcceptedJob(job=job, estimated_wait_seconds=scheduler.estimate_wait(route.queue, fleet, principal.tenant))


def _choice(value: str, allowed: list[str], field: str) -> str:
    if value not in allowed:
        raise errors.InvalidRequest(f"{field}: must be one of {', '.join(allowed)}; got {short(value)}", field=field)
    return value


def _plan_job(asked: Submission, references: References | None) -> tuple[int, Plan]:
    definition = registry.definition(asked.type)
    held: tuple[str, ...] = ()
    parameters = validate(definition.parameters, asked.parameters, "parameters")
    if programs := registry.program_kind(asked.type):
        if references is None:
            raise errors.Forbidden(f"{asked.type} runs programs, which nobody may do here", field="type")
        if programs.is_for_leader and not references.leads:
            detail = f"type: jobs of {asked.type} are submitted by the cluster; POST /api/services, or: cluster serve"
            raise errors.InvalidRequest(detail, field="type")
        parameters, held = references.resolve(programs, parameters)
    plan = definition.plan(parameters)
    if not 1 <= plan.total <= MAX_UNITS:
        raise errors.InvalidRequest(f"parameters: {plan.total} units; a job has 1..{MAX_UNITS}", field="parameters")
    if len(json.dumps(plan.spec)) > _MAX_SPEC:
        raise errors.InvalidRequest(f"parameters: the job's tables take over {_MAX_SPEC} bytes", field="parameters")
    return definition.model_version, replace(plan, artifacts=held)


def _device(asked: Submission) -> Device:
    """Return the device that was asked for. InvalidRequest; programs are for runners, whatever they need there."""
    device = Device(_choice(asked.device or "any", ["gpu", "any", "cpu", "runner"], "device"))
    if asked.device is not None and asked.gpu_preferred:
        raise errors.InvalidRequest("gpu_preferred: give it or device, not both", field="gpu_preferred")
    if registry.program_kind(asked.type) and (asked.gpu_preferred or device not in (Device.ANY, Device.RUNNER)):
        field = "gpu_preferred" if asked.gpu_preferred else "device"
        detail = f"{field}: {asked.type} runs on runners; leave it out, and ask for GPUs with parameters.requirements"
        raise errors.InvalidRequest(detail, field=field)
    return device


def _parents(asked: Submission) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return after and after_any, each job once. InvalidRequest for a job in both, and for too many."""
    after, after_any = tuple(dict.fromkeys(asked.after)), tuple(dict.fromkeys(asked.after_any))
    if twice := next((job for job in after_any if job in set(after)), None):
        raise errors.InvalidRequest(
            f"after_any: job {twice} is in after, too; name it in one of them", field="after_any"
        )
    if (count := len(after) + len(after_any)) > MAX_PARENTS:
        detail = f"after_any: with after at most {MAX_PARENTS} jobs; got {count}"
        raise errors.InvalidRequest(detail, field="after_any")
    return after, after_any


def unknown_parent(field: str, job_id: str) -> errors.Conflict:
    """Return the refusal of a job that comes after one that is not there, or another tenant's."""
    return errors.Conflict(
        f"{field}: there is no job {job_id}; it was deleted, has expired (RESULT_TTL), or never was: list jobs with "
        "GET /api/jobs",
        field=field,
    )


def accept(
    asked: Submission,
    principal: Principal,
    fleet: scheduler.Fleet,
    settings: Settings,
    references: References | None = None,
) -> AcceptedJob:
    """Plan and route a submission. InvalidRequest names the field and the bound. Without references: no programs."""
    priority = Priority(_choice(asked.priority, ["high", "normal", "low"], "priority"))
    device = _device(asked)
    after, after_any = _parents(asked)
    version, plan = _plan_job(asked, references)
    route = scheduler.route(plan, device, asked.gpu_preferred, priority, fleet, principal.tenant)
    if route.notes:
        plan = replace(plan, notes=(*plan.notes, *route.notes))
    job = NewJob(
        job_id=secrets.token_hex(8),
        kind=asked.type,
        version=version,
        plan=plan,
        priority=priority,
        device=_requested_device(asked, plan),
        queue=route.queue,
        prefer=route.prefer,
        small=scheduler.is_small(plan),
        estimate_ms=math.ceil(min(plan.cpu_seconds, 1e12) * 1000),
        ttl_seconds=settings.result_ttl,
        max_running=asked.max_running or 0,
        timeout_ms=math.ceil((asked.timeout_seconds or 0) * 1000),
        idempotency=f"{principal.tenant}:{asked.idempotency_key}" if asked.idempotency_key else "",
        digest=_digest(asked),
        tenant=principal.tenant,
        token=principal.token,
        hold=asked.hold,
        notify="" if asked.notify is None else destinations.parse_receiver(asked.notify, settings),
        after=after,
        after_any=after_any,
    )
    return AcceptedJob(job=job, estimated_wait_seconds=scheduler.estimate_wait(route.queue, fleet, principal.tenant))


def _requested_device(asked: Submission, plan: Plan) -> str:
    """Return the job's device as it is shown: what was asked for."""
    if plan.devices == (Device.RUNNER,):
        return Device.RUNNER.value
    return asked.device or ("gpu_preferred" if asked.gpu_preferred else Device.ANY.value)


def limit_error(limit: Over, tenant: str) -> errors.OverLimit:
    """Return the error that refuses a job: the limit, its value, and the time until there is room if it is known."""
    if limit.cap == "MAX_QUEUED":
        detail = (
            f"the cluster has reached MAX_QUEUED: {limit.value} jobs are queued or wait for others; submit it again "
            "when some of them have ended"
        )
    elif limit.cap == "requirements":
        detail = (
            f"parameters.requirements: {limit.value} different ones wait already; use some that others have, or submit "
            "it when some of those jobs have ended"
        )
    elif limit.cap == "max_stored_bytes":
        first = f", the first in about {limit.seconds} s" if limit.awaits == "expiry" else ""
        detail = (
            f"tenant {tenant} has no room for it within {limit.cap}: {limit.used} of {limit.value} bytes are stored of "
            f"its jobs; delete some that have ended, or wait until they expire (RESULT_TTL){first}"
        )
    elif limit.cap == "notify":
        detail = (
            f"notify: {limit.value} webhooks of tenant {tenant} wait for receivers that do not answer; see `cluster "
            "webhook list --state pending`, or submit it without notify"
        )
    else:
        detail = (
            f"tenant {tenant} has reached {limit.cap}: {limit.value} of its jobs wait or run; "
            f"{_describe_deadline(limit)}. "
            "With hold the job is queued until one of them ends"
        )
    field = "parameters.requirements" if limit.cap == "requirements" else limit.cap
    seconds = min(limit.seconds, _LONGEST_GUESS) if limit.awaits == "end" else limit.seconds
    return errors.OverLimit(detail, field=field, seconds=seconds)


def _describe_deadline(limit: CapReached) -> str:
    if limit.awaits == "end":
        return f"one of them ends in about {limit.seconds} s at its present rate"
    if limit.awaits == "day":
        return f"all of them wait for the next day (UTC), which begins in {limit.seconds} s"
    return "it is not known when one of them ends"


def refusal(job: NewJob, written: tuple[str, str] | CapReached) -> errors.ClusterError | None:
    """Return why a job was not written; None for one that was, or that was there already."""
    if isinstance(written, Over):
        return limit_error(written, job.tenant)
    how, what = written
    if how == "artifact":
        return artifact_deleted(job.plan.parameters, what)
    if how == "refused":
        return errors.Unavailable(f"{what}; this job was not taken, submit it again in a moment")
    if how in ("after", "after_any"):
        return unknown_parent(how, what)
    if how == "workflow":
        return errors.Conflict(f"workflow {job.workflow} is {what or 'not there'}", field="workflow")
    if how == "taken":
        return errors.Conflict(f"{what} is the id of another job; submit this one again", field="job_id")
    if how == "conflict":
        return errors.Conflict(
            f"idempotency_key: already used by job {what} with another body; use a new key", field="idempotency_key"
        )
    return None


def _digest(asked: Submission) -> str:
    body = asked.model_dump(exclude={"idempotency_key"})
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
