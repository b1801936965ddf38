"""Facts of jobs for a worker: of the one that it holds, and of those that it has leased. Reads only."""

from __future__ import annotations

import base64
from collections.abc import Sequence, Set
from dataclasses import asdict
from typing import Any

from coordinator.work.identity import owner
from jobs import queues
from jobs.gathered import Gathered
from jobs.models import Device
from jobs.store import Store
from jobs.store.work.results import SOME_BYTES
from jobs.store.work.slots import Facts, Held, Taken

_GONE = Gathered(accumulator=None, parts=(), done=0, spec=None)


def work(store: Store, worker: str, device: Device, found: Held | Taken | str) -> dict[str, Any] | None:
    """Return NEXT's answer with the facts of the jobs; None when the job that it gave is gone meanwhile."""
    if isinstance(found, str):
        return {"how": found, "jobs": [], "leases": []}
    if isinstance(found, Taken):
        prefix = owner(worker)
        leases = [token.removeprefix(prefix) for _, token in found.jobs]
        return {"how": "take", "jobs": [_facts(facts) for facts in found.facts], "leases": leases}
    [facts] = store.slots.facts([found.job_id], device)
    return None if facts is None else {"how": "hold", "jobs": [_facts(facts)], "leases": []}


def _facts(facts: Facts) -> dict[str, Any]:
    return asdict(facts)


def waiting(store: Store, device: Device) -> dict[str, Any]:
    """Return how many jobs wait in each queue that a worker of this device listens to."""
    return {"waiting": store.slots.waiting(queues.for_worker(device))}


def followed(store: Store, jobs: Set[str]) -> list[str]:
    """Return those of the jobs of which somebody follows a unit."""
    return sorted(jobs & store.live_output.followed(store.clock.now() * 1000)) if jobs else []


def attached(store: Store, jobs: Set[str]) -> list[list[str | int]]:
    """Return the shells that somebody wants beside units of these jobs: job, unit and id of each."""
    return [list(one) for one in store.attachments.asked(jobs)] if jobs else []


def gathered(store: Store, worker: str, job: str, limit: int, start: int, labels: Sequence[str] = ()) -> dict[str, Any]:
    """Return what is committed of the job that a worker holds, some MiB at once; of any other as of none.

    Its lane may commit the last unit of a job when the worker holds another already: then it derives the result. But
    not once the job's tenant requires labels that the worker's host has not.
    """
    found, more = _GONE, False
    holds = store.slots.held(worker) == job or store.slots.has_computed(worker, job)
    if holds and store.tenants.lets(job, labels):
        found, more = store.results.gather_some(job, limit, start, SOME_BYTES)
    return {
        "accumulator": _packed(found.accumulator),
        "parts": [_packed(part) for part in found.parts],
        "done": found.done,
        "spec": _packed(found.spec),
        "more": more,
    }


def _packed(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()
