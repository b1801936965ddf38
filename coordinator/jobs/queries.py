"""Read jobs from Redis and serialize them. Nothing here writes."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator import decoding
from coordinator.jobs import marks, relations, results, scheduler, serializers
from coordinator.jobs.caches.fleet_cache import FleetCache
from coordinator.jobs.caches.owners import Owners
from coordinator.jobs.caches.unit_cache import UnitCache
from coordinator.jobs.index import Filter, JobIndex, is_listed
from coordinator.jobs.units import Units
from jobs import errors
from jobs.models import QueuePosition
from jobs.store import Store, unreadable_entries
from jobs.store.server.connection import Unreadable
from jobs.store.work.job_reads import ResultText
from threads_protocol.answers import jobs as answers
from threads_protocol.numbers import exact
from threads_protocol.states import TERMINAL

#: Minimum number of newest jobs of each final state that are sorted by their end.
_ENDED = 100
#: Number of newest jobs in each of the states failed and running that are searched for dead units.
_DEAD = 1000
#: Maximum number of dead ranges returned for a single job.
#: Maximum number of dead ranges returned for each of many jobs.
_DEAD_RANGES, _DEAD_EACH = 1000, 20
#: Maximum number of running jobs whose speeds are summed, newest first.
_RUNNING = 100


def _broken(job_id: str) -> errors.Broken:
    return errors.Broken(
        f"the stored data of job {job_id} is corrupt; delete the job and submit it again", field="job_id"
    )


class JobQueries:
    """Reads jobs, pages of jobs, their states and their results."""

    def __init__(self, store: Store, fleet: FleetCache) -> None:
        self._store = store
        self.fleet = fleet
        self._owners = Owners(store.job_reads)
        self._units = UnitCache(store.unit_reads)
        self._index = JobIndex(store.job_reads)

    def prepare_search(self) -> float:
        """Read new jobs into the index, and return the seconds until the next call."""
        return self._index.prepare()

    def job(self, job_id: str) -> answers.Job:
        """Return one job. Raises NotFound, or Broken if its stored data is corrupt."""
        for row in self.by_ids([job_id]):
            return row
        raise _broken(job_id) if self._store.job_reads.exists(job_id) else errors.missing("job", job_id, "job_id")

    def require_visible(self, job_id: str, tenant: str) -> None:
        """Raise NotFound if the job exists and belongs to another tenant."""
        [owner] = self._owners.of([job_id])
        if owner not in (tenant, None) or (owner is None and self._store.job_reads.exists(job_id)):
            raise errors.missing("job", job_id, "job_id")

    def hidden(self, ids: Sequence[str], tenant: str | None) -> frozenset[str]:
        """Return the jobs that do not belong to this tenant. If `tenant` is None, no job is hidden."""
        if tenant is None:
            return frozenset()
        owners = self._owners.of(ids)
        return frozenset(job_id for job_id, owner in zip(ids, owners, strict=True) if owner != tenant)

    def by_ids(self, ids: Sequence[str]) -> list[answers.Job]:
        """Return the jobs that exist and are readable, in the given order."""
        stored = self._store.job_reads.hashes(ids)
        sound = unreadable_entries.readable(
            "job", stored, lambda job_id, row: (job_id, serializers.check_record(decoding.decode_fields(row)))
        )
        places = self._locate(sound) | self._waits(sound)
        fleet = self.fleet.get() if places else scheduler.Fleet()
        now = self._store.clock.now() if sound else 0.0
        return unreadable_entries.readable(
            "job",
            sound,
            lambda job_id, row: serializers.serialize_job(job_id, row, places.get(job_id, QueuePosition()), fleet, now),
        )

    def _locate(self, jobs: Sequence[tuple[str, dict[str, str]]]) -> dict[str, QueuePosition]:
        """Return the queue position of each queued or running job."""
        waiting = [
            (row["queue"], row["tenant"], row["kind"], job_id)
            for job_id, row in jobs
            if row["state"] in ("queued", "running")
        ]
        places = self._store.job_reads.places(waiting)
        return {job_id: place for (*_, job_id), place in zip(waiting, places, strict=True)}

    def _waits(self, jobs: Sequence[tuple[str, dict[str, str]]]) -> dict[str, QueuePosition]:
        """Return the dependencies that each blocked job waits for."""
        named = [(job_id, row) for job_id, row in jobs if row["state"] == "blocked"]
        blocked = unreadable_entries.readable("job", named, lambda job_id, row: (job_id, relations.parents(row)))
        return self._store.relations.waits(blocked) if blocked else {}

    def relations(self, job_id: str) -> answers.Relations:
        """Return the dependencies and dependents of a job. Raises NotFound or Broken."""
        stored = self._store.job_reads.fields([job_id], relations.FIELDS)
        if not stored:
            raise _broken(job_id) if self._store.job_reads.exists(job_id) else errors.missing("job", job_id, "job_id")
        try:
            row = {name: value.decode() for name, value in stored[0][1].items() if value is not None}
            return relations.build_relations(
                job_id, row, self._store.relations.of(job_id, list(relations.parents(row)))
            )
        except Unreadable:
            raise _broken(job_id) from None

    def page(self, wanted: Filter, cursor: int | None, limit: int) -> answers.Jobs:
        """Return up to `limit` jobs that match a filter, newest first. The cursor is the number of the last job.

        Jobs that are submitted meanwhile precede the first page, so they do not move jobs between pages.
        """
        found = self._index.find(wanted)
        older = [entry for entry in found.entries if cursor is None or entry.number < cursor]
        page = older[:limit]
        return {
            "jobs": self.by_ids([entry.job_id for entry in page]),
            "cursor": str(page[-1].number) if len(older) > limit else None,
            "matching": len(found.entries),
            "total": found.total,
        }

    def ended(self, limit: int, tenant: str | None = None) -> list[answers.Job]:
        """Return up to `limit` ended jobs, the latest end first.

        Only the newest jobs of each final state are searched: 100, or `limit` if larger.
        """
        most = max(limit, _ENDED)
        wanted = [Filter(states=frozenset({state}), visible_to=tenant) for state in sorted(TERMINAL)]
        found = [row for each in wanted for row in self.page(each, None, most)["jobs"]]
        return sorted(found, key=lambda row: row["ended"] or "", reverse=True)[:limit]

    def dead(self, ids: Sequence[str], most: int = _DEAD_RANGES) -> list[answers.Dead]:
        """Return the jobs that have dead units, with up to `most` dead ranges each."""
        jobs, reads = self.by_ids(ids), self._store.job_reads
        names = [job["job_id"] for job in jobs]
        stored = zip(jobs, reads.dead_ranges(names, most), reads.dead_counts(names), strict=True)
        return [serializers.serialize_dead(job, ranges, count) for job, ranges, count in stored if ranges]

    def all_dead(self, tenant: str | None) -> list[answers.Dead]:
        """Return the newest failed and running jobs that have dead units, of one tenant or of all tenants."""
        numbered = [self._store.job_reads.newest(state, None, _DEAD) for state in ("failed", "running")]
        ids = decoding.decode_names(job_id for several in numbered for job_id, _ in several)
        with_dead = [job for job, count in zip(ids, self._store.job_reads.dead_counts(ids), strict=True) if count]
        rows = [row for row in self.dead(with_dead, _DEAD_EACH) if is_listed(row["type"])]
        return [row for row in rows if tenant in (None, row["tenant"])]

    def states(self, ids: Sequence[str], tenant: str | None = None) -> list[str | None]:
        """Return the state of each job, or None if it does not exist or belongs to another tenant."""
        hidden = self.hidden(ids, tenant)
        states = self._store.job_reads.states(ids)
        return [None if job_id in hidden else state for job_id, state in zip(ids, states, strict=True)]

    def counts(self, tenant: str | None = None) -> dict[str, int]:
        """Count the stored jobs by state, of one tenant or of all tenants. Replicas of services do not count."""
        return self._index.counts(tenant)

    def result(self, job_id: str) -> tuple[answers.ResultHead, str, ResultText | None]:
        """Return the header fields of a job's result, its state, and its stored result. Raises NotFound or Broken."""
        stored = self._store.job_reads.stored_result(job_id)
        if stored is None:
            raise _broken(job_id)
        fields, result = stored
        if fields[0] is None:
            raise errors.missing("job", job_id, "job_id")
        try:
            kind, total, done, state = (field.decode() for field in fields if field is not None)
            head: answers.ResultHead = {
                "job_id": job_id,
                "type": kind,
                "partial": False,
                "units": exact(int(done)),
                "total": exact(int(total)),
            }
        except Unreadable:
            raise _broken(job_id) from None
        return head, state, result

    def results(self, ids: Sequence[str], tenant: str | None = None) -> bytes:
        """Return the states of jobs, and the results of done jobs, as one JSON response.

        Jobs of other tenants count as missing. See `results.many`.
        """
        return results.many(self._store, ids, self.hidden(ids, tenant))

    def units(self, job_id: str) -> Units:
        """Return the units of a program, possibly from a cache. The caller must not modify them.

        Raises NotFound if the job does not exist or runs no programs, and Broken for corrupt data.
        """
        try:
            found = self._units.get(job_id)
        except Unreadable:
            raise _broken(job_id) from None
        if found is None:
            raise errors.missing("job", job_id, "job_id")
        return found

    def units_page(self, job_id: str, first: int, most: int, state: str | None) -> answers.Units:
        """Return up to `most` units of a program, starting with unit `first`.

        If `state` is not None, only units in this state are returned. Raises NotFound or Broken.
        """
        found = self.units(job_id)
        now = self._store.clock.now()
        try:
            return found.page(self._store.unit_reads, job_id, found.numbers(first, most, state), now)
        except Unreadable:
            raise _broken(job_id) from None

    def mark(self, kind: str, name: str) -> answers.Mark:
        """Return a mark: its gapless range from the origin, and its other ranges. Raise NotFound if the mark does not
        exist.
        """
        return marks.read_range(self._store, kind, name)

    def units_per_second(self, tenant: str | None = None) -> dict[str, float]:
        """Return the rate of committed units per second by kind, over the running jobs of one tenant or of all."""
        names = decoding.decode_names(name for name, _ in self._store.job_reads.newest("running", None, _RUNNING))
        now, fleet = self._store.clock.now(), self.fleet.get() if names else scheduler.Fleet()
        stored = [
            (job_id, row)
            for job_id, row in self._store.job_reads.fields(names, serializers.RATED)
            if tenant is None or row["tenant"] == tenant.encode()
        ]
        speeds: dict[str, float] = {}
        rates = unreadable_entries.readable("job", stored, lambda _, row: serializers.read_rate(row, fleet, now))
        for kind, rate in rates:
            speeds[kind] = speeds.get(kind, 0.0) + rate
        return {kind: rate for kind, rate in speeds.items() if rate}
