"""Schedules of tenants. The leader claims each run of a schedule before it submits the run's job.

One call claims a run and advances its schedule; another call records the outcome. In between, the run stays due: if the
leader dies, the next leader submits the same job again, which SUBMIT recognizes as a duplicate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jobs.models import ANONYMOUS, Actor
from jobs.store import keys, unreadable_entries
from jobs.store.server.functions import Part
from jobs.store.server.records import record, texts

#: Maximum number of schedules per tenant.
MAX_SCHEDULES = 1000
#: Fields that determine the times at which a schedule runs.
_TIMES = ("name", "every", "cron", "timezone", "created", "paused", "next", "firing")
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Schedule of a tenant, as stored in Redis. Times are seconds since 1970, by Redis time."""

    schedule_id: str
    tenant: str
    name: str
    #: ID of the API token that created the schedule.
    token: str
    runs_programs: bool
    #: Request that submits the job, as JSON. Empty for a workflow.
    job: str
    every: int
    cron: str
    timezone: str = "UTC"
    overlap: bool
    #: Missed runs that are caught up: the last one (last) or none.
    catch_up: str = "last"
    created: int
    #: Workflow to submit, as text. Empty for a job.
    workflow: str = ""
    paused: bool = False
    #: Time of the next run, or 0 if there is none or the schedule is paused.
    next: int = 0
    #: Time of the claimed run whose outcome is not recorded yet, or 0.
    firing: int = 0
    last: int = 0
    #: Time in milliseconds since 1970 at which the claim of a manual run expires, or 0.
    by_hand_until: int = 0
    #: ID of the job or workflow that the schedule submitted last.
    last_job: str = ""
    #: Message to users about the outcome of the last run.
    said: str = ""
    submitted: int = 0
    skipped: int = 0
    missed: int = 0
    failed: int = 0


class Schedules(Part):
    """Stores schedules in Redis, and claims their runs."""

    def add(self, schedule: Schedule, artifacts: tuple[str, ...] = (), actor: Actor = ANONYMOUS) -> tuple[str, str]:
        """Store a new schedule. `artifacts` are the IDs of the artifacts that its job needs.

        Return (new, ID); otherwise store nothing and return (exists, name), (full, most), (missing, tenant) or
        (artifact, ID).
        """
        fields = {
            "tenant": schedule.tenant,
            "name": schedule.name,
            "token": schedule.token,
            "runs_programs": int(schedule.runs_programs),
            "job": schedule.job,
            "workflow": schedule.workflow,
            "every": schedule.every,
            "cron": schedule.cron,
            "timezone": schedule.timezone,
            "overlap": int(schedule.overlap),
            "catch_up": schedule.catch_up,
            "created": schedule.created,
            "next": schedule.next,
            "artifacts": ",".join(artifacts),
        }
        flat = [word for pair in fields.items() for word in pair]
        how, what = self._functions.run_acknowledged_texts(
            "add_schedule", schedule.schedule_id, MAX_SCHEDULES, *actor, *flat
        )
        return how, what

    def delete(self, tenant: str, name: str, actor: Actor = ANONYMOUS) -> bool:
        """Delete a schedule. Return False if it does not exist. This also works if Redis is full."""
        return bool(self._functions.run_acknowledged("end_schedule", tenant, name, *actor))

    def pause(self, tenant: str, name: str, actor: Actor = ANONYMOUS) -> bool:
        """Pause a schedule until a user resumes it. Return False if the schedule does not exist."""
        return bool(self._functions.run_acknowledged("advance_schedule", tenant, name, 0, *actor))

    def resume(self, tenant: str, name: str, following: int, actor: Actor = ANONYMOUS) -> bool:
        """Resume a schedule. Its next run is at `following`. Return False if the schedule does not exist."""
        return bool(self._functions.run_acknowledged("advance_schedule", tenant, name, following, *actor))

    def due(self, most: int, without: int = 0) -> tuple[int, list[Schedule]]:
        """Return the Redis time in seconds, and up to `most` due schedules. Skip the first `without` schedules."""
        now, *found = self._functions.run("due_schedules", most, without)
        return int(now), _readable((words[0].decode(), texts(words[1:])) for words in found)

    def coming(self) -> list[str]:
        """Return the IDs of all schedules with a next run, ordered from the latest to the earliest run."""
        return [one.decode(errors="replace") for one in self._client.zrevrange(keys.SCHEDULES, 0, -1)]

    def times(self, ids: Sequence[str]) -> list[Schedule]:
        """Return the fields that determine the run times of schedules. Missing and unreadable schedules are omitted."""
        pipe = self._pipe()
        for each in ids:
            pipe.hmget(keys.schedule(each), _TIMES)
        rows = unreadable_entries.replies(pipe) if ids else []
        found = [(each, row) for each, row in zip(ids, rows, strict=True) if row and row[0]]
        return _readable(
            (each, {name: value.decode(errors="replace") for name, value in zip(_TIMES, row, strict=True) if value})
            for each, row in found
        )

    def late_seconds(self) -> float:
        """Return the seconds by which the most overdue schedule is late, or 0 if none is due."""
        first, (seconds, micros) = self._functions.read(("ZRANGE", keys.SCHEDULES, "0", "0", "WITHSCORES"), ("TIME",))
        now = int(seconds) + int(micros) / 1e6
        return max(0.0, now - float(first[1]) / 1000) if first else 0.0

    def claim(self, schedule: Schedule, firing: int, following: int, missed: int) -> bool:
        """Claim a run and advance the schedule. Return False if another caller has already advanced the schedule.

        `firing` is 0 if there is no run, and `following` is 0 if there is no next run.
        """
        return bool(self._functions.run("claim_run", schedule.schedule_id, schedule.next, firing, following, missed))

    def note(self, schedule_id: str, firing: int, outcome: str, job: str, said: str) -> None:
        """Record the outcome of a claimed run: submitted, skipped or failed."""
        self._functions.run("note_run", schedule_id, firing, outcome, job, said)

    def claim_by_hand(self, schedule_id: str, run: str, lease_ms: int) -> str:
        """Claim a run that a user started by hand. Return `ok`, or the reason why the claim failed.

        same: the run was already submitted. busy: another run is being submitted.
        """
        reply: bytes = self._functions.run("claim_by_hand", schedule_id, run, lease_ms)
        return reply.decode()

    def note_by_hand(self, schedule_id: str, run: str, job: str) -> None:
        """Record the job of a run that a user started by hand. The job is empty if the submission was rejected."""
        self._functions.run("note_by_hand", schedule_id, run, job)

    def of_tenant(self, tenant: str) -> list[Schedule]:
        """Return a tenant's schedules, sorted by name. Unreadable schedules are omitted."""
        [reply] = self._functions.read(("HGETALL", keys.schedules_of(tenant)))
        ids = list(texts(reply).values())
        commands = [("HGETALL", keys.schedule(one)) for one in ids]
        stored = unreadable_entries.replies_at_once(self._functions, *commands) if commands else []
        found = _readable((one, texts(fields)) for one, fields in zip(ids, stored, strict=True) if fields)
        return sorted(found, key=lambda one: one.name)

    def one(self, tenant: str, name: str) -> Schedule | None:
        """Return a schedule by its name, or None if it does not exist or is unreadable."""
        [known] = self._functions.read(("HGET", keys.schedules_of(tenant), name))
        if known is None:
            return None
        schedule_id = known.decode(errors="replace")
        [fields] = unreadable_entries.replies_at_once(self._functions, ("HGETALL", keys.schedule(schedule_id)))
        return next(iter(_readable([(schedule_id, texts(fields))])), None) if fields else None


def _readable(stored: Iterable[tuple[str, Mapping[str, str]]]) -> list[Schedule]:
    """Return the schedules that are readable. `stored` contains the ID and the fields of each schedule."""
    return unreadable_entries.readable("schedule", stored, _schedule)


def _schedule(schedule_id: str, known: Mapping[str, str]) -> Schedule:
    by_hand_until = int(known.get("hand", "").rpartition("|")[2] or 0)
    return record(Schedule, known, schedule_id=schedule_id, by_hand_until=by_hand_until)
