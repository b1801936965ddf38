"""API routes of workflows: submit, validate, list, get, cancel, retry, approve, reject and delete."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Header, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from coordinator import destinations
from coordinator.access.principal import Principal, Scope
from coordinator.cluster import Cluster
from coordinator.jobs import submissions
from coordinator.server import bodies, http, patterns
from coordinator.server.http import json_response
from coordinator.state import shared_state
from coordinator.tracing import TraceContext
from coordinator.workflows import planning, serializers, submitting
from coordinator.workflows.documents import action_types, validation
from coordinator.workflows.documents.document import Document, InvalidWorkflow
from coordinator.workflows.documents.validation import Valid
from coordinator.workflows.planning import APPROVAL
from coordinator.workflows.queries import WorkflowQueries
from jobs import errors
from threads_protocol import ports
from threads_protocol.answers import workflows as answers
from threads_protocol.yaml_texts import MAX_BYTES, Complaint, Complaints

routes = http.router(tag="workflows")

_SUBMIT = [http.require_scope(Scope.SUBMIT)]
#: Operators can control the workflows of all tenants.
_STEERS = [http.require_scope(Scope.SUBMIT, Scope.OPERATE)]
_CURSOR = r"^[0-9]{1,16}-[0-9a-f]{12,16}$"
_TEXT = {"schema": {"type": "string"}}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "Workflow in YAML 1.2 or JSON, up to 4 MiB; see docs/workflows.md",
        "content": {"application/yaml": _TEXT, "application/json": {"schema": {"type": "object"}}},
    }
}
_INVALID: dict[str, Any] = {
    "description": "The workflow text is invalid.",
    "content": http.describe_problem(answers.WorkflowProblem),
}


async def _workflows(request: Request, cluster: http.ClusterDep) -> WorkflowQueries:
    store = cluster.store
    documents = shared_state(request).engine.documents
    return WorkflowQueries(store.workflows, store.services, documents, cluster.queries.jobs)


Queries = Annotated[WorkflowQueries, Depends(_workflows)]
WorkflowId = Annotated[str, Path(pattern=patterns.JOB_ID, description="Workflow ID.")]
ActionId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,32}$", description="Action ID.")]


@routes.post(
    "/workflows",
    dependencies=_SUBMIT,
    openapi_extra=_BODY,
    **http.describe_response(answers.Workflow, 202, others={"422": _INVALID}),
)
async def submit_workflow(
    request: Request,
    cluster: http.ClusterDep,
    queries: Queries,
    principal: http.PrincipalDep,
    trace: http.TraceContextDep,
    idempotency_key: Annotated[str | None, Header(max_length=submissions.MAX_KEY)] = None,
    notify: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=destinations.MAX_URL,
            description="Overrides `notify` in the text.",
        ),
    ] = None,
) -> Response:
    """Submit a workflow. If its text is invalid, the response is a 422 that lists the first errors with line and
    column.
    """
    async with bodies.open_bytes(request, MAX_BYTES, shared_state(request).workflow_body_memory) as text:
        name = await run_in_threadpool(_submit, cluster, text, principal, idempotency_key, notify or "", trace)
    return json_response(await run_in_threadpool(queries.row, name, principal.tenant), 202)


def _submit(
    cluster: Cluster, text: bytes, principal: Principal, key: str | None, notify: str, trace: TraceContext | None
) -> str:
    return submitting.submit(
        cluster.store.workflows,
        cluster.settings,
        text,
        principal,
        notify=notify,
        key=f"workflow@{principal.tenant}:{key}" if key else "",
        trace=trace,
    )


@routes.post(
    "/workflows/validate", dependencies=_SUBMIT, openapi_extra=_BODY, **http.describe_response(answers.Validation)
)
async def validate_workflow(request: Request) -> Response:
    """Validate a workflow text without submitting it. The response lists all errors with line and column."""
    async with bodies.open_bytes(request, MAX_BYTES, shared_state(request).workflow_body_memory) as text:
        row = await run_in_threadpool(_validate, text)
    return json_response(row)


def _validate(text: bytes) -> answers.Validation:
    try:
        valid = validation.validate(text)
    except InvalidWorkflow as error:
        problems = [serializers.serialize_complaint(one) for one in error.complaints]
        return {
            "valid": False,
            "name": None,
            "actions": 0,
            "edges": 0,
            "layers": 0,
            "problems": problems,
            "notes": [],
            "more": error.more,
        }
    return _describe(valid)


def _describe(valid: Valid) -> answers.Validation:
    actions = valid.document.actions
    depth: dict[str, int] = {}
    for action in actions.values():
        depth[action.id] = 1 + max((depth[name] for name in (*action.dependencies, *action.after_any)), default=0)
    edges = sum(len(action.dependencies) + len(action.after_any) for action in actions.values())
    notes = _notes(valid.document)
    return {
        "valid": True,
        "name": valid.document.name,
        "actions": len(actions),
        "edges": edges,
        "layers": max(depth.values()),
        "problems": [],
        "more": notes.more,
        "notes": [serializers.serialize_complaint(one) for one in notes.first],
    }


def _notes(whole: Document) -> Complaints:
    """Return a note for each action whose port has no effect."""
    return Complaints(
        Complaint(place=action.place, action=action.id, field="port", text=ports.explain_unused(port))
        for action in whole.actions.values()
        if action.type == "serve" and isinstance(port := action.parameters.get("port"), int)
    )


@routes.get("/workflows", **http.describe_response(answers.Workflows))
def list_workflows(
    queries: Queries,
    principal: http.PrincipalDep,
    cursor: Annotated[str | None, Query(pattern=_CURSOR, description="Value of `cursor` in the previous page.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """List workflows, newest first."""
    return json_response(queries.page(principal.only_tenant, cursor, limit))


@routes.get("/workflows/{workflow_id}", **http.describe_response(answers.Course))
def get_workflow(workflow_id: WorkflowId, queries: Queries, principal: http.PrincipalDep) -> Response:
    """Return a workflow with its actions in topological order."""
    return json_response(queries.course(workflow_id, principal.only_tenant))


@routes.get("/workflows/{workflow_id}/actions/{action_id}", **http.describe_response(answers.ActionDetail))
def get_action(
    workflow_id: WorkflowId, action_id: ActionId, queries: Queries, principal: http.PrincipalDep
) -> Response:
    """Return one action with its parameters and, for a foreach, its jobs."""
    return json_response(queries.action(workflow_id, action_id, principal.only_tenant))


@routes.post("/workflows/{workflow_id}/cancel", dependencies=_STEERS, **http.describe_response(answers.Workflow))
def cancel_workflow(
    workflow_id: WorkflowId, cluster: http.ClusterDep, queries: Queries, principal: http.PrincipalDep
) -> Response:
    """Cancel a workflow and its unfinished jobs. If the workflow has ended, the response is a 409."""
    queries.one(workflow_id, principal.only_tenant)
    _check(workflow_id, "cancel", cluster.store.workflows.cancel(workflow_id, principal.actor))
    return json_response(queries.row(workflow_id, principal.only_tenant))


@routes.post("/workflows/{workflow_id}/retry", dependencies=_STEERS, **http.describe_response(answers.Retried))
def retry_workflow(
    workflow_id: WorkflowId, cluster: http.ClusterDep, queries: Queries, principal: http.PrincipalDep
) -> Response:
    """Retry a failed or cancelled workflow. Completed actions stay, and jobs continue from their last progress.

    `notes` lists the actions that start again because their jobs cannot continue.
    """
    known, retry, notes = queries.retry(workflow_id, principal.only_tenant)
    answer = cluster.store.workflows.retry(workflow_id, known.attempt, retry.goes_on, retry.restarted, principal.actor)
    _check(workflow_id, "retry", answer)
    row: answers.Retried = {**queries.row(workflow_id, principal.only_tenant), "notes": notes}
    return json_response(row)


@routes.post(
    "/workflows/{workflow_id}/actions/{action_id}/approve",
    dependencies=_STEERS,
    **http.describe_response(answers.Workflow),
)
def approve_action(
    workflow_id: WorkflowId,
    action_id: ActionId,
    cluster: http.ClusterDep,
    queries: Queries,
    principal: http.PrincipalDep,
) -> Response:
    """Approve an action that waits for a person. If the action still waits for other actions, the response is a 409."""
    attempt = _require_decision(queries, workflow_id, action_id, "done", principal)
    moment = int(cluster.store.clock.now() * 1000)
    given = {"by": principal.name or principal.token, "at": moment}
    record = {"state": "done", "result": given, "ended": moment}
    answer = cluster.store.workflows.decide(workflow_id, attempt, action_id, "approve", record, principal.actor)
    _check(workflow_id, "approve an action of", answer)
    return json_response(queries.row(workflow_id, principal.only_tenant))


@routes.post(
    "/workflows/{workflow_id}/actions/{action_id}/reject",
    dependencies=_STEERS,
    **http.describe_response(answers.Workflow),
)
def reject_action(
    workflow_id: WorkflowId,
    action_id: ActionId,
    cluster: http.ClusterDep,
    queries: Queries,
    principal: http.PrincipalDep,
) -> Response:
    """Reject an action that waits for a person. The action fails, and a retry of the workflow asks again."""
    attempt = _require_decision(queries, workflow_id, action_id, "failed", principal)
    name = principal.name or principal.token
    moment = int(cluster.store.clock.now() * 1000)
    record = {"state": "failed", "error": f"rejected by {name}" if name else "rejected", "ended": moment}
    answer = cluster.store.workflows.decide(workflow_id, attempt, action_id, "reject", record, principal.actor)
    _check(workflow_id, "reject an action of", answer)
    return json_response(queries.row(workflow_id, principal.only_tenant))


def _require_decision(queries: Queries, workflow: str, name: str, outcome: str, principal: http.PrincipalDep) -> int:
    """Return the workflow's attempt. Raise Conflict unless the action waits for a person or has this outcome."""
    whole, known, plan, _ = queries.planned(workflow, principal.only_tenant)
    action = whole.actions.get(name)
    if action is None or action.type != action_types.APPROVE:
        there = ", ".join(validation.approvals(whole)) or "none"
        detail = f"workflow {workflow} has no approval {name}; its approvals are {there}"
        raise errors.NotFound(detail, field="action_id")
    state = plan.states[name]
    if state not in (APPROVAL, outcome):
        open_ones = [each for each in action.dependencies if plan.states[each] != "done"]
        what = f"waits for {', '.join(open_ones[:5])}" if state == planning.WAITING else f"is {state}"
        verb = "approved" if outcome == "done" else "rejected"
        raise errors.Conflict(f"{name} {what}; it cannot be {verb} now", field="action_id")
    return known.attempt


@routes.delete("/workflows/{workflow_id}", status_code=204, dependencies=_STEERS)
def delete_workflow(
    workflow_id: WorkflowId, cluster: http.ClusterDep, queries: Queries, principal: http.PrincipalDep
) -> Response:
    """Delete a workflow that has ended. Its jobs stay until they are deleted or expire."""
    queries.one(workflow_id, principal.only_tenant)
    _check(workflow_id, "delete", cluster.store.workflows.delete(workflow_id, principal.actor))
    return Response(status_code=204)


def _check(workflow: str, verb: str, answer: list[str]) -> None:
    """Raise the exception for an error that a Redis function returned."""
    how, *rest = answer
    if how == "missing":
        raise errors.missing("workflow", workflow, "workflow_id")
    if how == "conflict":
        first = "; cancel it first" if verb == "delete" else ""
        raise errors.Conflict(f"cannot {verb} a workflow that is {rest[0]}{first}", field="state")
