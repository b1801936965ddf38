"""Responses about workflows."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from threads_protocol.answers.fields import Answer, Count, Many, Moment, Problem, describe

_STATES = "running, waiting (for a person), done, failed, cancelling or cancelled."

_OF_ACTIONS = (
    "waiting (for other actions), approval (for a person), done, failed, skipped, cancelled, or the state of its job."
)


class Workflow(Answer):
    workflow_id: str
    tenant: str
    name: str
    description: str
    state: Annotated[str, describe(_STATES)]
    attempt: Annotated[Count, describe("1, and one more for each retry.")]
    created: Annotated[Moment, describe("RFC 3339, UTC.")]
    ended: Moment | None
    total: Annotated[Count, describe("Actions.")]
    counts: Annotated[dict[str, Count], describe("Actions by state.")]
    waiting_because: Annotated[str | None, describe("Why its next job is not submitted; null: for no reason.")]
    error: Annotated[
        str | None, describe("Its first action that failed, and why; what it leaves, where it was cancelled.")
    ]
    notify: Annotated[
        str | None, describe("Where a webhook goes at its end; of its path no more than that there is one.")
    ]


class Retried(Workflow):
    notes: Annotated[Many[str], describe("Actions that start from the beginning, and why; at most 20.")]


class Items(Answer):
    """Progress of an action with `foreach`."""

    done: Annotated[Count, describe("Items whose job has ended.")]
    total: Count


class Action(Answer):
    action_id: str
    action_type: str
    state: Annotated[str, describe(_OF_ACTIONS)]
    dependencies: Annotated[
        Many[str], describe("Actions that must be done before it, those that it refers to among them.")
    ]
    after_any: Annotated[Many[str], describe("Actions that must have ended before it.")]
    job_id: Annotated[str | None, describe("Its job; null: it has none, or not yet.")]
    waiting_because: Annotated[
        str | None, describe("Why its job does not run now; of the first 20 actions that wait for a job.")
    ]
    error: str | None
    started: Moment | None
    ended: Moment | None
    progress: Annotated[float | None, describe("Part of its job's units that is done, 0..1.")]
    items: Annotated[Items | None, describe("Of an action with foreach.")]


class Item(Answer):
    """Job of one item of a `foreach`."""

    index: Count
    state: str
    job_id: str | None
    error: str | None


class ActionDetail(Action):
    parameters: Annotated[dict[str, Any], describe("As they are written.")]
    foreach: Annotated[Any, describe("As it is written; null: it is carried out once.")]
    item_jobs: Annotated[Many[Item], describe("Of a foreach, the first 1,000.")]
    result: Annotated[Any, describe("What it gave, of an action that is no job.")]


class Course(Workflow):
    actions: Annotated[Many[Action], describe("Each comes after those that it waits for.")]
    services: Annotated[
        Many[str],
        describe(
            "Services that it alone began and that are there. Those of one that failed stay: DELETE /api/services/NAME."
        ),
    ]


class Workflows(Answer):
    workflows: Annotated[Many[Workflow], describe("Newest first.")]
    cursor: Annotated[str | None, describe("Where the next page begins; null: there is none.")]


class Complaint(Answer):
    """A problem in a workflow file, with its position."""

    line: Annotated[Count, describe("From 1.")]
    column: Annotated[Count, describe("From 1.")]
    action: Annotated[str, describe("Empty: it is about the whole.")]
    field: Annotated[str, describe("Dotted path within the action, or within the workflow.")]
    detail: str


class Validation(Answer):
    valid: bool
    name: str | None
    actions: Count
    edges: Annotated[Count, describe("Dependencies of all actions.")]
    layers: Annotated[Count, describe("Actions of the longest path.")]
    problems: Annotated[Many[Complaint], describe("At most the first 100.")]
    notes: Annotated[Many[Complaint], describe("Actions that this cluster cannot carry out, at most the first 100.")]
    more: Annotated[Count, describe("Number of further problems or notes.")]


class Refused(Problem):
    """Error response for a workflow file, with all its problems, or for its inputs."""

    problems: NotRequired[
        Annotated[Many[dict[str, Any]], describe("Those of the text, as of a validation; the first 100.")]
    ]
    more: NotRequired[Annotated[Count, describe("Number of further problems.")]]
