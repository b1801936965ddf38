"""Validate, plan and route submitted jobs."""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from coordinator import destinations
from coordinator.access import guests
from coordinator.access.principal import GUEST_TENANT, Principal
from coordinator.jobs import scheduler, titles
from coordinator.jobs.references import References, artifact_deleted
from coordinator.server import nulls, patterns
from jobs import errors
from jobs.kinds import registry
from jobs.models import MAX_UNITS, Device, Plan, Priority
from jobs.settings import Settings
from jobs.store.work.jobs import CapReached, NewJob
from threads_protocol.answers import jobs as answers
from threads_protocol.numbers import short

#: Maximum number of jobs in one batch.
MAX_BATCH = 1000
#: Maximum length of an idempotency key in characters.
MAX_KEY = 200
#: Seconds for which the result of an on-demand job is kept.
QUESTION_SECONDS = 600
#: Maximum values of `max_running` (lanes) and `timeout_seconds` that a submitter can set.
MAX_RUNNING, MAX_TIMEOUT = 1_000_000, 366 * 86400.0
#: Maximum number of jobs that a job can depend on.
MAX_PARENTS = 1000
#: Maximum number of tags of a job.
MAX_TAGS = 16
#: Fields that guests cannot set. They refer to other jobs or machines, or exceed the limit on queued jobs.
_TOKEN_FIELDS = ("notify", "after", "after_any", "hold")
#: Maximum size in bytes of a job specification, which is sent with every lease.
_MAX_SPEC = 64 * 1024
#: Number of validation errors above which only this many items of each list and object are validated.
_MAX_ERRORS = 100
#: Maximum Retry-After in seconds that is derived from a job's current rate, which may change.
_LONGEST_GUESS = 3600

AnyModel = TypeVar("AnyModel", bound=BaseModel)

#: IDs of the jobs that a job depends on.
Parents = Annotated[list[Annotated[str, StringConstraints(pattern=patterns.JOB_ID)]], Field(max_length=MAX_PARENTS)]


def _check_name(name: str) -> str:
    """Return the name of a job. Raises ValueError if it is not one printable line."""
    if not name.isprintable() or name != name.strip():
        raise ValueError("must be one printable line that neither begins nor ends with a space")
    return name


#: Name of a job, as pages and `cluster jobs` display it.
JobName = Annotated[str, StringConstraints(min_length=1, max_length=titles.MAX_LENGTH), AfterValidator(_check_name)]
Tags = Annotated[list[Annotated[str, StringConstraints(pattern=patterns.TAG)]], Field(max_length=MAX_TAGS)]


class Submission(BaseModel):
    """The body of POST /api/submit."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    type: str = Field(description="Kind of job. GET /api/job-types lists all kinds.", max_length=64)
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="Parameters of the kind; see GET /api/job-types."
    )
    name: JobName | None = Field(
        None, description="Title of the job in lists; by default, the title is derived from the parameters."
    )
    tags: Tags = Field(
        default_factory=list,
        description="Words by which jobs can be listed, such as nightly or dataset=v2; at most 16.",
    )
    priority: str = Field(
        "normal", description="high, normal or low.", json_schema_extra={"enum": ["high", "normal", "low"]}
    )
    device: str | None = Field(
        None,
        description="gpu, cpu or any (default). Programs always use runner.",
        json_schema_extra={"enum": ["gpu", "any", "cpu", "runner", None]},
    )
    gpu_preferred: bool = Field(
        False, description="Use a GPU if one is alive and its wait is not longer, otherwise any device."
    )
    idempotency_key: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_KEY,
        description="Repeating a submission with the same key and body returns the same job.",
    )
    max_running: int | None = Field(
        None,
        ge=1,
        le=MAX_RUNNING,
        description="Maximum number of lanes that compute the job at once; null for no limit.",
    )
    hold: bool = Field(False, description="If its tenant has reached a cap, queue the job instead of rejecting it.")
    timeout_seconds: float | None = Field(
        None,
        ge=0.001,
        le=MAX_TIMEOUT,
        allow_inf_nan=False,
        description="Seconds after its start, without pauses, at which the job fails; null for no limit.",
    )
    notify: str | None = Field(
        None,
        min_length=1,
        max_length=destinations.MAX_URL,
        description="URL that receives a signed POST when the job has ended; see docs/webhooks.md.",
    )
    after: Parents = Field(
        default_factory=list,
        description="IDs of jobs that must be done first. If one fails or is cancelled, this job is skipped.",
    )
    after_any: Parents = Field(
        default_factory=list,
        description="IDs of jobs that must have ended first, with any result; at most 1,000 with after.",
    )


@dataclass(frozen=True, kw_only=True)
class AcceptedJob:
    """A validated job, ready to be written, with its estimated wait."""

    job: NewJob
    estimated_wait_seconds: float | None

    def answer(self, job_id: str, state: str = "queued") -> answers.Submitted:
        """Return the response to the submitter. The estimated wait of blocked and skipped jobs is None."""
        return {
            "job_id": job_id,
            "status": state,
            "estimated_wait_seconds": None if state in ("blocked", "skipped") else self.estimated_wait_seconds,
            "notes": list(self.job.plan.notes),
        }

    def estimate(self, fleet: scheduler.Fleet) -> answers.Estimate:
        """Return where and when the job would start, for a job that is not submitted."""
        job = self.job
        return {
            "queue": job.queue,
            "estimated_wait_seconds": self.estimated_wait_seconds,
            "unschedulable": scheduler.explain_unschedulable(job.queue, job.plan.requirements, fleet, job.tenant),
            "notes": list(job.plan.notes),
        }


def problem(error: ValidationError, model: type[BaseModel], prefix: str = "") -> errors.InvalidRequest:
    """Convert the first error of a model to InvalidRequest with the field's path, the expected and the actual value.

    An unknown key comes first, because it often explains a missing one.
    """
    complaints = error.errors(include_url=False, include_context=False)
    first = min(complaints, key=lambda one: one["type"] != "extra_forbidden")
    parts = [part for part in prefix.split(".") if part] + [str(part)[:64] for part in first["loc"]]
    path = ".".join(parts) or "body"
    others = f"; the fields are {', '.join(model.model_fields)}" if len(first["loc"]) == 1 else ""
    known = {"extra_forbidden": f"is not a known field{others}", "missing": "is required"}
    text = known.get(first["type"], patterns.explain(first["msg"].removeprefix("Value error, ")))
    given = "" if first["type"] in known or "got" in text else f"; got {short(first['input'])}"
    return errors.InvalidRequest(f"{path}: {text[0].lower() + text[1:]}{given}", field=path)


def validate(model: type[AnyModel], body: Any, prefix: str = "") -> AnyModel:
    """Validate a body with this model. Raises InvalidRequest with the first error; `prefix` is the path of the body.

    Null in an optional field counts as absent.

    pydantic holds the GIL while it describes errors. If there are many, only the start of the body is validated again.
    """
    if not isinstance(body, dict):
        raise errors.InvalidRequest(f"the body must be an object; got {short(body)}", field="body")
    most = len(model.model_fields) + 1  # enough fields to include an unknown one
    few = body if len(body) <= most else dict(islice(body.items(), most))
    try:
        return model.model_validate(few)
    except ValidationError as error:
        if (omitted := nulls.omit(model, few)) != few:
            return validate(model, omitted, prefix)
        if (count := error.error_count()) <= _MAX_ERRORS:
            raise problem(error, model, prefix) from None
    try:
        model.model_validate(_truncate(few))
    except ValidationError as error:
        raise problem(error, model, prefix) from None
    detail = f"{count} values are invalid, beyond the first {_MAX_ERRORS} of a list or object"
    raise errors.InvalidRequest(f"{prefix or 'body'}: {detail}", field=prefix or "body")


def _truncate(value: Any) -> Any:
    """Return a JSON value with only the first items of each list and object."""
    if isinstance(value, dict):
        return {name: _truncate(item) for name, item in islice(value.items(), _MAX_ERRORS)}
    return [_truncate(item) for item in value[:_MAX_ERRORS]] if isinstance(value, list) else value


def is_quick(body: Any) -> bool:
    """Return True if a submission can be planned without I/O: it is not a program and requests no webhook."""
    kind = body.get("type") if isinstance(body, dict) else None
    return (
        isinstance(kind, str) and kind in registry.names() and not registry.program_kind(kind) and "notify" not in body
    )


def parse_submission(body: Any) -> Submission:
    """Parse the body of a submission. Raises InvalidRequest if a field is invalid."""
    return validate(Submission, body)


def question(kind: str, parameters: dict[str, Any], principal: Principal, fleet: scheduler.Fleet) -> AcceptedJob:
    """Return a job that computes data on demand, with the highest priority and a short lifetime.

    Equal requests of a tenant share one job.
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
            raise errors.Forbidden(f"{asked.type} runs programs, which are not allowed here", field="type")
        if programs.is_for_leader and not references.leads:
            detail = (
                f"type: only the cluster itself submits jobs of {asked.type}; use POST /api/services or: cluster serve"
            )
            raise errors.InvalidRequest(detail, field="type")
        parameters, held = references.resolve(programs, parameters)
    plan = definition.plan(parameters)
    if not 1 <= plan.total <= MAX_UNITS:
        raise errors.InvalidRequest(
            f"parameters: result in {plan.total} units; a job must have 1 to {MAX_UNITS} units", field="parameters"
        )
    if len(json.dumps(plan.spec)) > _MAX_SPEC:
        raise errors.InvalidRequest(
            f"parameters: the job's specification exceeds {_MAX_SPEC} bytes", field="parameters"
        )
    return definition.model_version, replace(plan, artifacts=held)


def _device(asked: Submission) -> Device:
    """Return the requested device. Raises InvalidRequest for a device that the kind cannot use."""
    device = Device(_choice(asked.device or "any", ["gpu", "any", "cpu", "runner"], "device"))
    if asked.device is not None and asked.gpu_preferred:
        raise errors.InvalidRequest("gpu_preferred: cannot be combined with device", field="gpu_preferred")
    if registry.program_kind(asked.type) and (asked.gpu_preferred or device not in (Device.ANY, Device.RUNNER)):
        field = "gpu_preferred" if asked.gpu_preferred else "device"
        detail = (
            f"{field}: must be omitted, since {asked.type} runs on runners; request GPUs with parameters.requirements"
        )
        raise errors.InvalidRequest(detail, field=field)
    return device


def _parents(asked: Submission) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return `after` and `after_any` without duplicates. Raises InvalidRequest for a job in both, and for too many."""
    after, after_any = tuple(dict.fromkeys(asked.after)), tuple(dict.fromkeys(asked.after_any))
    if twice := next((job for job in after_any if job in set(after)), None):
        raise errors.InvalidRequest(f"after_any: job {twice} is also in after; name it only once", field="after_any")
    if (count := len(after) + len(after_any)) > MAX_PARENTS:
        detail = f"after_any: after and after_any can name {MAX_PARENTS} jobs together; got {count}"
        raise errors.InvalidRequest(detail, field="after_any")
    return after, after_any


def unknown_parent(field: str, job_id: str) -> errors.Conflict:
    """Return the error for a dependency that does not exist or belongs to another tenant."""
    return errors.Conflict(
        f"{field}: job {job_id} does not exist; it was deleted, has expired (RESULT_TTL) or never existed. "
        "List jobs with GET /api/jobs",
        field=field,
    )


def accept(
    asked: Submission,
    principal: Principal,
    fleet: scheduler.Fleet,
    settings: Settings,
    references: References | None = None,
) -> AcceptedJob:
    """Plan and route a submission. Raises InvalidRequest if a field is invalid.

    Programs require `references`.
    """
    _check_guest(asked, principal)
    requested = Priority(_choice(asked.priority, ["high", "normal", "low"], "priority"))
    priority, notes = guests.limit_priority(principal, requested)
    device = _device(asked)
    after, after_any = _parents(asked)
    version, plan = _plan_job(asked, references)
    route = scheduler.route(plan, device, asked.gpu_preferred, priority, fleet, principal.tenant)
    if notes := (*notes, *route.notes):
        plan = replace(plan, notes=(*plan.notes, *notes))
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
        name=asked.name or "",
        tags=tuple(dict.fromkeys(asked.tags)),
    )
    wait = scheduler.estimate_start(job.queue, fleet, job.tenant, job.kind, version, plan.requirements)
    return AcceptedJob(job=job, estimated_wait_seconds=wait)


def _check_guest(asked: Submission, principal: Principal) -> None:
    """Raise Forbidden if a guest submits a kind without kernels, or a field that needs a token."""
    if not {Device.CPU, Device.GPU}.intersection(registry.devices(asked.type)):
        guests.require_token(principal, "type", f"{asked.type} runs programs, which")
    for field in filter(lambda name: getattr(asked, name), _TOKEN_FIELDS):
        guests.require_token(principal, field)


def _requested_device(asked: Submission, plan: Plan) -> str:
    """Return the device as requested, for responses about the job."""
    if plan.devices == (Device.RUNNER,):
        return Device.RUNNER.value
    return asked.device or ("gpu_preferred" if asked.gpu_preferred else Device.ANY.value)


def limit_error(limit: CapReached, tenant: str) -> errors.OverLimit:
    """Return the error for a reached limit, with its value and the time until there is capacity if known."""
    if limit.cap == "MAX_QUEUED":
        detail = (
            f"the cluster has reached MAX_QUEUED: {limit.value} jobs are queued or blocked; submit the job again "
            "when some of them have ended"
        )
    elif limit.cap == "requirements":
        detail = (
            f"parameters.requirements: queued jobs already have {limit.value} different requirements; "
            "use one of these, or submit the job when some of them have ended"
        )
    elif limit.cap == "max_stored_bytes":
        first = f", the first in about {limit.seconds} s" if limit.awaits == "expiry" else ""
        detail = (
            f"tenant {tenant} would exceed its limit {limit.cap}: {limit.used} of {limit.value} bytes are in use by "
            f"its jobs; delete ended jobs, or wait until they expire (RESULT_TTL){first}"
        )
    elif limit.cap == "notify":
        detail = (
            f"notify: {limit.value} webhooks of tenant {tenant} wait for receivers that do not respond; see `cluster "
            "webhook list --state pending`, or submit the job without notify"
        )
    else:
        detail = (
            f"tenant {tenant} has reached {limit.cap}: {limit.value} of its jobs are queued or running; "
            f"{_describe_deadline(limit)}. {_advise_at_limit(tenant)}"
        )
    field = "parameters.requirements" if limit.cap == "requirements" else limit.cap
    seconds = min(limit.seconds, _LONGEST_GUESS) if limit.awaits == "end" else limit.seconds
    return errors.OverLimit(detail, field=field, seconds=seconds)


def _describe_deadline(limit: CapReached) -> str:
    if limit.awaits == "end":
        return f"one of them ends in about {limit.seconds} s at its current rate"
    if limit.awaits == "day":
        return f"all of them wait for the next day (UTC), which starts in {limit.seconds} s"
    return "it is not known when one of them ends"


def _advise_at_limit(tenant: str) -> str:
    if tenant == GUEST_TENANT:
        return f"Try again when one of them has ended, or use a token; {guests.ADVICE}"
    return "With hold the job is queued until one of them ends"


def refusal(job: NewJob, written: tuple[str, str] | CapReached) -> errors.ClusterError | None:
    """Return the error that rejected a job, or None if the job was written or already existed."""
    if isinstance(written, CapReached):
        return limit_error(written, job.tenant)
    how, what = written
    if how == "artifact":
        return artifact_deleted(job.plan.parameters, what)
    if how == "refused":
        return errors.Unavailable(f"{what}; the job was not accepted, submit it again in a moment")
    if how in ("after", "after_any"):
        return unknown_parent(how, what)
    if how == "workflow":
        return errors.Conflict(f"workflow {job.workflow} is {what or 'deleted'}", field="workflow")
    if how == "taken":
        return errors.Conflict(f"job ID {what} is already in use; submit the job again", field="job_id")
    if how == "conflict":
        return errors.Conflict(
            f"idempotency_key: already used by job {what} with a different body; use a new key", field="idempotency_key"
        )
    return None


def _digest(asked: Submission) -> str:
    body = asked.model_dump(exclude={"idempotency_key"})
    # Fields added after digests existed. Omitted when unset, so that digests of earlier versions stay valid.
    body = {name: value for name, value in body.items() if value or name not in ("name", "tags")}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
