"""What the API shows of jobs, read from Redis and shaped. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coordinator import decoding
from coordinator.jobs import marks, results, rows, scheduler
from coordinator.jobs.fleet_cache import FleetCache
from jobs import errors
from jobs.models import JobState
from jobs.numbers import exact
from jobs.store import leases, skipped

P = leases.PREFIX
VERSION = "0.1.0"
#: Pages looked at for one answer, when a kind is asked for that is rare.
_PAGES = 20
#: Numbers of jobs are integers up to here.
_LAST = str(2**53)


def _not_found(job_id: str) -> errors.NotFound:
    return errors.NotFound(f"no job {job_id}; list them with GET /api/jobs", field="job_id")


def _broken(job_id: str) -> errors.Broken:
    return errors.Broken(
        f"what is stored of job {job_id} cannot be read; delete it and submit it again", field="job_id"
    )


class JobQueries:
    def __init__(self, store: leases.Leases, fleet: FleetCache) -> None:
        self._leases = store
        self._fleet = fleet

    def job(self, job_id: str) -> dict[str, Any]:
        """One job as the API shows it; NotFound, or Broken when what is stored of it cannot be read."""
        found = self.by_ids([job_id])
        if found:
            return found[0]
        raise _broken(job_id) if self._leases.client.exists(leases.key(job_id)) else _not_found(job_id)

    def by_ids(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        pipe = self._leases.client.pipeline(transaction=False)
        for job_id in ids:
            pipe.hgetall(leases.key(job_id))
        stored = [(job_id, row) for job_id, row in zip(ids, skipped.replies(pipe), strict=True) if row]
        sound = skipped.readable("job", stored, lambda job_id, row: (job_id, rows.sound(decoding.fields(row))))
        ranks = self._ranks(sound)
        fleet = self._fleet.get() if ranks else scheduler.Fleet()
        return skipped.readable("job", sound, lambda job_id, row: rows.shown(job_id, row, ranks.get(job_id, -1), fleet))

    def _ranks(self, rows: Sequence[tuple[str, dict[str, str]]]) -> dict[str, int | None]:
        """Place in the queue of jobs that wait."""
        waiting = [(job_id, row) for job_id, row in rows if row["state"] in ("queued", "running")]
        if not waiting:
            return {}
        pipe = self._leases.client.pipeline(transaction=False)
        for job_id, row in waiting:
            pipe.zrank(f"{P}pending:{row['queue']}", job_id)
        return {job_id: rank for (job_id, _), rank in zip(waiting, skipped.replies(pipe), strict=True)}

    def page(self, state: str | None, kind: str | None, cursor: int | None, limit: int) -> dict[str, Any]:
        """Newest first. The cursor is the number of the last job looked at; a page may hold less than `limit`."""
        index = f"{P}in:{state}" if state else f"{P}jobs"
        found: list[dict[str, Any]] = []
        top = f"({cursor}" if cursor is not None else _LAST
        for _ in range(_PAGES):
            size = max(limit, 100)
            pipe = self._leases.client.pipeline(transaction=False)
            [page] = skipped.replies(pipe.zrevrangebyscore(index, top, 0, start=0, num=size, withscores=True))
            if not page:
                return {"jobs": found, "cursor": None}
            shown = {job["job_id"]: job for job in self.by_ids(decoding.names(job_id for job_id, _ in page))}
            for job_id, score in page:
                cursor = int(score)
                job = shown.get(job_id.decode(errors="replace"))
                if job and (kind is None or job["type"] == kind):
                    found.append(job)
                if len(found) == limit:
                    return {"jobs": found, "cursor": str(cursor)}
            top = f"({cursor}"
        return {"jobs": found, "cursor": str(cursor)}

    def states(self, ids: Sequence[str]) -> list[str | None]:
        pipe = self._leases.client.pipeline(transaction=False)
        for job_id in ids:
            pipe.hget(leases.key(job_id), "state")
        return [state.decode(errors="replace") if state else None for state in skipped.replies(pipe)]

    def counts(self) -> dict[str, int]:
        """Jobs kept, by state."""
        pipe = self._leases.client.pipeline(transaction=False)
        for state in JobState:
            pipe.zcard(f"{P}in:{state}")
        return {state.value: count or 0 for state, count in zip(JobState, skipped.replies(pipe), strict=True)}

    def result(self, job_id: str) -> tuple[dict[str, Any], str, bytes | None]:
        """What stands around a job's result, its state, and the result as it is stored, if it is; NotFound."""
        try:
            row, stored = self._leases.read(
                ("HMGET", leases.key(job_id), "kind", "total", "done", "state"), ("GET", leases.key(job_id, "result"))
            )
        except leases.RedisError as error:
            if leases.wrong_type(error):
                raise _broken(job_id) from error
            raise
        if row[0] is None:
            raise _not_found(job_id)
        try:
            kind, total, done, state = (value.decode() for value in row)
            head = {"job_id": job_id, "type": kind, "partial": False, "units": exact(int(done)),
                    "total": exact(int(total))}  # fmt: skip
        except leases.Unreadable:
            raise _broken(job_id) from None
        return head, state, stored

    def results(self, ids: Sequence[str]) -> bytes:
        """Return state and, once done, result of each job as one JSON answer; see `results.many`."""
        return results.many(self._leases.client, ids)

    def mark(self, kind: str, name: str) -> dict[str, Any]:
        """Return how far a mark reaches without a hole, and the ranges beyond. NotFound naming those there are."""
        return marks.read(self._leases, kind, name)

    def units_per_second(self) -> dict[str, float]:
        """Committed units/s now, by kind, over the jobs that run."""
        [found] = skipped.replies(self._leases.client.pipeline(transaction=False).zrevrange(f"{P}in:running", 0, 99))
        running = self.by_ids(decoding.names(found or ()))
        speeds: dict[str, float] = {}
        for job in running:
            if job["rate"]:
                speeds[job["type"]] = speeds.get(job["type"], 0.0) + job["rate"]
        return speeds
