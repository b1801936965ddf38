"""Cache of the tenants that own jobs. A job never changes its tenant."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import islice

from jobs.store.work.job_reads import JobReads

#: Maximum number of cached jobs. They need about 8 MB.
_KEPT = 50_000


class Owners:
    """Looks up the tenants of jobs. Thread-safe."""

    def __init__(self, job_reads: JobReads, kept: int = _KEPT) -> None:
        self._job_reads = job_reads
        self._kept = kept
        self._known: dict[str, str] = {}
        self._lock = threading.Lock()

    def of(self, ids: Sequence[str]) -> list[str | None]:
        """Return the tenant of each job, or None if the job does not exist.

        The cache can still contain the tenant of a deleted job.
        """
        known = {job_id: self._known.get(job_id) for job_id in ids}
        unknown = [job_id for job_id, tenant in known.items() if tenant is None]
        if unknown:
            read = dict(zip(unknown, self._job_reads.tenants(unknown), strict=True))
            self._remember({job_id: tenant for job_id, tenant in read.items() if tenant})
            known |= read
        return [known[job_id] for job_id in ids]

    def _remember(self, read: dict[str, str]) -> None:
        with self._lock:
            self._known |= read
            for job_id in list(islice(self._known, max(len(self._known) - self._kept, 0))):
                del self._known[job_id]
