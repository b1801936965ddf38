"""Repairs of what is broken in Redis: jobs are quarantined, other keys put aside, indexes built anew."""

from __future__ import annotations

from jobs.store import keys
from jobs.store.scripts import Part, Scripts

#: Jobs put back into the indexes by one script at most.
_JOBS_A_CALL = 100


def quarantine(scripts: Scripts, job: str | bytes, why: str) -> None:
    """Fail a job whose contents cannot be read, so that nobody works on it again."""
    scripts.run("quarantine", job, why[:500])


class Repairs(Part):
    """Repairs that only the leader and whoever meets a broken entry ask for."""

    def quarantine(self, job: str | bytes, why: str) -> None:
        """Fail a job whose contents cannot be read, so that nobody works on it again."""
        quarantine(self._scripts, job, why)

    def put_aside(self, name: str) -> None:
        """Empty the place of a key that is not a job's and holds what it must not."""
        self._scripts.run("aside", name)

    def reindex(self) -> int:
        """Put every job back into all indexes, if one was put aside; return how many. Only the leader does."""
        if not self._disturbed():
            return 0
        self._client.delete(keys.LOAD, keys.SHAPES, *self._client.scan_iter(keys.tenant_shapes("*"), count=1000))
        names = self._client.scan_iter(keys.job("*"), count=1000)
        ids = [job for job in map(keys.job_id, names) if job is not None]
        for at in range(0, len(ids), _JOBS_A_CALL):
            self._scripts.run("reindex", *ids[at : at + _JOBS_A_CALL])
        self._client.delete(keys.DISTURBED_KEPT)
        return len(ids)

    def _disturbed(self) -> bool:
        """Return True from when an index was put aside until `reindex` came to its end, whoever began it."""
        if self._client.exists(keys.DISTURBED):
            self._client.rename(keys.DISTURBED, keys.DISTURBED_KEPT)
        return bool(self._client.exists(keys.DISTURBED_KEPT))
