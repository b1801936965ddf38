"""One look of the leader at a workflow: what is known is read, a plan made of it, and its steps are carried out.

Every step may be repeated: whoever leads next finds in Redis how far the one before came.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coordinator.jobs.on_behalf import Maker, OnBehalf, Wanted
from coordinator.jobs.queries import JobQueries
from coordinator.workflows import document, planning, references, results
from coordinator.workflows.action_types import TYPES, Host
from coordinator.workflows.document import MAX_ACTIONS, Document
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
    Submit,
    item_key,
)
from coordinator.workflows.references import Unfilled
from coordinator.workflows.results import Results
from jobs import errors
from jobs.kinds import registry
from jobs.models import TERMINAL, Actor
from jobs.settings import Settings
from jobs.store import Store, workflows
from jobs.store.workflows import Course, StoredWorkflow

log = logging.getLogger(__name__)

#: Jobs that are submitted in one round trip, and seconds that one look spends on steps; then others have their turn.
_TOGETHER, _LOOK_SECONDS = 64, 1.0
#: Documents that are kept, of those that were looked at last.
_KEPT = 8
#: Bytes of items of a foreach as JSON, and of what an action gives that is no job.
_MAX_ITEMS, _MAX_RESULT = 1 << 20, 64 << 10
_MAX_ERROR = 1000


@dataclass(kw_only=True)
class Outcome:
    """Outcome of a look."""

    #: It has changed something: look again at once.
    again: bool = False
    #: It waits for what nobody tells: look again in a second.
    soon: bool = False


class Engine:
    """Looks at workflows, by one store."""

    def __init__(
        self, store: Store, settings: Settings, jobs: JobQueries, on_behalf: OnBehalf, host_of: Callable[[Actor], Host]
    ) -> None:
        self._store = store
        self._ttl_seconds = settings.result_ttl
        self._jobs = jobs
        self._on_behalf = on_behalf
        self._host_of = host_of
        self._documents: OrderedDict[str, Document] = OrderedDict()

    def look(self, workflow: str) -> Outcome:
        """Carry out what is to be done next in a workflow, and note where it stands."""
        course = self._store.workflows.course(workflow)
        if course is None or (whole := self._document(course.workflow)) is None:
            return Outcome()
        known = seen(self._store.workflows, course)
        plan = planning.plan(whole, known)
        look = _Look(self, course.workflow, whole, known)
        if known.state not in ENDED:
            look.retry(course.retries)
            look.carry_out(plan)
        elif not _is_reopened(known):
            return look.outcome
        self._settle(course.workflow, plan, known, look)
        return look.outcome

    def _document(self, stored: StoredWorkflow) -> Document | None:
        if stored.id in self._documents:
            self._documents.move_to_end(stored.id)
            return self._documents[stored.id]
        rows = self._store.workflows.document(stored.id)
        if rows is None:
            return None
        whole = self._documents[stored.id] = document.unpacked(stored.name, stored.description, rows)
        while len(self._documents) > _KEPT:
            self._documents.popitem(last=False)
        return whole

    def _settle(self, stored: StoredWorkflow, plan: Plan, known: Known, look: _Look) -> None:
        """Note state and counts, where they are others than before. While steps change things, it has not ended."""
        state = plan.state
        if look.outcome.again and state in ENDED and known.state not in ENDED:
            return
        counts = dict(Counter(plan.states.values()))
        if state == stored.state and counts == stored.counts and look.waits == stored.waits:
            return
        fields: dict[str, str | bytes] = {"counts": json.dumps(counts), "waits": look.waits}
        if state in ENDED:
            first = next((name for name, each in plan.states.items() if each == "failed"), "")
            error = planning.error_of(first, plan, known) if first else ""
            fields |= {
                "final": workflows.packed(plan.states),
                "error": f"{first}: {error or 'failed'}" if first else "",
            }
        if not self._store.workflows.settle(stored, state, self._ttl_seconds, **fields):
            look.outcome.again = True


def _is_reopened(known: Known) -> bool:
    """Return True for a failed workflow, none of whose jobs is gone: somebody may have tried one of them again."""
    return known.state == State.FAILED and not any(job.gone for job in known.jobs.values())


def seen(store: workflows.Workflows, course: Course) -> Known:
    """Return what is known of a workflow: the states that its jobs have now, of those that are gone the last one."""
    keys, ids = list(course.jobs), list(course.jobs.values())
    states = _states(store, ids)
    jobs = {
        key: JobSeen(job_id, state) if state else JobSeen(job_id, _last(course.final, key), gone=True)
        for key, job_id, state in zip(keys, ids, states, strict=True)
    }
    stored = course.workflow
    return Known(
        workflow=stored.id, state=State(stored.state), attempt=stored.attempt, jobs=jobs,
        records={key: record(row) for key, row in course.records.items()},
    )  # fmt: skip


def _states(store: workflows.Workflows, ids: Sequence[str]) -> list[str | None]:
    """Return the state of each job; blocked for one that is about to be: that because of which it was skipped goes on.

    None for one that is gone.
    """
    rows = [
        [value.decode(errors="replace") if value else None for value in row]
        for row in (store.job_fields(ids, ("state", "root")) if ids else ())
    ]
    roots = sorted({root for state, root in rows if state == "skipped" and root})
    found = zip(roots, store.job_fields(roots, ("state",)) if roots else (), strict=True)
    going_on = {root for root, (state,) in found if state not in (None, b"failed", b"cancelled")}
    return ["blocked" if state == "skipped" and root in going_on else state for state, root in rows]


def _last(final: Mapping[str, str], key: str) -> str | None:
    """Return the state of a job that is gone when its workflow ended; None: it is to be done anew."""
    action, _, item = key.partition("/")
    state = final.get(action)
    return state if not item or state == "done" else None


def record(row: Mapping[str, Any]) -> Record:
    """Return a record as it is stored."""
    return Record(
        state=row["state"], result=row.get("result"), error=row.get("error", ""), items=tuple(row.get("items", ())),
        ended=row.get("ended", 0),
    )  # fmt: skip


class _Look:
    """Steps of one look."""

    def __init__(self, engine: Engine, stored: StoredWorkflow, whole: Document, known: Known) -> None:
        self._engine = engine
        self._store = engine._store
        self._stored = stored
        self._whole = whole
        self._known = known
        self._maker = Maker(tenant=stored.tenant, token=stored.token, runs_programs=stored.run)
        self._results = Results(whole, known, engine._jobs)
        self._until = time.monotonic() + _LOOK_SECONDS
        self._batch: list[tuple[Submit, Wanted]] = []
        self._stopped = False
        self.outcome = Outcome()
        #: Why the next job is not submitted.
        self.waits = ""

    @property
    def _actor(self) -> Actor:
        return Actor(self._stored.tenant, self._stored.token)

    @property
    def _during(self) -> tuple[str, int]:
        """Attempt in which alone steps of this look are carried out: its leader may be stopped for a while."""
        return self._stored.id, self._known.attempt

    # -- retries ----------------------------------------------------------------------------------------------------

    def retry(self, keys: frozenset[str]) -> None:
        """Try the jobs of these actions again, each from where it stopped."""
        # Those before others come first: a job that comes after a cancelled one is not taken back.
        order = {name: place for place, name in enumerate(self._whole.actions)}
        for key in sorted(keys, key=lambda key: (order[key.partition("/")[0]], key)):
            job = self._known.jobs.get(key)
            if job and job.state in ("failed", "cancelled"):
                self._retry(key, job.id)
            self._store.workflows.retried(*self._during, [key])
            self.outcome.again = True

    def _retry(self, key: str, job_id: str) -> None:
        kind = self._whole.actions[key.partition("/")[0]].type
        version = registry.definition(kind).MODEL_VERSION
        how = self._store.jobs.retry(job_id, version, self._actor, hold=True, during=self._during)
        if how[0] == "version":
            log.warning("a job of a workflow cannot go on with another version of its kind", extra={"job_id": job_id})

    # -- steps ------------------------------------------------------------------------------------------------------

    def carry_out(self, plan: Plan) -> None:
        """Carry out the steps of a plan, as many as there is time for."""
        for step in plan.steps:
            if self._stopped:
                break
            if time.monotonic() > self._until:
                self.outcome.again = True
                break
            if isinstance(step, Submit):
                self._add(step)
            elif isinstance(step, Cancel):
                self._store.jobs.cancel(step.job_id, self._actor, during=self._during)
                self.outcome.again = True
            elif isinstance(step, Expand):
                self._expand(step)
            else:
                self._run(step)
        self._send()

    def _add(self, step: Submit) -> None:
        action = step.action
        try:
            parameters = action.parameters
            if action.late:
                parameters = results.body(
                    action.type, parameters, self._results, step.item, step.index, is_item=action.foreach is not None
                )
            else:
                parameters = references.filled(parameters, lambda _: None)
        except Unfilled as error:
            self._fail(step.key, str(error))
            return
        wanted = Wanted(
            job_id=step.job_id, body={"type": action.type, "parameters": parameters, **action.options},
            maker=self._maker, after=step.after, after_any=step.after_any, workflow=self._stored.id, action=step.key,
            attempt=self._known.attempt,
        )  # fmt: skip
        self._batch.append((step, wanted))
        if len(self._batch) >= _TOGETHER:
            self._send()

    def _send(self) -> None:
        batch, self._batch = self._batch, []
        if not batch or self._stopped:
            return
        answers = self._engine._on_behalf.submit([wanted for _, wanted in batch])
        for (step, _), answer in zip(batch, answers, strict=True):
            if isinstance(answer, errors.ClusterError):
                self._refused(step, answer)
            else:
                self.outcome.again = True

    def _refused(self, step: Submit, error: errors.ClusterError) -> None:
        """Note why a job was not submitted: for good, or until there is room."""
        if isinstance(error, errors.OverLimit | errors.Unavailable | errors.StoreFull):
            self.waits, self._stopped, self.outcome.soon = error.detail[:_MAX_ERROR], True, True
        elif isinstance(error, errors.Conflict) and error.field == "workflow":
            self._stopped = self.outcome.again = True  # it was cancelled
        elif isinstance(error, errors.Conflict) and (error.field or "").startswith("after"):
            self.outcome.soon = True  # one before it in this batch was refused
        else:
            self._fail(step.key, error.detail)

    def _expand(self, step: Expand) -> None:
        action = step.action
        try:
            items = references.filled(action.foreach, self._results.part)
        except Unfilled as error:
            self._fail(action.id, str(error))
            return
        if not isinstance(items, list) or len(items) > MAX_ACTIONS - len(self._whole.actions):
            what = f"a list of {len(items)}" if isinstance(items, list) else f"a {type(items).__name__}"
            most = f"a list of at most {MAX_ACTIONS - len(self._whole.actions)} items, with all actions {MAX_ACTIONS}"
            self._fail(action.id, f"foreach: {action.foreach} must be {most}; got {what}")
            return
        size = len(json.dumps(items))
        if size > _MAX_ITEMS:
            self._fail(action.id, f"foreach: the items have {size} bytes as JSON; at most {_MAX_ITEMS}")
            return
        self._note(action.id, {"state": "expanded", "items": items})

    def _run(self, step: CarryOut) -> None:
        action = step.action
        of = TYPES.get(action.type)
        host = self._engine._host_of(self._actor)
        if of is None or of.run is None:
            self._fail(action.id, f"{action.type} needs {of.lacks if of else 'a later version of the cluster'}")
            return
        try:
            filled = references.filled(action.parameters, self._results.part)
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
            self._fail(action.id, f"it gave {size} bytes as JSON; at most {_MAX_RESULT}")
            return
        self._note(action.id, {"state": "done", "result": given, "ended": self._now()})

    def _fail(self, key: str, error: str) -> None:
        self._note(key, {"state": "failed", "error": error[:_MAX_ERROR], "ended": self._now()})

    def _note(self, key: str, row: Mapping[str, Any]) -> None:
        self._store.workflows.record(self._stored.id, self._known.attempt, key, row)
        self.outcome.again = True

    def _now(self) -> int:
        return int(self._store.clock.now() * 1000)


def to_retry(known: Known) -> tuple[list[str], list[str]]:
    """Return the keys whose jobs are tried again, and those that begin anew: what is done stays.

    Skipped jobs come back with the job because of which they were skipped.
    """
    retried = [key for key, job in known.jobs.items() if job.state in ("failed", "cancelled") and not job.gone]
    gone = [key for key, job in known.jobs.items() if job.state != "done" and job.gone]
    refused = [key for key, one in known.records.items() if one.state == "failed"]
    return retried, gone + refused


def unfinished_items(known: Known, action: str) -> tuple[int, int]:
    """Return how many items of a foreach have ended, and how many there are."""
    record = known.records.get(action)
    total = len(record.items) if record else 0
    keys = [item_key(action, index) for index in range(total)]
    ended = sum(1 for key in keys if (job := known.jobs.get(key)) and (job.state or "failed") in TERMINAL)
    return ended + sum(1 for key in keys if key in known.records), total
