"""Types of responses about workflows."""

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
    attempt: Annotated[Count, describe("Number of the attempt, which is 1 plus the number of retries.")]
    created: Annotated[Moment, describe("Time of submission, in RFC 3339 and UTC.")]
    ended: Moment | None
    total: Annotated[Count, describe("Number of actions.")]
    counts: Annotated[dict[str, Count], describe("Number of actions by state.")]
    waiting_because: Annotated[str | None, describe("Why the next job is not submitted; null: no reason.")]
    error: Annotated[
        str | None, describe("First failed action and its error. For a cancelled workflow, the services that remain.")
    ]
    notify: Annotated[str | None, describe("Webhook URL for the end of the workflow. Its path is hidden.")]


class Retried(Workflow):
    notes: Annotated[Many[str], describe("Actions that start from the beginning, with reasons, up to 20.")]


class Items(Answer):
    """Progress of an action that runs once for each item of a list."""

    done: Annotated[Count, describe("Number of items whose job has ended.")]
    total: Count


class Action(Answer):
    action_id: str
    action_type: str
    state: Annotated[str, describe(_OF_ACTIONS)]
    dependencies: Annotated[
        Many[str], describe("Actions that must be done first, including actions referred to in parameters.")
    ]
    after_any: Annotated[Many[str], describe("Actions that must have ended first.")]
    job_id: Annotated[str | None, describe("Job of the action; null if it has none yet.")]
    waiting_because: Annotated[
        str | None, describe("Why the job is not running now. Given for the first 20 actions that wait for a job.")
    ]
    error: str | None
    started: Moment | None
    ended: Moment | None
    progress: Annotated[float | None, describe("Fraction of the job's units that are done, 0..1.")]
    items: Annotated[Items | None, describe("Progress of an action with foreach.")]
    message: Annotated[str | None, describe("Question of an approval; null for other actions.")]


class Item(Answer):
    """Job for one item of an action that runs once for each item of a list."""

    index: Count
    state: str
    job_id: str | None
    error: str | None


class ActionDetail(Action):
    parameters: Annotated[dict[str, Any], describe("Parameters as written in the file.")]
    foreach: Annotated[Any, describe("The foreach expression as written in the file; null: the action runs once.")]
    item_jobs: Annotated[Many[Item], describe("Jobs of a foreach, up to 1,000.")]
    result: Annotated[Any, describe("Result of an action that is not a job.")]


class Course(Workflow):
    actions: Annotated[Many[Action], describe("Actions in topological order.")]
    services: Annotated[
        Many[str],
        describe(
            "Running services that only this workflow started. After a failure, they keep running until "
            "DELETE /api/services/NAME."
        ),
    ]


class Workflows(Answer):
    workflows: Annotated[Many[Workflow], describe("Workflows, newest first.")]
    cursor: Annotated[str | None, describe("Cursor of the next page; null on the last page.")]


class Complaint(Answer):
    """A problem in a workflow file, with its line and column."""

    line: Annotated[Count, describe("Line number, from 1.")]
    column: Annotated[Count, describe("Column number, from 1.")]
    action: Annotated[str, describe("Affected action; empty: the whole workflow.")]
    field: Annotated[str, describe("Dotted path within the action, or within the workflow.")]
    detail: str


class Validation(Answer):
    valid: bool
    name: str | None
    actions: Count
    edges: Annotated[Count, describe("Number of dependencies of all actions.")]
    layers: Annotated[Count, describe("Number of actions on the longest path.")]
    problems: Annotated[Many[Complaint], describe("The first 100 problems.")]
    notes: Annotated[Many[Complaint], describe("Parameters without effect, up to 100.")]
    more: Annotated[Count, describe("Number of further problems or notes.")]


class WorkflowProblem(Problem):
    """Error response for an invalid workflow file or invalid inputs, with all problems."""

    problems: NotRequired[
        Annotated[Many[dict[str, Any]], describe("Problems of the file as in a validation, up to 100.")]
    ]
    more: NotRequired[Annotated[Count, describe("Number of further problems.")]]
