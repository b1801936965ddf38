"""Tenants: their weights and caps, and what they use of them now."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.models import ANONYMOUS, Actor
from jobs.store import keys, skipped
from jobs.store.scripts import Part

#: Names of tenants.
NAME = r"^[a-z0-9][a-z0-9-]{0,31}$"
#: Largest weight and caps.
MAX_WEIGHT, MAX_CAP = 1_000_000, 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """Who shares the cluster with others. One that is not registered has the defaults."""

    name: str
    #: Share of the lanes beside other tenants, relative to theirs; at least 1.
    weight: int = 1
    #: Most lanes that compute its jobs at once; 0: any number.
    max_lanes: int = 0
    #: Most of its jobs that wait or run at once; 0: any number.
    max_jobs: int = 0


@dataclass(frozen=True, kw_only=True)
class Use:
    """Part of its caps that a tenant uses now."""

    #: Leases of its jobs that are alive.
    lanes: int
    #: Jobs that wait or run.
    jobs: int
    #: Queued jobs that wait until max_jobs admits them.
    backlog: int


class Tenants(Part):
    """Registers tenants, changes and reads them."""

    def put(self, tenant: Tenant, actor: Actor = ANONYMOUS) -> bool:
        """Register a tenant or change its weight and caps; True: it is new. With the first, `default` is registered."""
        reply = self._scripts.run("tenant", tenant.name, tenant.weight, tenant.max_lanes, tenant.max_jobs, *actor)
        return bool(reply == b"new")

    def remove(self, name: str, actor: Actor = ANONYMOUS) -> str:
        """Forget a tenant: ok. Else missing; default, which stays; busy: jobs of it wait or run; tokens: some count."""
        reply: bytes = self._scripts.run("tenant_remove", name, *actor)
        return reply.decode()

    def names(self) -> list[str]:
        """Return the registered tenants, sorted."""
        [members] = skipped.replies(self._pipe().zrange(keys.TENANTS, 0, -1))
        return sorted(name.decode() for name in members or ())

    def read(self, names: list[str]) -> list[tuple[Tenant, Use]]:
        """Return weight, caps and use of each of the tenants, registered or not."""
        seconds, micros = self._client.time()
        now = seconds * 1000 + micros // 1000
        pipe = self._pipe()
        for name in names:
            pipe.hget(keys.SHARES, name)
            pipe.zcount(keys.lanes(name), f"({now}", "+inf")
            pipe.zcard(keys.admitted(name)).zcard(keys.backlog(name))
        replies = iter(skipped.replies(pipe) if names else ())
        return [
            (_tenant(name, next(replies)), Use(lanes=next(replies), jobs=next(replies), backlog=next(replies)))
            for name in names
        ]


def _tenant(name: str, stored: bytes | None) -> Tenant:
    weight, lanes, jobs = (int(value) for value in (stored or b"1|0|0").split(b"|"))
    return Tenant(name=name, weight=max(weight, 1), max_lanes=lanes, max_jobs=jobs)
