"""Plan the next steps of a workflow from its stored state. Functions here are pure: they use no clock and no store.

A plan is safe to repeat after a crash. An action that has a job is not submitted again, and job IDs depend only on
workflow, action and attempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from coordinator.workflows.documents.action_types import APPROVE, TYPES
from coordinator.workflows.documents.document import Action, Document
from threads_protocol.states import TERMINAL

#: Maximum number of jobs that one job can depend on.
MAX_PARENTS = 1000


class State(StrEnum):
    """State of a workflow."""

    RUNNING = "running"
    #: No job is running, and an action needs a person's approval.
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    #: The workflow's jobs are being cancelled.
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


#: States in which the leader does nothing until a user retries the workflow.
ENDED = frozenset({State.DONE, State.FAILED, State.CANCELLED})
#: States of actions in addition to the job states: waiting for other actions, or for a person's approval.
WAITING, APPROVAL = "waiting", "approval"
_GONE = "its job was deleted"
#: States of actions that ended without success.
BAD = frozenset({"failed", "cancelled", "skipped"})
#: Job states in order of precedence: the first state that a job of a foreach has is the state of its action.
_FIRST = (
    "running",
    "finishing",
    "cancelling",
    "paused",
    "queued",
    "blocked",
    WAITING,
    "failed",
    "cancelled",
    "skipped",
)


class JobSeen(NamedTuple):
    """Job of an action."""

    id: str
    #: Current state; of a deleted job the last stored state, or None if no state was stored.
    state: str | None
    gone: bool = False
    #: Whether the job is skipped but will become blocked again, because the job that caused the skip continues.
    returns: bool = False


@dataclass(frozen=True, kw_only=True)
class Record:
    """Stored outcome of an action that is not a job: its result, its error, or its foreach items."""

    #: State of the action: done, failed or expanded.
    state: str
    result: Any = None
    error: str = ""
    #: Items of a foreach.
    items: tuple[Any, ...] = ()
    #: Time of completion in milliseconds since 1970.
    ended: int = 0


@dataclass(frozen=True, kw_only=True)
class Known:
    """Stored data of a workflow at one point in time."""

    workflow: str
    state: State
    #: Number of the attempt, starting at 1. Each retry increases it.
    attempt: int
    #: Jobs by action ID, or by ACTION/INDEX for items of a foreach.
    jobs: Mapping[str, JobSeen]
    records: Mapping[str, Record]


@dataclass(frozen=True, kw_only=True)
class Submit:
    """Step that submits the job of an action, or of one item of a foreach."""

    key: str
    job_id: str
    action: Action
    #: Jobs that this job depends on.
    after: tuple[str, ...] = ()
    after_any: tuple[str, ...] = ()
    item: Any = None
    index: int = 0


@dataclass(frozen=True, kw_only=True)
class Expand:
    """Step that stores the items of a foreach."""

    action: Action


@dataclass(frozen=True, kw_only=True)
class CarryOut:
    """Step that executes an action that is not a job."""

    action: Action


@dataclass(frozen=True, kw_only=True)
class Cancel:
    """Step that cancels a job."""

    job_id: str


Step: TypeAlias = Submit | Expand | CarryOut | Cancel


def key_of(step: Step) -> str:
    """Return the key of the action, foreach item or job that a step affects."""
    if isinstance(step, Submit):
        return step.key
    return step.job_id if isinstance(step, Cancel) else step.action.id


@dataclass(kw_only=True)
class Plan:
    """States of all actions, and the steps to execute next."""

    states: dict[str, str] = field(default_factory=dict)
    #: For each skipped action, the failed or cancelled action that caused the skip.
    roots: dict[str, str] = field(default_factory=dict)
    #: Steps in topological order.
    steps: list[Step] = field(default_factory=list)
    #: Current state of the workflow.
    state: State = State.RUNNING


def job_id(workflow: str, action: str, attempt: int) -> str:
    """Return the job ID of an action."""
    return f"w-{workflow}-{action}-{attempt}"


def item_job_id(workflow: str, action: str, attempt: int, index: int) -> str:
    """Return the job ID of one item of a foreach."""
    return f"f-{workflow}-{index}-{action}-{attempt}"


def item_key(action: str, index: int) -> str:
    """Return the key of one item of a foreach."""
    return f"{action}/{index}"


def plan(document: Document, known: Known) -> Plan:
    """Plan the next steps of a workflow whose actions are in topological order."""
    planner = _Planner(document, known)
    for action in document.actions.values():
        planner.look_at(action)
    return planner.conclude()


class _Planner:
    def __init__(self, document: Document, known: Known) -> None:
        self._document = document
        self._known = known
        self._acts = known.state in (State.RUNNING, State.WAITING)
        self._plan = Plan()
        #: IDs of existing jobs, and of jobs that this plan submits.
        self._ids: dict[str, str] = {key: job.id for key, job in known.jobs.items()}

    def look_at(self, action: Action) -> None:
        """Determine the state of an action and plan its step."""
        self._plan.states[action.id] = self._state(action)

    def conclude(self) -> Plan:
        """Return the plan with the state of the workflow."""
        plan, known = self._plan, self._known
        if known.state == State.CANCELLING:
            jobs = known.jobs.values()
            goes_on = [job for job in jobs if job.state and job.state not in (*TERMINAL, "cancelling")]
            plan.steps = [Cancel(job_id=job.id) for job in goes_on]
        plan.state = self._conclusion()
        return plan

    def _conclusion(self) -> State:
        states = set(self._plan.states.values())
        # A foreach can have the state of one job while another of its jobs continues.
        if {job.state for job in self._known.jobs.values()} <= {*TERMINAL, None} and states <= TERMINAL:
            if self._plan.steps and self._acts:
                return State.RUNNING
            if self._known.state == State.CANCELLING:
                return State.CANCELLED
            if "failed" not in states and "cancelled" in states:
                return State.CANCELLED
            # If an action is skipped and none has failed, its dependency was deleted and submitted again.
            return State.FAILED if states & {"failed", "skipped"} else State.DONE
        if self._known.state == State.CANCELLING:
            return State.CANCELLING
        idle = states <= {*TERMINAL, WAITING, APPROVAL} and not self._plan.steps
        return State.WAITING if idle and APPROVAL in states else State.RUNNING

    def _state(self, action: Action) -> str:
        if action.foreach is not None:
            return self._state_of_foreach(action)
        return self._state_of(action.id) or self._next(action)

    def _state_of(self, key: str) -> str | None:
        """Return the state of a job or record, or None if neither exists."""
        if job := self._known.jobs.get(key):
            return job.state or "failed"
        record = self._known.records.get(key)
        return record.state if record else None

    def _state_of_foreach(self, action: Action) -> str:
        record = self._known.records.get(action.id)
        if record is None:
            return self._next(action)
        if record.state != "expanded":
            return record.state
        keys = [item_key(action.id, index) for index in range(len(record.items))]
        states = [self._state_of(key) for key in keys]
        if self._acts:
            begun = zip(keys, states, record.items, strict=True)
            for index, (key, state, item) in enumerate(begun):
                if state is None:
                    self._submit(action, key, item=item, index=index)
        unbegun = WAITING if self._acts else "cancelled"
        present = {state or unbegun for state in states}
        return next((state for state in _FIRST if state in present), "done")

    def _next(self, action: Action) -> str:
        """Return the state of an action that has not started, and plan its step if the action is ready."""
        states = self._plan.states
        if bad := next((name for name in action.dependencies if states[name] in BAD), None):
            self._plan.roots[action.id] = self._plan.roots.get(bad, bad)
            return "skipped"
        if not self._acts:
            return "cancelled"
        if self._is_job(action) and not action.late:
            return self._next_of_job(action)
        if not all(states[name] == "done" for name in action.dependencies):
            return WAITING
        if not all(states[name] in TERMINAL for name in action.after_any):
            return WAITING
        if action.type == APPROVE:
            return APPROVAL
        if action.foreach is not None:
            self._plan.steps.append(Expand(action=action))
        elif self._is_job(action):
            self._submit(action, action.id)
        else:
            self._plan.steps.append(CarryOut(action=action))
        return WAITING

    def _next_of_job(self, action: Action) -> str:
        """Submit a job whose parameters are known once its dependencies have jobs. Redis starts the job after them."""
        after, after_any = (
            list(self._unfinished_jobs(action.dependencies)),
            list(self._unfinished_jobs(action.after_any)),
        )
        # Wait, because Redis treats a skipped job as ended.
        if any((job := self._known.jobs.get(name)) and job.returns for name in action.after_any):
            return WAITING
        if None not in after and None not in after_any and len({*after, *after_any}) <= MAX_PARENTS:
            self._submit(action, action.id, after=tuple(filter(None, after)), after_any=tuple(filter(None, after_any)))
        return WAITING

    def _unfinished_jobs(self, names: tuple[str, ...]) -> Iterator[str | None]:
        """Yield the job IDs of actions that have not ended, or None for an action without a job."""
        for name in names:
            if self._plan.states[name] not in TERMINAL:
                yield self._ids.get(name)

    def _submit(self, action: Action, key: str, *, item: Any = None, index: int = 0, **after: tuple[str, ...]) -> None:
        workflow, attempt = self._known.workflow, self._known.attempt
        if action.foreach is None:
            name = job_id(workflow, action.id, attempt)
        else:
            name = item_job_id(workflow, action.id, attempt, index)
        self._ids[key] = name
        self._plan.steps.append(Submit(key=key, job_id=name, action=action, item=item, index=index, **after))

    @staticmethod
    def _is_job(action: Action) -> bool:
        of = TYPES.get(action.type)
        return of is not None and of.is_job


def find_error(action: str, plan: Plan, known: Known) -> str:
    """Return why an action without a job failed or was skipped; return an empty string for other actions."""
    job, record = known.jobs.get(action), known.records.get(action)
    if plan.states[action] == "skipped" and job is None:
        root = plan.roots[action]
        return f"{root} {'was cancelled' if plan.states[root] == 'cancelled' else 'failed'}"
    if job and job.state is None:
        return _GONE
    return record.error if record else ""


#: Prefix of the error of a job with one unit. It is omitted for items of a foreach, because it contains no information.
_ONLY_UNIT = "1 of 1 unit failed; "


def failed_key(action: str, plan: Plan, known: Known) -> str:
    """Return the key of the first failed item of a failed foreach. For other actions, return the action's ID."""
    record = known.records.get(action)
    for index in range(len(record.items) if record and plan.states[action] == "failed" else 0):
        key = item_key(action, index)
        job, own = known.jobs.get(key), known.records.get(key)
        if (job and (job.state or "failed") == "failed") or (own and own.state == "failed"):
            return key
    return action


def describe_failure(action: str, plan: Plan, known: Known, job_errors: Mapping[str, str]) -> str:
    """Return why an action failed or was skipped, or an empty string. `job_errors` contains errors of jobs by key."""
    key = failed_key(action, plan, known)
    if key == action:
        return find_error(action, plan, known) or job_errors.get(action, "")
    job, own = known.jobs.get(key), known.records.get(key)
    reason = _GONE if job and job.state is None else own.error if own else job_errors.get(key, "")
    return f"item {key.rpartition('/')[2]}: {reason.removeprefix(_ONLY_UNIT) or 'failed'}"
