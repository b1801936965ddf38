"""Compute the desired number of replicas from a service's load. Pure functions."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache

from jobs.store.services import Service

#: Milliseconds for which fewer replicas must suffice before one is stopped.
DOWN_MS = 60_000
#: Minimum interval in milliseconds between two updates of the time at which all replicas were last needed.
NOTE_MS = 5_000


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Scaling limits of a service. With `most` 0 the number is fixed, and with `idle_ms` 0 the service never sleeps."""

    idle_ms: int = 0
    least: int = 1
    most: int = 0
    #: Target number of requests per replica, including waiting requests.
    target: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Change:
    """New number of replicas, and the time at which all of them were last needed."""

    replicas: int
    needed_at: int


def of(service: Service) -> Scaling:
    """Return the scaling limits of a service."""
    return _read(service.asked)


@lru_cache(maxsize=1024)
def _read(asked: str) -> Scaling:
    known = json.loads(asked)
    idle_ms, load = round((known["idle_seconds"] or 0) * 1000), known["autoscale"]
    if not load:
        return Scaling(idle_ms=idle_ms)
    return Scaling(idle_ms=idle_ms, least=load["min"], most=load["max"], target=load["target"])


def asleep(service: Service, now: int) -> bool:
    """Return True if a service has no replicas until its next request. `now` is Redis time in milliseconds."""
    idle_ms = of(service).idle_ms
    return bool(idle_ms) and not service.demand and (now - service.asked_at >= idle_ms)


def wanted(service: Service, now: int) -> int:
    """Return the desired number of replicas. A service that can sleep has at least one while it is awake."""
    if service.stopped or service.deleted or asleep(service, now):
        return 0
    return max(service.replicas, 1) if of(service).idle_ms else service.replicas


def change(service: Service, now: int) -> Change | None:
    """Return the next change of an autoscaled service, or None.

    Scales up at once. Scales down by one replica after fewer replicas have sufficed for DOWN_MS, and again after the
    same time.
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
