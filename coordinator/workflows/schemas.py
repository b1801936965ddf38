"""Answers about workflows, for the API's description and the tests."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from coordinator.schemas import Answer, Problem, required

_STATES = "running, waiting (for a person), done, failed, cancelling or cancelled."
_OF_ACTIONS = (
    "waiting (for other actions), approval (for a person), done, failed, skipped, cancelled, or the state of its job."
)


class Workflow(Answer):
    workflow_id: str
    tenant: str
    name: str
    description: str
    state: str = required(_STATES)
    attempt: int = required("1, and one more for each retry.")
    created: str = required("RFC 3339, UTC.")
    ended: str | None
    total: int = required("Actions.")
    counts: dict[str, int] = required("Actions by state.")
    waiting_because: str | None = required("Why its next job is not submitted; null: for no reason.")
    error: str | None = required("Its first action that failed, and why; what it leaves, where it was cancelled.")
    notify: str | None = required("Where a webhook goes at its end; of its path no more than that there is one.")


class Retried(Workflow):
    notes: list[str] = required("Actions that begin anew, and why; at most the first 20.")


class Items(Answer):
    """Progress of a foreach."""

    done: int = required("Items whose job has ended.")
    total: int


class Action(Answer):
    action_id: str
    action_type: str
    state: str = required(_OF_ACTIONS)
    dependencies: list[str] = required("Actions that must be done before it, those that it refers to among them.")
    after_any: list[str] = required("Actions that must have ended before it.")
    job_id: str | None = required("Its job; null: it has none, or not yet.")
    waiting_because: str | None = required("Why its job does not run now; of the first 20 actions that wait for a job.")
    error: str | None
    started: str | None
    ended: str | None
    progress: float | None = required("Part of its job's units that is done, 0..1.")
    items: Items | None = required("Of an action with foreach.")


class Item(Answer):
    """Job of one item of a foreach."""

    index: int
    state: str
    job_id: str | None
    error: str | None


class ActionDetail(Action):
    parameters: dict[str, Any] = required("As they are written.")
    foreach: Any = required("As it is written; null: it is carried out once.")
    item_jobs: list[Item] = required("Of a foreach, the first 1,000.")
    result: Any = required("What it gave, of an action that is no job.")


class Course(Workflow):
    actions: list[Action] = required("Each comes after those that it waits for.")
    services: list[str] = required(
        "Services that it alone began and that are there. Those of one that failed stay: DELETE /api/services/NAME."
    )


class Workflows(Answer):
    workflows: list[Workflow] = required("Newest first.")
    cursor: str | None = required("Where the next page begins; null: there is none.")


class Complaint(Answer):
    """Complaint about a text, and its place."""

    line: int = required("From 1.")
    column: int = required("From 1.")
    action: str = required("Empty: it is about the whole.")
    field: str = required("Dotted path within the action, or within the workflow.")
    detail: str


class Validation(Answer):
    valid: bool
    name: str | None
    actions: int
    edges: int = required("Dependencies of all actions.")
    layers: int = required("Actions of the longest path.")
    problems: list[Complaint] = required("At most the first 100.")
    notes: list[Complaint] = required("Actions that this cluster cannot carry out, at most the first 100.")
    more: int = required("Problems or notes besides these.")


class Refused(Problem):
    """Refusal of a text, with all that is wrong with it, or of what came with it."""

    problems: list[dict[str, Any]] = Field([], description="Those of the text, as of a validation; the first 100.")
    more: int = Field(0, description="Problems besides these.")
