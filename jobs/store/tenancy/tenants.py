"""Tenants: their weights, their limits, and their current usage."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.hosts import labels
from jobs.models import ANONYMOUS, Actor
from jobs.store import keys, unreadable_entries
from jobs.store.server.functions import Part
from jobs.store.tenancy import caps
from jobs.store.tenancy.caps import Cap
from jobs.store.tenancy.stored_bytes import StoredBytes

#: Pattern of tenant names.
NAME = r"^[a-z0-9][a-z0-9-]{0,31}$"
#: Maximum weight of a tenant.
#: `MAX_CAP` is the maximum value of a tenant's limits on lanes and jobs.
MAX_WEIGHT, MAX_CAP = 1_000_000, 1_000_000_000
#: Maximum values of a tenant's limits on daily units, daily GPU seconds, and stored bytes.
MAX_UNITS, MAX_GPU_SECONDS, MAX_BYTES = 2**53 - 1, 10**9, 2**50


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """Tenant of the cluster. A tenant that is not registered has the default values."""

    name: str
    #: Weight of the tenant's share of the lanes, relative to other tenants. At least 1.
    weight: int = 1
    #: Maximum number of lanes that compute the tenant's jobs at the same time. 0 means no limit.
    max_lanes: int = 0
    #: Maximum number of the tenant's queued and running jobs. 0 means no limit.
    max_jobs: int = 0
    #: Maximum number of units per day, keyed by kind. Other kinds have no limit.
    max_units: Mapping[str, int] = field(default_factory=dict)
    #: Maximum number of GPU seconds per day. 0 means no limit.
    max_gpu_seconds: int = 0
    #: Maximum number of bytes in the tenant's jobs, artifacts and workflows. 0 means no limit.
    max_stored_bytes: int = 0
    #: Labels that a host needs to compute the tenant's jobs. On writes, None means no change.
    requires: frozenset[str] | None = None


@dataclass(frozen=True, kw_only=True)
class TenantUse:
    """Current usage of a tenant, to compare with its limits."""

    #: Number of active leases of the tenant's jobs.
    lanes: int
    #: Number of the tenant's queued and running jobs.
    jobs: int
    #: Number of the tenant's jobs that wait because of max_jobs.
    backlog: int
    #: Today's number of units, keyed by kind, for kinds with a limit.
    units: Mapping[str, int] = field(default_factory=dict)
    gpu_ms: int = 0
    #: Bytes in the tenant's jobs, artifacts and workflows, if there is a limit on them.
    stored_bytes: int = 0


class Tenants(Part):
    """Registers, changes and reads tenants in Redis."""

    def put(self, tenant: Tenant, actor: Actor = ANONYMOUS) -> bool:
        """Register a tenant, or change its weight, limits and required labels. Return True if the tenant is new.

        Registering the first tenant also registers `default`.
        """
        numbers = (tenant.weight, tenant.max_lanes, tenant.max_jobs)
        requires = "*" if tenant.requires is None else "+".join(sorted(tenant.requires))
        reply = self._functions.run_acknowledged(
            "tenant", tenant.name, *numbers, _encode_caps(tenant), _describe_caps(tenant), *actor, requires
        )
        if tenant.max_stored_bytes:
            StoredBytes(self._functions).recount()
        return bool(reply == b"new")

    def remove(self, name: str, actor: Actor = ANONYMOUS) -> str:
        """Remove a tenant. Return ok, or the reason why the tenant cannot be removed.

        The reasons are missing, default, busy, workflows, tokens and artifacts. `default` cannot be removed. `busy`
        means that the tenant has queued or running jobs; `workflows`, `tokens` and `artifacts` mean that it still has
        some.
        """
        reply: bytes = self._functions.run_acknowledged("tenant_remove", name, *actor)
        return reply.decode()

    def names(self) -> list[str]:
        """Return the sorted names of all registered tenants."""
        [members] = unreadable_entries.replies(self._pipe().zrange(keys.TENANTS, 0, -1))
        return sorted(name.decode() for name in members or ())

    def lets(self, job: str, of_host: Collection[str]) -> bool:
        """Return True if a host with the labels `of_host` can compute a job, or if the job does not exist."""
        pipe = self._pipe().hget(keys.SHARES, labels.REQUIRED).hget(keys.job(job), "tenant")
        required, tenant = (
            value.decode(errors="replace") if value else "" for value in unreadable_entries.replies(pipe)
        )
        return labels.parse_required_labels(required).get(tenant, frozenset()) <= set(of_host)

    def read(self, names: Sequence[str]) -> list[tuple[Tenant, TenantUse]]:
        """Return the properties and the usage of each tenant, whether it is registered or not."""
        seconds, micros = self._client.time()
        now = seconds * 1000 + micros // 1000
        pipe = self._pipe().hget(keys.SHARES, labels.REQUIRED)
        for name in names:
            pipe.hget(keys.SHARES, name)
            pipe.zcount(keys.lanes(name), f"({now}", "+inf")
            pipe.zcard(keys.admitted(name)).zcard(keys.backlog(name))
        required, *counts = unreadable_entries.replies(pipe)
        replies, wanted = iter(counts), labels.parse_required_labels((required or b"").decode(errors="replace"))
        _, further = caps.read(self._functions, names)
        rows = ([next(replies) for _ in range(4)] for _ in names)
        described = [_parse_tenant(*each) for each in zip(names, rows, further, strict=True)]
        return [(replace(one, requires=wanted.get(one.name, frozenset())), use) for one, use in described]


def _encode_caps(tenant: Tenant) -> str:
    units = {f"{caps.UNITS}{kind}": most for kind, most in sorted(tenant.max_units.items())}
    further = {caps.GPU_MS: tenant.max_gpu_seconds * 1000, caps.STORED_BYTES: tenant.max_stored_bytes}
    return caps.encode_caps(units | further)


def _describe_caps(tenant: Tenant) -> str:
    """Return the optional limits of a tenant in the format of the audit log."""
    limits = {f"max_units {kind}": most for kind, most in sorted(tenant.max_units.items())}
    limits |= {"max_gpu_seconds": tenant.max_gpu_seconds, "max_stored_bytes": tenant.max_stored_bytes}
    requires = f", requires {' '.join(sorted(tenant.requires)) or 'no labels'}" if tenant.requires is not None else ""
    return "".join(f", {name} {most}" for name, most in limits.items() if most) + requires


def _parse_tenant(name: str, row: Sequence[Any], own: Mapping[str, Cap]) -> tuple[Tenant, TenantUse]:
    stored, lanes, jobs, backlog = row
    weight, max_lanes, max_jobs = (int(value) for value in (stored or b"1|0|0").split(b"|"))
    units = {what.removeprefix(caps.UNITS): cap for what, cap in sorted(own.items()) if what.startswith(caps.UNITS)}
    none = Cap(used=0, most=0)
    gpu_ms, stored_bytes = own.get(caps.GPU_MS, none), own.get(caps.STORED_BYTES, none)
    tenant = Tenant(
        name=name,
        weight=max(weight, 1),
        max_lanes=max_lanes,
        max_jobs=max_jobs,
        max_units={kind: cap.most for kind, cap in units.items()},
        max_gpu_seconds=gpu_ms.most // 1000,
        max_stored_bytes=stored_bytes.most,
    )
    use = TenantUse(
        lanes=lanes,
        jobs=jobs,
        backlog=backlog,
        units={kind: cap.used for kind, cap in units.items()},
        gpu_ms=gpu_ms.used,
        stored_bytes=stored_bytes.used,
    )
    return tenant, use
