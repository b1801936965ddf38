"""Advance a workflow: read its stored state, plan the next steps, and execute them.

Each step is idempotent. After a failover, the next leader finds the completed steps in Redis.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coordinator.jobs import titles
from coordinator.jobs.delegated_submission import JobRequest, Maker, OnBehalf
from coordinator.server.bodies import MAX_BODY
from coordinator.workflows import planning, results, retries
from coordinator.workflows.documents import references, substitution
from coordinator.workflows.documents.action_types import TYPES, UNDOABLE, Host, UndoResult
from coordinator.workflows.documents.document import MAX_ACTIONS, Document
from coordinator.workflows.documents.documents import Documents
from coordinator.workflows.documents.references import Unfilled
from coordinator.workflows.ended_jobs import EndedJobs, ReadInterrupted
from coordinator.workflows.internal_errors import InternalErrors
from coordinator.workflows.planning import (
    ENDED,
    Cancel,
    CarryOut,
    Expand,
    JobSeen,
    Known,
    Plan,
    Record,
    State,
    Step,
    Submit,
    item_key,
    key_of,
)
from coordinator.workflows.results import Results
from jobs import errors
from jobs.kinds import registry
from jobs.models import Actor
from jobs.settings import Settings
from jobs.store import Store, workflows
from jobs.store.files import PART_BYTES
from jobs.store.server import connection
from jobs.store.workflows import Course, StoredWorkflow
from threads_protocol.numbers import short
from threads_protocol.states import TERMINAL

log = logging.getLogger(__name__)

#: Maximum number of jobs per round trip.
#: Maximum number of bytes of parameters per round trip.
#: Maximum duration of one pass in seconds.
_TOGETHER, _TOGETHER_BYTES, POLL_SECONDS = 64, 4 << 20, 1.0
#: Maximum total size in bytes, as JSON, of the foreach items of a workflow.
#: Maximum size in bytes, as JSON, of the result of an action that is not a job.
MAX_ITEMS, _MAX_RESULT = 2 << 20, 64 << 10
#: Maximum length of an error message in characters.
#: Maximum length of an error message if a workflow has over MANY errors.
#: Number of errors above which a workflow's error messages are shortened.
_MAX_ERROR, _SHORT_ERROR, MANY = 1000, 100, 1000


#: Job states in which a retry of the job reopens its workflow.
#: Maximum number of jobs that are compared to detect a reopened workflow.
_RETRIABLE, _COMPARED = ("failed", "cancelled"), 1000


@dataclass(kw_only=True)
class Outcome:
    """Result of one pass over a workflow."""

    #: Whether the pass changed the workflow, so the next pass follows immediately.
    again: bool = False
    #: Whether the workflow waits for a condition without an event, so the next pass follows after a second.
    soon: bool = False


class Engine:
    """Advances the workflows of one store."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        documents: Documents,
        on_behalf: OnBehalf,
        host_of: Callable[[Maker, str], Host],
    ) -> None:
        self.store = store
        self._ttl_seconds = settings.result_ttl
        self.documents = documents
        self._on_behalf = on_behalf
        self._host_of = host_of
        self.ended_jobs = EndedJobs(store.workflows)
        self.faults = InternalErrors()

    def look(self, workflow: str) -> Outcome:
        """Advance a workflow and store its state.

        Raises Unreachable. After another exception, the workflow is tried again later; after repeated exceptions, it
        fails.
        """
        if self.faults.resting(workflow):
            return Outcome(soon=True)
        try:
            outcome = self.advance(workflow)
        except connection.Unreachable:
            raise
        except Exception as error:
            fault = self.faults.note(error, workflow)
            if fault.is_given_up:
                self._give_up(workflow, fault.words)
            return Outcome(soon=not fault.is_given_up)
        self.faults.forget(workflow)
        return outcome

    def advance(self, workflow: str) -> Outcome:
        course = self.store.workflows.course(workflow)
        if course is None or (whole := self.documents.get(course.workflow)) is None:
            return Outcome()
        known = read_known(self.store.workflows, course)
        look = _Look(self, course.workflow, whole, known)
        if course.retries and known.state in (State.RUNNING, State.WAITING):
            look.retry(course.retries)
            return look.outcome
        plan = planning.plan(whole, known)
        if known.state not in ENDED:
            look.carry_out(plan)
            if look.fault:
                self._give_up(workflow, look.fault)
                return Outcome()
            if plan.state == State.CANCELLED and known.state == State.CANCELLING and look.undo():
                return look.outcome
        elif not course.final or not _is_reopened(known):  # after repeated errors there are no final states
            return look.outcome
        self._settle(course.workflow, plan, known, look)
        return look.outcome

    def _give_up(self, workflow: str, words: str) -> None:
        """Mark a workflow as failed after repeated errors. Its jobs continue."""
        [stored] = self.store.workflows.read([workflow])
        if stored is None or stored.state in ENDED:
            return
        error = f"{words}; see the coordinator's log. The jobs continue. Next: cluster workflow retry {workflow}"
        fields: dict[str, str | bytes] = {"error": error, "waits": "", "final": workflows.pack_states({})}
        self.store.workflows.settle(stored, State.FAILED, self._ttl_seconds, **fields)

    def _settle(self, stored: StoredWorkflow, plan: Plan, known: Known, look: _Look) -> None:
        """Store the workflow's state and counts if they changed. A workflow cannot end while steps still change it."""
        state = plan.state
        if look.outcome.again and state in ENDED and known.state not in ENDED:
            return
        counts = dict(Counter(plan.states.values()))
        if state == stored.state and counts == stored.counts and look.waits == stored.waits:
            return
        fields: dict[str, str | bytes] = {"counts": json.dumps(counts), "waits": look.waits}
        if state in ENDED:
            first = next((name for name, each in plan.states.items() if each == "failed"), "")
            error = self._describe_failure(first, plan, known) if first else ""
            fields |= {
                "final": workflows.pack_states(plan.states),
                "error": "; ".join(filter(None, (first and f"{first}: {error or 'failed'}", look.left)))[:_MAX_ERROR],
            }
        lost = [(job.id, job.state) for job in known.jobs.values() if job.state in _RETRIABLE and not job.gone]
        jobs = lost[:_COMPARED] if state in ENDED else []
        if not self.store.workflows.settle(stored, state, self._ttl_seconds, jobs, **fields):
            look.outcome.again = True

    def _describe_failure(self, action: str, plan: Plan, known: Known) -> str:
        key = planning.failed_key(action, plan, known)
        job = known.jobs.get(key)
        [[error]] = self.store.workflows.job_fields([job.id], ("error",)) if job else [[None]]
        return planning.describe_failure(action, plan, known, {key: (error or b"").decode(errors="replace")})


def _is_reopened(known: Known) -> bool:
    """Return True if a user may have retried a job of this failed workflow, because all its jobs still exist."""
    return known.state == State.FAILED and not any(job.gone for job in known.jobs.values())


def read_known(store: workflows.Workflows, course: Course) -> Known:
    """Return the stored data of a workflow, with the current states of its jobs and the last states of deleted jobs."""
    keys, ids = list(course.jobs), list(course.jobs.values())
    states = _states(store, ids)
    jobs = {
        key: JobSeen(job_id, "blocked" if returns else state, returns=returns)
        if state
        else JobSeen(job_id, _last_state(course.final, key), gone=True)
        for key, job_id, (state, returns) in zip(keys, ids, states, strict=True)
    }
    stored = course.workflow
    return Known(
        workflow=stored.id,
        state=State(stored.state),
        attempt=stored.attempt,
        jobs=jobs,
        records={key: parse_record(row) for key, row in course.records.items()},
    )


def _states(store: workflows.Workflows, ids: Sequence[str]) -> list[tuple[str | None, bool]]:
    """Return the state of each job (None if it is deleted), and whether a skipped job will become blocked again.

    A skipped job becomes blocked again if the job that caused the skip continues.
    """
    rows = [
        [value.decode(errors="replace") if value else None for value in row]
        for row in (store.job_fields(ids, ("state", "root")) if ids else ())
    ]
    roots = sorted({root for state, root in rows if state == "skipped" and root})
    found = zip(roots, store.job_fields(roots, ("state",)) if roots else (), strict=True)
    going_on = {root for root, (state,) in found if state not in (None, b"failed", b"cancelled")}
    return [(state, state == "skipped" and root in going_on) for state, root in rows]


def _last_state(final: Mapping[str, str], key: str) -> str | None:
    """Return the last state of a deleted job, or None if it must run again."""
    action, _, item = key.partition("/")
    state = final.get(action)
    return state if not item or state == "done" else None


def parse_record(row: Mapping[str, Any]) -> Record:
    """Parse a stored record."""
    return Record(
        state=row["state"],
        result=row.get("result"),
        error=row.get("error", ""),
        items=tuple(row.get("items", ())),
        ended=row.get("ended", 0),
    )


class _Look:
    """Executes the steps of one pass over a workflow."""

    def __init__(self, engine: Engine, stored: StoredWorkflow, whole: Document, known: Known) -> None:
        self._engine = engine
        self.store = engine.store
        self._stored = stored
        self._whole = whole
        self._known = known
        self._maker = Maker(tenant=stored.tenant, token=stored.token, runs_programs=stored.run)
        self._results = Results(whole, known, f"{stored.id} {stored.created}", engine.ended_jobs)
        self._until = time.monotonic() + POLL_SECONDS
        self._batch: list[tuple[Submit, JobRequest]] = []
        self._batch_bytes = 0
        self._stopped = False
        #: Number of foreach items in the workflow, and their size in bytes; None until they are counted.
        self._items: tuple[int, int] | None = None
        self._failures = 0
        self.outcome = Outcome()
        #: Reason why the next job waits.
        #: Error that ends the workflow.
        #: Description of resources that remain after a cancellation.
        self.waits = self.fault = self.left = ""

    @property
    def _actor(self) -> Actor:
        return Actor(self._stored.tenant, self._stored.token)

    @property
    def _during(self) -> tuple[str, int]:
        """ID and attempt of the workflow. Redis rejects steps of an earlier attempt, which a suspended leader can still
        send.
        """
        return self._stored.id, self._known.attempt

    # -- retries -------------------------------------------------------------------------------------------------------

    def retry(self, keys: frozenset[str]) -> None:
        """Retry the jobs of these actions from their last progress, as many as time permits.

        An action whose job cannot continue starts again, together with the actions that depend on it.
        """
        self.outcome.again = True
        tried, refused = [], set[str]()
        # Retry jobs in topological order: a job that depends on a cancelled job cannot be retried before that job.
        order = {name: place for place, name in enumerate(self._whole.actions)}
        for key in sorted(keys, key=lambda key: (order.get(retries.action_of(key), -1), key)):
            if time.monotonic() > self._until:
                break
            if not self._can_go_on(key, refused):
                refused.add(key)
            tried.append(key)
        if refused:
            restarted = retries.find_restarted(self._whole, self._known, refused)
            self.store.workflows.forget(*self._during, sorted(restarted))
        if tried:
            self.store.workflows.retried(*self._during, tried)

    def _can_go_on(self, key: str, refused: set[str]) -> bool:
        """Retry a job; return False if it cannot continue, or if an action that it depends on starts again."""
        job, action = self._known.jobs.get(key), self._whole.actions.get(retries.action_of(key))
        if action is None or job is None or job.state not in ("failed", "cancelled"):
            return True
        before = {*action.dependencies, *action.after_any}
        if any(retries.action_of(other) in before for other in refused):
            return False
        version = registry.definition(action.type).model_version
        how = self.store.jobs.retry(job.id, version, self._actor, hold=True, during=self._during)
        if how[0] in ("version", "skipped", "missing"):
            log.info("a job of a workflow starts again: %s", " ".join(how), extra={"job_id": job.id})
        return how[0] not in ("version", "skipped", "missing")

    # -- cancelled workflows -------------------------------------------------------------------------------------------

    def undo(self) -> bool:
        """Undo actions whose effects outlive them, unless others use the results; return True if the workflow changed.

        A retry runs these actions again. The method is idempotent, since a leader may die before it stores the result.
        """
        host = self._engine._host_of(self._maker, self._stored.id)
        ended, left = list[str](), list[str]()
        for action in self._whole.actions.values():
            if action.type in UNDOABLE:
                try:
                    undone = host.undo(action.type, action.parameters)
                except errors.ClusterError as error:
                    undone = UndoResult(left=f"cannot undo {action.id}: {error}")
                ended += [action.id] if undone.ended else []
                left += [undone.left] if undone.left else []
        self.left = "; ".join(dict.fromkeys(left))
        done = [one for one in ended if one in self._known.records]
        self.outcome.again |= bool(done) and self.store.workflows.forget(*self._during, done)
        return self.outcome.again

    # -- steps ---------------------------------------------------------------------------------------------------------

    def carry_out(self, plan: Plan) -> None:
        """Execute the steps of a plan, as many as time permits."""
        try:
            for step in plan.steps:
                if self._stopped:
                    break
                if time.monotonic() > self._until:
                    self.outcome.again = True
                    break
                self._attempt(step)
            self._send()
        except connection.Unreachable as error:
            self._wait(connection.reason(error))

    def _attempt(self, step: Step) -> None:
        """Execute a step unless it failed a moment ago. An exception of one step does not stop the other steps."""
        if fault := self._engine.faults.resting(self._stored.id, key_of(step)):
            self.waits, self.outcome.soon = self.waits or fault.words, True
            return
        try:
            self._execute(step)
        except ReadInterrupted:
            self._until, self.outcome.again = 0.0, True
        except connection.Unreachable:
            raise
        except Exception as error:
            self._note_fault(step, error)
        else:
            if not isinstance(step, Submit):
                self._engine.faults.forget(self._stored.id, key_of(step))

    def _execute(self, step: Step) -> None:
        if isinstance(step, Submit):
            self._add(step)
        elif isinstance(step, Cancel):
            how = self.store.jobs.cancel(step.job_id, self._actor, during=self._during)
            self.outcome.again |= how[0] == "ok"
        elif isinstance(step, Expand):
            self._expand(step)
        else:
            self._run(step)

    def _wait(self, why: str) -> None:
        self.waits, self._stopped, self.outcome.soon = why[:_MAX_ERROR], True, True

    def _note_fault(self, step: Step, error: Exception) -> None:
        """Record an internal error of a step. The step is retried later; after several errors, its action fails."""
        fault = self._engine.faults.note(error, self._stored.id, key_of(step))
        if not fault.is_given_up:
            self.waits, self.outcome.soon = self.waits or fault.words, True
        elif isinstance(step, Cancel):
            self.fault = fault.words
        else:
            words = f"{fault.words}; see the coordinator's log. Next: cluster workflow retry {self._stored.id}"
            self._fail(key_of(step), words)

    def _add(self, step: Submit) -> None:
        action = step.action
        try:
            parameters = action.parameters
            if action.late:
                parameters = results.filled_parameters(
                    action.type, parameters, self._results, step.item, step.index, is_item=action.foreach is not None
                )
            else:
                parameters = substitution.fill_parameters(action.type, parameters, lambda _: None)
            size = references.size_of(parameters)
            if size > MAX_BODY:
                raise Unfilled(f"its parameters have {size} bytes as JSON; the maximum is {MAX_BODY}")
        except Unfilled as error:
            self._fail(step.key, str(error))
            return
        wanted = JobRequest(
            job_id=step.job_id,
            body={"type": action.type, "parameters": parameters, "name": self._job_name(step), **action.options},
            maker=self._maker,
            after=step.after,
            after_any=step.after_any,
            workflow=self._stored.id,
            action=step.key,
            attempt=self._known.attempt,
            traceparent=self._stored.traceparent,
            tracestate=self._stored.tracestate,
        )
        self._batch.append((step, wanted))
        self._batch_bytes += size
        if len(self._batch) >= _TOGETHER or self._batch_bytes > _TOGETHER_BYTES:
            self._send()

    def _job_name(self, step: Submit) -> str:
        """Return a job name such as `report / fit [4]`, with the index of the item of a foreach."""
        item = f" [{step.index}]" if step.action.foreach is not None else ""
        return titles.sanitize(f"{self._stored.name} / {step.action.id}{item}")

    def _send(self) -> None:
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        if not batch or self._stopped:
            return
        try:
            answers = self._engine._on_behalf.submit([wanted for _, wanted in batch])
        except connection.Unreachable:
            raise
        except Exception as error:
            if len(batch) == 1:
                self._note_fault(batch[0][0], error)
                return
            for one in batch:  # submit one by one, so that only the faulty job fails
                self._batch = [one]
                self._send()
            return
        for (step, _), answer in zip(batch, answers, strict=True):
            self._engine.faults.forget(self._stored.id, step.key)
            if isinstance(answer, errors.ClusterError):
                self._note_refusal(step, answer)
            else:
                self.outcome.again = True

    def _note_refusal(self, step: Submit, error: errors.ClusterError) -> None:
        """Handle the rejection of a job: wait if the reason is temporary, otherwise fail its action."""
        if isinstance(error, errors.OverLimit | errors.Unavailable | errors.StoreFull):
            self._wait(error.detail)
        elif isinstance(error, errors.Conflict) and error.field == "workflow":
            self._stopped = self.outcome.again = True  # the workflow was cancelled
        elif isinstance(error, errors.Conflict) and (error.field or "").startswith("after"):
            self.outcome.soon = True  # another job of this batch, on which the job depends, was rejected
        else:
            self._fail(step.key, error.detail)

    def _expand(self, step: Expand) -> None:
        action = step.action
        try:
            items = references.fill_references(action.foreach, references.limit_look_up(self._results.part, MAX_ITEMS))
            self._check_items(action.foreach, items)
        except Unfilled as error:
            self._fail(action.id, f"foreach: {error}")
            return
        self._note(action.id, {"state": "expanded", "items": items})

    def _check_items(self, foreach: Any, items: Any) -> None:
        """Count the items toward the workflow's limits. Raises Unfilled for too many items, and if `items` is not a
        list.
        """
        others, bytes_of_others = self._items or self._count_items()
        most = MAX_ACTIONS - len(self._whole.actions) - others
        if not isinstance(items, list) or len(items) > most:
            what = f"a list of {len(items)}" if isinstance(items, list) else f"a {type(items).__name__}"
            beside = f"and {others} other items " if others else ""
            advice = ": divide the workflow, or let each job process several items" if isinstance(items, list) else ""
            raise Unfilled(
                f"{short(foreach)} must be a list of at most {most} items (with all actions {beside}{MAX_ACTIONS}); "
                f"got {what}{advice}"
            )
        size = references.size_of(items)
        if size + bytes_of_others > MAX_ITEMS:
            beside = f" and the other items of this workflow {bytes_of_others}" if bytes_of_others else ""
            raise Unfilled(
                f"the items have {size} bytes as JSON{beside}; the maximum for all items is {MAX_ITEMS}: "
                "use short items, such as names, and let jobs read the rest from an artifact, or divide the workflow"
            )
        self._items = others + len(items), bytes_of_others + size

    def _count_items(self) -> tuple[int, int]:
        lists = [one.items for one in self._known.records.values() if one.state == "expanded"]
        return sum(map(len, lists)), sum(map(references.size_of, lists))

    def _run(self, step: CarryOut) -> None:
        action = step.action
        of = TYPES.get(action.type)
        host = self._engine._host_of(self._maker, self._stored.id)
        if of is None or of.run is None:
            self._fail(action.id, f"action type {action.type} does not exist in this version of the coordinator")
            return
        try:
            filled = references.fill_references(
                action.parameters, references.limit_look_up(self._results.part, PART_BYTES)
            )
            if wrong := of.check(filled, frozenset()):
                path, words = wrong[0]
                raise Unfilled(f"{'.'.join(map(str, path))}: {words}")
            given = dict(of.run(filled, host))
        except (Unfilled, errors.ClusterError) as error:
            if isinstance(error, errors.Unavailable | errors.OverLimit | errors.StoreFull):
                self.waits, self.outcome.soon = str(error)[:_MAX_ERROR], True
            else:
                self._fail(action.id, str(error))
            return
        if (size := len(json.dumps(given))) > _MAX_RESULT:
            self._fail(action.id, f"its result has {size} bytes as JSON; the maximum is {_MAX_RESULT}")
            return
        self._note(action.id, {"state": "done", "result": given, "ended": self._now()})

    def _fail(self, key: str, error: str) -> None:
        # Errors are read with the workflow, and thousands of items may fail for the same reason.
        self._failures += 1
        most = _MAX_ERROR if len(self._known.records) + self._failures <= MANY else _SHORT_ERROR
        self._note(key, {"state": "failed", "error": error[:most], "ended": self._now()})

    def _note(self, key: str, row: Mapping[str, Any]) -> None:
        self.store.workflows.record(self._stored.id, self._known.attempt, key, row)
        self.outcome.again = True

    def _now(self) -> int:
        return int(self.store.clock.now() * 1000)


def count_items(known: Known, action: str) -> tuple[int, int]:
    """Return the number of finished items of a foreach, and their total number."""
    record = known.records.get(action)
    total = len(record.items) if record else 0
    keys = [item_key(action, index) for index in range(total)]
    ended = sum(1 for key in keys if (job := known.jobs.get(key)) and (job.state or "failed") in TERMINAL)
    return ended + sum(1 for key in keys if key in known.records), total
