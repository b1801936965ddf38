"""Submission of workflows by API requests, and by the leader for schedules."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from coordinator import destinations
from coordinator.access.principal import Principal
from coordinator.cluster import Cluster
from coordinator.jobs import submissions
from coordinator.jobs.delegated_submission import Maker
from coordinator.jobs.references import References
from coordinator.tracing import TraceContext
from coordinator.workflows.documents import action_types, document, substitution, validation
from coordinator.workflows.documents.document import Document
from jobs import errors
from jobs.kinds import registry
from jobs.settings import Settings
from jobs.store import workflows
from jobs.store.work.jobs import CapReached
from jobs.store.workflows import NewWorkflow, Workflows


def submit(
    store: Workflows,
    settings: Settings,
    text: bytes,
    principal: Principal,
    *,
    notify: str = "",
    key: str = "",
    trace: TraceContext | None = None,
) -> str:
    """Store a workflow and return its ID.

    If a workflow with the same key (OWNER:KEY) and text exists, return the ID of that workflow. `notify` overrides the
    URL in the text. `trace` is the parent span of the workflow's jobs, or None. Raises InvalidWorkflow, Forbidden,
    Conflict, UnknownTenant and OverLimit.
    """
    whole = validate_submission(text, principal, settings, notify)
    new = NewWorkflow(
        key=key,
        digest=hashlib.sha256(text).hexdigest(),
        document=document.pack(whole),
        name=whole.name,
        description=whole.description,
        total=len(whole.actions),
        run=Maker.of(principal).runs_programs,
        notify=whole.notify,
        traceparent=trace.text() if trace else "",
        tracestate=trace.state if trace else "",
    )
    added = store.add(new, principal.actor)
    if isinstance(added, CapReached):
        raise _limit_error(added, principal.tenant)
    how, what = added
    if refusal := _rejection(how, what, principal.tenant):
        raise refusal
    return what


def validate_submission(text: bytes, principal: Principal, settings: Settings, notify: str = "") -> Document:
    """Validate a workflow and the principal's permissions. Raises InvalidWorkflow, InvalidRequest or Forbidden."""
    valid = validation.validate(text)
    _check_may_run(valid.document, principal)
    if not (receiver := notify or valid.document.notify):
        return valid.document
    return replace(valid.document, notify=destinations.parse_receiver(receiver, settings))


def artifacts(cluster: Cluster, whole: Document, principal: Principal) -> tuple[str, ...]:
    """Return the existing artifacts that a workflow's jobs need, as far as their parameters are known."""
    fleet, found = cluster.queries.fleet_cache.get(), References(principal, cluster.artifacts, cluster.secrets)
    needed: dict[str, None] = {}
    for action in whole.actions.values():
        if action.late or not action_types.TYPES[action.type].is_job:
            continue
        parameters = substitution.fill_parameters(action.type, action.parameters, lambda _: None)
        body = {"type": action.type, "parameters": parameters, **action.options}
        try:
            job = submissions.accept(submissions.parse_submission(body), principal, fleet, cluster.settings, found).job
        except errors.Unavailable:
            raise
        except errors.ClusterError:
            continue  # a missing artifact may exist by the time that the job runs
        needed |= dict.fromkeys(job.plan.artifacts)
    return tuple(needed)


def _check_may_run(whole: Document, principal: Principal) -> None:
    """Raise Forbidden if the workflow contains programs and the principal cannot run programs."""
    runs = Maker.of(principal).runs_programs
    for action in whole.actions.values():
        of = action_types.TYPES[action.type]
        if not runs and (of.runs or (of.is_job and registry.program_kind(action.type))):
            detail = f"line {action.place.line}: {action.id} runs a program, which requires a token with the scope run"
            raise errors.Forbidden(
                f"{detail}: cluster token create NAME --scopes read,submit,run", field="Authorization"
            )


def _limit_error(limit: CapReached, tenant: str) -> errors.OverLimit:
    if limit.cap == "notify":
        return submissions.limit_error(limit, tenant)
    detail = (
        f"tenant {tenant} would exceed its limit {limit.cap}: {limit.used} of {limit.value} bytes are in use; "
        "delete jobs, artifacts or workflows that have ended"
    )
    return errors.OverLimit(detail, field=limit.cap, seconds=limit.seconds)


def _rejection(how: str, what: str, tenant: str) -> errors.ClusterError | None:
    if how == "conflict":
        detail = "Idempotency-Key: already used by a workflow with a different text; use a new key"
        return errors.Conflict(detail, field="Idempotency-Key")
    if how == "missing":
        return errors.UnknownTenant(tenant)
    if how == "live":
        detail = f"tenant {tenant} has {what} active workflows, which is the maximum"
        return errors.OverLimit(f"{detail}; cancel one or wait: cluster workflow list", field="workflows", seconds=10)
    if how == "full":
        detail = f"the workflows of tenant {tenant} use {what} of at most {workflows.MAX_STORED} bytes"
        return errors.OverLimit(f"{detail}; delete workflows that have ended", field="workflows", seconds=60)
    return None
