"""Build the API responses about workflows and actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from coordinator import decoding, destinations
from coordinator.workflows import engine, planning
from coordinator.workflows.documents import action_types, document
from coordinator.workflows.documents.document import Action
from coordinator.workflows.planning import WAITING, Known, Plan, item_key
from jobs.store.workflows import StoredWorkflow
from threads_protocol.answers import workflows as answers
from threads_protocol.states import TERMINAL
from threads_protocol.yaml_texts import Complaint

#: Job fields that the response of an action contains.
JOB_FIELDS = ("state", "started", "ended", "done", "total", "error")
#: Maximum number of foreach jobs in the response of an action.
_ITEMS = 1000


def serialize_workflow(stored: StoredWorkflow) -> answers.Workflow:
    """Return a workflow without its actions, with the state that the leader stored last."""
    counts = dict(stored.counts) or {WAITING: stored.total}
    return {
        "workflow_id": stored.id,
        "tenant": stored.tenant,
        "name": stored.name,
        "description": stored.description,
        "state": stored.state,
        "attempt": stored.attempt,
        "created": decoding.format_ms(stored.created),
        "ended": decoding.format_optional_ms(stored.ended),
        "total": stored.total,
        "counts": counts,
        "waiting_because": stored.waits or None,
        "error": stored.error or None,
        "notify": destinations.redact_path(stored.notify) if stored.notify else None,
    }


def serialize_action(
    action: Action, plan: Plan, known: Known, fields: Mapping[str, Sequence[bytes | None]]
) -> answers.Action:
    """Return the response about an action.

    `fields` contains the JOB_FIELDS of each action's job by action ID, and of failed items by ACTION/INDEX.
    """
    job, record = known.jobs.get(action.id), known.records.get(action.id)
    *_, done, total, _ = fields.get(action.id, (None,) * len(JOB_FIELDS))
    started, ended = _times(action, plan, known, fields)
    job_errors = {key: (fields[key][-1] or b"").decode(errors="replace") for key in _keys(action, plan, known, fields)}
    said = planning.describe_failure(action.id, plan, known, job_errors)
    items = None
    if action.foreach is not None:
        finished, of = engine.count_items(known, action.id)
        items = answers.Items(done=finished, total=of)
    return {
        "action_id": action.id,
        "action_type": action.type,
        "state": plan.states[action.id],
        "dependencies": list(action.dependencies),
        "after_any": list(action.after_any),
        "job_id": job.id if job else None,
        "waiting_because": None,
        "error": said or None,
        "started": _format_time(started),
        "ended": _format_time(ended) or decoding.format_optional_ms(record.ended if record else None),
        "progress": _progress(done, total),
        "items": items,
        "message": action.parameters.get("message") if action.type == action_types.APPROVE else None,
    }


def _times(action: Action, plan: Plan, known: Known, fields: Mapping[str, Sequence[bytes | None]]) -> tuple[int, int]:
    """Return the first start and the last end of an action's jobs in milliseconds. Unknown times are 0."""
    record = known.records.get(action.id)
    keys = [item_key(action.id, index) for index in range(len(record.items) if record else 0)] or [action.id]
    rows = [fields[key] for key in keys if key in fields]
    if len(rows) < len(keys):  # too many items to read, or items without a job
        return 0, 0
    starts, ends = ([int(row[place] or 0) for row in rows] for place in (1, 2))
    return min(filter(None, starts), default=0), max(ends) if plan.states[action.id] in TERMINAL else 0


def _keys(action: Action, plan: Plan, known: Known, fields: Mapping[str, Sequence[bytes | None]]) -> set[str]:
    """Return the keys of `fields` that explain a failure of the action."""
    return {action.id, planning.failed_key(action.id, plan, known)}.intersection(fields)


def serialize_items(action: Action, known: Known) -> list[answers.Item]:
    """Return the jobs of the first items of a foreach."""
    record = known.records.get(action.id)
    rows: list[answers.Item] = []
    for index in range(min(len(record.items) if record else 0, _ITEMS)):
        key = item_key(action.id, index)
        job, own = known.jobs.get(key), known.records.get(key)
        state = (job.state or "failed") if job else own.state if own else WAITING
        error = own.error if own else None
        rows.append({"index": index, "state": state, "job_id": job.id if job else None, "error": error})
    return rows


def serialize_complaint(complaint: Complaint) -> answers.Complaint:
    """Serialize an error of a workflow text."""
    return cast(answers.Complaint, document.complaint_fields(complaint))


def _format_time(ms: int) -> str | None:
    return decoding.format_optional_ms(str(ms)) if ms else None


def _progress(done: bytes | None, total: bytes | None) -> float | None:
    units = int(total or 0)
    return round(int(done or 0) / units, 4) if units else None
