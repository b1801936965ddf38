"""Retries of workflows: which jobs go on, and which actions begin anew. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from coordinator.workflows.document import Document
from coordinator.workflows.planning import BAD, Known, item_key
from jobs.models import TERMINAL


class Retry(NamedTuple):
    """Keys of jobs and records that a retry changes: what is done stays."""

    #: Jobs that are tried again, each from where it stopped. What was skipped because of one comes back with it.
    goes_on: list[str]
    #: What is forgotten, so that its actions begin anew.
    anew: list[str]


def planned(whole: Document, known: Known, outdated: Iterable[str] = ()) -> Retry:
    """Return how a workflow that has ended goes on. `outdated`: jobs that cannot, since their kind has changed."""
    gone = [key for key, job in known.jobs.items() if job.state != "done" and job.gone]
    refused = [key for key, one in known.records.items() if one.state == "failed"]
    anew = begun_anew(whole, known, (*gone, *refused, *outdated))
    goes_on = [key for key, job in known.jobs.items() if job.state in ("failed", "cancelled") and key not in anew]
    return Retry(goes_on, sorted(anew))


def begun_anew(whole: Document, known: Known, keys: Iterable[str]) -> set[str]:
    """Return these keys, and all of the actions after theirs that are not done: those wait for the new jobs.

    An action of which something goes on stays as it is.
    """
    anew = set(keys)
    actions = {action_of(key) for key in anew}
    by_action: dict[str, list[str]] = defaultdict(list)
    for key in (*known.jobs, *known.records):
        by_action[action_of(key)].append(key)
    for action in whole.actions.values():
        own = by_action[action.id]
        waits = any(name in actions for name in (*action.dependencies, *action.after_any))
        if waits and own and action.id not in actions and _has_ended_badly(own, known):
            actions.add(action.id)
            anew.update(own)
    return anew


def action_of(key: str) -> str:
    """Return the action that a key belongs to."""
    return key.partition("/")[0]


def _has_ended_badly(own: Iterable[str], known: Known) -> bool:
    """Return True where nothing of an action goes on, and not all of it is done."""
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
