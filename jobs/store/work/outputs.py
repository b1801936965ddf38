"""Output of programs. Each unit has an artifact with its output, which only the holder of its lease can store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobs import queues
from jobs.models import Device, Spec
from jobs.store import keys
from jobs.store.artifacts import NewArtifact
from jobs.store.server.connection import Unreadable
from jobs.store.server.functions import Part
from threads_protocol.states import TERMINAL

#: Maximum number of units, and maximum number of unit ranges, in one call.
MAX_UNITS, MAX_RANGES = 100_000, 1000


@dataclass(frozen=True, kw_only=True)
class LeasedUnits:
    """Valid lease, with facts about its job that the lease's holder can read."""

    job_id: str
    #: Token of the lease, as stored in Redis.
    token: str
    tenant: str
    spec: Spec
    queue: str
    #: First unit of the lease.
    lo: int
    hi: int
    #: Jobs that had to end before this job could start.
    parents: frozenset[str] = frozenset()

    @property
    def runs_programs(self) -> bool:
        """Return True if the units of the lease are programs."""
        return self.queue in queues.for_worker(Device.RUNNER)


@dataclass(frozen=True, kw_only=True)
class UnitState:
    """State of one unit of a program, with its output and its last failure."""

    #: State of the job to which the unit belongs.
    job_state: str
    kind: str
    total: int
    tenant: str
    #: State of the unit: waiting, running, retrying, dead or done. Empty if it was not determined.
    state: str
    #: ID of the artifact with the unit's output, or empty if there is none.
    artifact: str
    #: Record of the last failed attempt as its runner wrote it, or empty if there is none.
    failure: str

    @property
    def ended(self) -> bool:
        """Return True if the unit's state is final, unless a user retries the job."""
        return self.state in ("done", "dead") or self.job_state in TERMINAL


class Outputs(Part):
    """Records the output artifacts of units in Redis."""

    def leased(self, job: str, token: str) -> LeasedUnits | None:
        """Return the lease with this token, or None if it has ended. The leases of a job that is cancelling are still
        valid.
        """
        lease, row = self._functions.read(
            ("HGET", keys.job_lease(job), token),
            ("HMGET", keys.job(job), "tenant", "spec", "queue", "after", "after_any"),
        )
        if not lease or not row[1]:
            return None
        try:
            lo, hi, *_ = (int(word) for word in lease.split(b":")[:2])
            tenant, queue = row[0].decode(), row[2].decode()
            parents = frozenset(parent for listed in row[3:] if listed for parent in json.loads(listed))
            return LeasedUnits(
                job_id=job,
                token=token,
                tenant=tenant,
                spec=json.loads(row[1]),
                queue=queue,
                lo=lo,
                hi=hi,
                parents=parents,
            )
        except Unreadable:
            return None

    def keep(self, lease: LeasedUnits, units: Sequence[tuple[int, int]], new: NewArtifact) -> list[str]:
        """Store an artifact as the output of units. If the lease does not contain all of the units, change nothing.

        Return [new] or [there]; otherwise [stale], [units] if some are not in the lease, or missing, over or gone like
        `Artifacts.commit`. Releases artifacts that no unit of the job refers to any more.
        """
        about = (new.id, new.bytes, new.files, new.manifest_bytes, new.manifest)
        ranges = ",".join(f"{lo}:{hi}" for lo, hi in units)
        rows = (item for row in new.sizes.items() for item in row)
        return self._functions.run_acknowledged_texts(
            "keep_output", lease.job_id, lease.token, lease.tenant, ranges, *about, *rows
        )

    def unit(self, job: str, unit: int, *, look: bool = True) -> UnitState | None:
        """Return the state of a program's unit, or None if the job does not exist.

        Without `look`, the state is determined only for units without an artifact. Determining it takes Redis about 100
        ms for a job with 100,000 dead units.
        """
        reply = self._functions.run_texts("unit", job, unit, int(look))
        if not reply:
            return None
        job_state, kind, total, *rest = reply
        tenant, state, artifact, failure = rest
        return UnitState(
            job_state=job_state,
            kind=kind,
            total=int(total),
            tenant=tenant,
            state=state,
            artifact=artifact,
            failure=failure,
        )

    def artifact(self, job: str, unit: int) -> str | None:
        """Return the ID of the artifact with a unit's output, or None if there is none."""
        reply: Any = self._client.hget(keys.job_files(job), unit)
        return reply.decode() if reply else None
