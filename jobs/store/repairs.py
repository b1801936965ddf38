"""Repairs of invalid data in Redis: mark jobs as unreadable, and rebuild indexes from the jobs."""

from __future__ import annotations

from jobs.store import keys, unreadable_entries
from jobs.store.server.functions import Functions, Part

#: Number of jobs whose indexes are rebuilt by one call.
_JOBS_A_CALL = 100


def quarantine(functions: Functions, job: str | bytes, why: str) -> None:
    """Fail a job with unreadable data, so that no worker takes it again."""
    functions.run("quarantine", job, why[:500])


class Repairs(Part):
    def quarantine(self, job: str | bytes, why: str) -> None:
        """Fail a job with unreadable data, so that no worker takes it again."""
        quarantine(self._functions, job, why)

    def reindex(self) -> int:
        """Rebuild all indexes from the jobs, and allow submissions again. Return the number of jobs."""
        [broken] = unreadable_entries.replies(self._pipe().smembers(keys.BROKEN))
        self._client.delete(keys.LOAD, keys.SHAPES, *self._client.scan_iter(keys.tenant_shapes("*"), count=1000))
        names = self._client.scan_iter(keys.job("*"), count=1000)
        ids = [job for job in map(keys.job_id, names) if job is not None]
        for at in range(0, max(len(ids), 1), _JOBS_A_CALL):
            self._functions.run("reindex", *ids[at : at + _JOBS_A_CALL])
        for name in broken or ():
            if b":" in name:  # Names of keys contain a colon, but job IDs do not
                self._client.srem(keys.BROKEN, name)
        self._client.delete(keys.DAMAGED)
        return len(ids)
