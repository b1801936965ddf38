"""Output of programs: which artifact has what each unit of a job left, and who may say so: the holder of a lease."""

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

#: Units and ranges of units of one call at most.
MAX_UNITS, MAX_RANGES = 100_000, 1000


@dataclass(frozen=True, kw_only=True)
class Leased:
    """A lease that lives, and what its holder may know of its job."""

    job_id: str
    #: As Redis knows it.
    token: str
    tenant: str
    spec: Spec
    queue: str
    #: Units of the lease.
    lo: int
    hi: int

    @property
    def runs_programs(self) -> bool:
        """True where the job's units are programs."""
        return self.queue in queues.for_worker(Device.RUNNER)


@dataclass(frozen=True, kw_only=True)
class UnitState:
    """Where one unit of a program stands."""

    #: Of its job.
    job_state: str
    kind: str
    total: int
    tenant: str
    #: waiting, running, retrying, dead or done; empty where it was not looked for.
    state: str
    #: Id of the artifact with what it left; empty where it left nothing.
    artifact: str
    #: Row of its last attempt that failed, as its runner wrote it; empty without one.
    failure: str

    @property
    def ended(self) -> bool:
        """True when nothing more comes of it, unless its job is retried."""
        return self.state in ("done", "dead") or self.job_state in TERMINAL


class Outputs(Part):
    """Keeps and finds what units of programs left."""

    def leased(self, job: str, token: str) -> Leased | None:
        """Return the lease of this token; None when it has ended. One of a job that is being cancelled lives still."""
        lease, row = self._functions.read(
            ("HGET", keys.job_lease(job), token), ("HMGET", keys.job(job), "tenant", "spec", "queue")
        )
        if not lease or not row[1]:
            return None
        try:
            lo, hi, *_ = (int(word) for word in lease.split(b":")[:2])
            tenant, queue = row[0].decode(), row[2].decode()
            return Leased(job_id=job, token=token, tenant=tenant, spec=json.loads(row[1]), queue=queue, lo=lo, hi=hi)
        except Unreadable:
            return None

    def keep(self, lease: Leased, units: Sequence[tuple[int, int]], new: NewArtifact) -> list[str]:
        """Commit an artifact, held by the job, as what these ranges of units left; or change nothing.

        Answers [new] or [there]; else [stale]; [units]: some are not in the lease; and missing, over, gone as
        `Artifacts.commit`. An artifact that no unit of the job names any more is let go.
        """
        about = (new.id, new.bytes, new.files, new.manifest_bytes, new.manifest)
        ranges = ",".join(f"{lo}:{hi}" for lo, hi in units)
        rows = (item for row in new.sizes.items() for item in row)
        return self._functions.kept_words("keep_output", lease.job_id, lease.token, lease.tenant, ranges, *about, *rows)

    def unit(self, job: str, unit: int, *, look: bool = True) -> UnitState | None:
        """Return where a unit stands; None for one of a job that does not exist.

        Unless asked to `look`, its state is looked for only where it left nothing: that takes Redis some 100 ms where
        100,000 units of the job were given up.
        """
        reply = self._functions.words("unit", job, unit, int(look))
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
        """Return the id of the artifact with what a unit left; None where it left nothing."""
        reply: Any = self._client.hget(keys.job_files(job), unit)
        return reply.decode() if reply else None
