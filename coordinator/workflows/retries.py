"""Plan the retry of a workflow: which jobs continue, and which actions start again. Functions here are pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from coordinator.workflows.documents import references
from coordinator.workflows.documents.document import Action, Document
from coordinator.workflows.planning import BAD, Known, item_key
from threads_protocol.states import TERMINAL


class Retry(NamedTuple):
    """Keys of the jobs and records that a retry changes. Completed actions stay unchanged."""

    #: Jobs that continue from their last progress. Jobs that were skipped because of these jobs are released too.
    goes_on: list[str]
    #: Jobs and records that the retry deletes, so that their actions start again.
    restarted: list[str]


def plan_retry(whole: Document, known: Known, outdated: Iterable[str] = ()) -> Retry:
    """Plan the retry of an ended workflow. `outdated` jobs cannot continue, because their kind's version changed."""
    gone = [key for key, job in known.jobs.items() if job.state != "done" and job.gone]
    refused = [key for key, one in known.records.items() if one.state == "failed"]
    restarted = find_restarted(whole, known, (*gone, *refused, *outdated, *_find_premature(whole, known)))
    goes_on = [key for key, job in known.jobs.items() if job.state in ("failed", "cancelled") and key not in restarted]
    return Retry(goes_on, sorted(restarted))


def _find_premature(whole: Document, known: Known) -> Iterator[str]:
    """Yield the keys of failed actions with a failed `after_any` dependency.

    When both are retried, the action's job would not wait for the dependency again, so the action must start again.
    """
    own = _by_action(known)
    bad = {name for name, keys in own.items() if _has_ended_badly(keys, known)}
    for action in whole.actions.values():
        if action.id in bad and not bad.isdisjoint(action.after_any):
            yield from own[action.id]


def find_restarted(whole: Document, known: Known, keys: Iterable[str]) -> set[str]:
    """Return the given keys, the keys of unfinished dependents, and the keys of deleted jobs with needed results.

    Unfinished dependents must wait for the new jobs, but an action that is still running stays unchanged. A deleted job
    must run again if an action that has yet to be submitted refers to its result.
    """
    return _RestartFinder(whole, known, keys).restarted


def action_of(key: str) -> str:
    """Return the action ID of a key."""
    return key.partition("/")[0]


class _RestartFinder:
    """Finds all actions that must start again, following dependencies and references from a set of keys."""

    def __init__(self, whole: Document, known: Known, keys: Iterable[str]) -> None:
        self._whole, self._known = whole, known
        self.restarted = set(keys)
        self._own = _by_action(known)
        #: Completed jobs that were deleted, by action.
        self._lost: dict[str, list[str]] = defaultdict(list)
        for key, job in known.jobs.items():
            if job.gone and job.state == "done":
                self._lost[action_of(key)].append(key)
        self._after = self._waiting()
        first = {action_of(key) for key in self.restarted} & whole.actions.keys()
        self._seen = first | {name for name in whole.actions if name not in self._own}
        self._run([whole.actions[name] for name in sorted(self._seen)])

    def _waiting(self) -> dict[str, list[Action]]:
        """Return the dependent actions of each action."""
        after: dict[str, list[Action]] = defaultdict(list)
        for action in self._whole.actions.values():
            for name in (*action.dependencies, *action.after_any):
                after[name].append(action)
        return after

    def _run(self, todo: list[Action]) -> None:
        while todo:
            action = todo.pop()
            for other in (*self._waiting_actions(action), *self._needed_actions(action)):
                self._seen.add(other.id)
                todo.append(other)

    def _waiting_actions(self, action: Action) -> Iterator[Action]:
        """Yield the unfinished actions that depend on an action, and mark all their keys."""
        for other in self._after.get(action.id, ()):
            own = self._own.get(other.id, ())
            if other.id not in self._seen and _has_ended_badly(own, self._known):
                self.restarted.update(own)
                yield other

    def _needed_actions(self, action: Action) -> Iterator[Action]:
        """Yield the actions whose deleted results an action refers to, and mark their keys."""
        has_items = action.id in self._known.records and action.id not in self.restarted
        refers = action.parameters if has_items else [action.parameters, action.foreach]
        for name in {one.action for _, one in references.find_references(refers)} if self._lost else ():
            if name in self._lost and name not in self._seen:
                self.restarted.update(self._lost[name])
                yield self._whole.actions[name]


def _by_action(known: Known) -> dict[str, list[str]]:
    """Return the keys of each action that has started."""
    own: dict[str, list[str]] = defaultdict(list)
    for key in (*known.jobs, *known.records):
        own[action_of(key)].append(key)
    return own


def _has_ended_badly(own: Iterable[str], known: Known) -> bool:
    """Return True if an action has ended without success."""
    states = {_state(key, known) for key in own}
    return states <= TERMINAL and bool(states & BAD)


def _state(key: str, known: Known) -> str:
    if job := known.jobs.get(key):
        return job.state or "failed"
    record = known.records[key]
    if record.state != "expanded":
        return record.state
    items = (item_key(key, index) for index in range(len(record.items)))
    return "done" if all(item in known.jobs or item in known.records for item in items) else "cancelled"
