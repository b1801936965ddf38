"""Read workflows from the store and serialize them. Nothing here writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coordinator.jobs.queries import JobQueries
from coordinator.services import model_services
from coordinator.workflows import engine, planning, retries, serializers
from coordinator.workflows.documents.action_types import SERVING
from coordinator.workflows.documents.document import Document
from coordinator.workflows.documents.documents import Documents
from coordinator.workflows.planning import ENDED, Known, Plan
from coordinator.workflows.retries import Retry
from coordinator.workflows.serializers import JOB_FIELDS
from jobs import errors
from jobs.kinds import registry
from jobs.store.services import Services
from jobs.store.workflows import Course, StoredWorkflow, Workflows
from threads_protocol.answers import workflows as answers

#: States of an action whose job is not running.
_HELD = frozenset({"queued", "blocked"})
#: Maximum number of jobs per response that show a waiting reason.
_EXPLAINED = 20
#: Maximum number of items of all foreach actions whose times are read.
_TIMED_ITEMS = 1000
#: Maximum number of notes in one response.
_NOTES = 20


class WorkflowQueries:
    """Reads workflows and their actions."""

    def __init__(self, store: Workflows, services: Services, documents: Documents, jobs: JobQueries) -> None:
        self._store = store
        self._services = services
        self._documents = documents
        self._jobs = jobs

    def one(self, workflow: str, tenant: str | None) -> StoredWorkflow:
        """Return a workflow of a tenant, or of any tenant if `tenant` is None. Raises NotFound."""
        [stored] = self._store.read([workflow])
        if stored is None or tenant not in (None, stored.tenant):
            raise errors.missing("workflow", workflow, "workflow_id")
        return stored

    def row(self, workflow: str, tenant: str | None) -> answers.Workflow:
        """Return a workflow without its actions. Raises NotFound."""
        return serializers.serialize_workflow(self.one(workflow, tenant))

    def page(self, tenant: str | None, cursor: str | None, limit: int) -> answers.Workflows:
        """Return up to `limit` workflows of one tenant or of all tenants, newest first."""
        created, _, name = (cursor or "").partition("-")
        found = self._store.page(tenant, (int(created), name) if cursor else None, limit)
        shown = [serializers.serialize_workflow(one) for one in self._store.read([each for _, each in found]) if one]
        return {"workflows": shown, "cursor": f"{found[-1][0]}-{found[-1][1]}" if len(found) == limit else None}

    def planned(self, workflow: str, tenant: str | None) -> tuple[Document, Known, Plan, Course]:
        """Return a workflow and the current states of its actions. Raises NotFound."""
        self.one(workflow, tenant)
        course = self._store.course(workflow)
        whole = self._documents.get(course.workflow) if course else None
        if course is None or whole is None:
            raise errors.NotFound(f"workflow {workflow} was deleted", field="workflow_id")
        known = engine.read_known(self._store, course)
        plan = planning.plan(whole, known)
        if known.state in ENDED and any(job.gone for job in known.jobs.values()):
            plan.states |= course.final  # some of its jobs have expired
        return whole, known, plan, course

    def retry(self, workflow: str, tenant: str | None) -> tuple[Known, Retry, list[str]]:
        """Return the plan to retry an ended workflow, and notes on the actions that start again. Raises NotFound."""
        whole, known, _, _ = self.planned(workflow, tenant)
        if known.state not in ENDED:
            return known, Retry([], []), []
        outdated = self._find_outdated(whole, known)
        retry = retries.plan_retry(whole, known, outdated)
        return known, retry, _notes(whole, known, retry, outdated)

    def _find_outdated(self, whole: Document, known: Known) -> dict[str, str]:
        """Return the versions of jobs that cannot continue because their kind now has another version, by key."""
        bad = {key: job.id for key, job in known.jobs.items() if job.state in ("failed", "cancelled") and not job.gone}
        stored = self._store.job_fields(list(bad.values()), ("version",)) if bad else []
        versions = {key: version.decode() for key, (version,) in zip(bad, stored, strict=True) if version}
        return {
            key: version
            for key, version in versions.items()
            if version != str(registry.definition(whole.actions[retries.action_of(key)].type).model_version)
        }

    def course(self, workflow: str, tenant: str | None) -> answers.Course:
        """Return a workflow with its actions. Raises NotFound."""
        whole, known, plan, course = self.planned(workflow, tenant)
        own = {key: job.id for key, job in known.jobs.items() if "/" not in key}
        own |= {key: known.jobs[key].id for key in _items_to_read(plan, known) if key in known.jobs}
        fields = dict(zip(own, self._store.job_fields(list(own.values()), JOB_FIELDS), strict=True)) if own else {}
        actions = [serializers.serialize_action(action, plan, known, fields) for action in whole.actions.values()]
        self._explain(actions)
        services = self._list_services(whole, course.workflow)
        return {**serializers.serialize_workflow(course.workflow), "actions": actions, "services": services}

    def _list_services(self, whole: Document, stored: StoredWorkflow) -> list[str]:
        """Return the existing services that the workflow started."""
        if not any(action.type in SERVING for action in whole.actions.values()):
            return []
        return model_services.begun_by(self._services, stored.tenant, stored.id)

    def action(self, workflow: str, name: str, tenant: str | None) -> answers.ActionDetail:
        """Return one action with its parameters. Raises NotFound."""
        whole, known, plan, _ = self.planned(workflow, tenant)
        action = whole.actions.get(name)
        if action is None:
            raise errors.NotFound(f"workflow {workflow} has no action {name}", field="action_id")
        record = known.records.get(name)
        wanted = {name} | {key for key in _items_to_read(plan, known) if key.startswith(f"{name}/")}
        named = {key: known.jobs[key].id for key in wanted if key in known.jobs}
        fields = dict(zip(named, self._store.job_fields(list(named.values()), JOB_FIELDS), strict=True))
        row = serializers.serialize_action(action, plan, known, fields)
        self._explain([row])
        return {
            **row,
            "parameters": action.parameters,
            "foreach": action.foreach,
            "item_jobs": serializers.serialize_items(action, known),
            "result": record.result if record else None,
        }

    def _explain(self, actions: Sequence[answers.Action]) -> None:
        """Set the waiting reason of the first _EXPLAINED actions whose jobs wait."""
        held = {row["job_id"]: row for row in actions if row["job_id"] and row["state"] in _HELD}
        for job in self._jobs.by_ids([job for job in held if job][:_EXPLAINED]):
            held[job["job_id"]]["waiting_because"] = job["waiting_because"]


def _items_to_read(plan: Plan, known: Known) -> set[str]:
    """Return the foreach items whose times and failures are read. Of many items, only the first failure is read."""
    items = {key for key in known.jobs if "/" in key}
    return items if len(items) <= _TIMED_ITEMS else {planning.failed_key(name, plan, known) for name in plan.states}


def _notes(whole: Document, known: Known, retry: Retry, outdated: Mapping[str, str]) -> list[str]:
    """Return the reasons why existing or deleted jobs do not continue."""
    lost = [key for key in retry.restarted if key in known.jobs and known.jobs[key].state != "skipped"]
    notes = [f"{key} starts again: {_explain_restart(whole, known, key, outdated)}" for key in lost[:_NOTES]]
    return [*notes[:-1], f"and {len(lost) - _NOTES + 1} more start again"] if len(lost) > _NOTES else notes


def _explain_restart(whole: Document, known: Known, key: str, outdated: Mapping[str, str]) -> str:
    if key in outdated:
        kind = whole.actions[retries.action_of(key)].type
        now = registry.definition(kind).model_version
        return f"its job was computed by version {outdated[key]} of {kind}, whose current version is {now}"
    return "its job was deleted" if known.jobs[key].gone else "it depends on actions that start again"
