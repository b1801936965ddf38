"""How many replicas a service is to have, by the requests that it has. Pure."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache

from jobs.store.services import Service

#: Milliseconds for which fewer replicas must have been enough before one goes.
DOWN_MS = 60_000
#: Milliseconds between two notes that all replicas are needed.
NOTE_MS = 5_000


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Numbers that were asked for. Without `most` a service keeps its number, without `idle_ms` it never sleeps."""

    idle_ms: int = 0
    least: int = 1
    most: int = 0
    #: Requests for each replica, those that wait included.
    target: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Change:
    """Another number of replicas from now on, or the note that those there are were needed until now."""

    replicas: int
    needed_at: int


def of(service: Service) -> Scaling:
    """Return what was asked for."""
    return _read(service.asked)


@lru_cache(maxsize=1024)
def _read(asked: str) -> Scaling:
    known = json.loads(asked)
    idle_ms, load = round((known["idle_seconds"] or 0) * 1000), known["autoscale"]
    if not load:
        return Scaling(idle_ms=idle_ms)
    return Scaling(idle_ms=idle_ms, least=load["min"], most=load["max"], target=load["target"])


def asleep(service: Service, now: int) -> bool:
    """Return True for a service that keeps no replica until somebody asks it. `now`: milliseconds of Redis' clock."""
    idle_ms = of(service).idle_ms
    return bool(idle_ms) and not service.demand and (now - service.asked_at >= idle_ms)


def wanted(service: Service, now: int) -> int:
    """Return how many replicas there are to be; a service that sleeps has one at least once it is awake."""
    if service.stopped or service.deleted or asleep(service, now):
        return 0
    return max(service.replicas, 1) if of(service).idle_ms else service.replicas


def change(service: Service, now: int) -> Change | None:
    """Return the next change of a service that is scaled by load; None while nothing changes.

    More are begun at once. One goes when fewer were enough for DOWN_MS, then the next after as long again.
    """
    asked = of(service)
    if not asked.most or service.stopped or service.deleted:
        return None
    needed = min(asked.most, max(asked.least, math.ceil(service.demand / asked.target)))
    if needed > service.replicas:
        return Change(replicas=needed, needed_at=now)
    if needed < service.replicas:
        late = now - service.needed_at >= DOWN_MS
        return Change(replicas=service.replicas - 1, needed_at=now) if late else None
    stale = service.replicas > asked.least and now - service.needed_at >= NOTE_MS
    return Change(replicas=service.replicas, needed_at=now) if stale else None
