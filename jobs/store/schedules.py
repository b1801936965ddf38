"""Schedules of tenants: stored, listed, and claimed one run at a time by the leader.

A run is claimed and its schedule moved on in one step; what became of it is noted in another. Between the two the run
stays due, so that a leader that dies is followed by one that submits the same job once more, which SUBMIT knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.models import ANONYMOUS, Actor
from jobs.store import keys, skipped
from jobs.store.server.functions import Part
from jobs.store.server.records import record, texts

#: Schedules of a tenant at most.
MAX_SCHEDULES = 1000
#: Fields that say when a schedule runs.
_TIMES = ("name", "every", "cron", "timezone", "created", "paused", "next", "firing")
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Schedule as it is stored. Times are seconds since 1970 of Redis' clock."""

    schedule_id: str
    tenant: str
    name: str
    #: Id of the token with which it was made, and whether that might run programs.
    token: str
    runs_programs: bool
    #: The body of a submission, JSON; empty where there is a workflow.
    job: str
    every: int
    cron: str
    timezone: str = "UTC"
    overlap: bool
    #: last or none: which of the runs that were missed is made up for.
    catch_up: str = "last"
    created: int
    #: The text of a workflow that it submits; empty where there is a job.
    workflow: str = ""
    paused: bool = False
    #: When it runs next; 0: never again, or while it is paused.
    next: int = 0
    #: Run that is claimed, and not noted yet; 0: none.
    firing: int = 0
    last: int = 0
    #: Milliseconds since 1970 until which a run by hand is claimed; 0: none is.
    by_hand_until: int = 0
    #: What it submitted last: a job, or a workflow.
    last_job: str = ""
    #: What became of the last run.
    said: str = ""
    submitted: int = 0
    skipped: int = 0
    missed: int = 0
    failed: int = 0


class Schedules(Part):
    """Stores schedules, and moves them on."""

    def add(self, schedule: Schedule, artifacts: tuple[str, ...] = (), actor: Actor = ANONYMOUS) -> tuple[str, str]:
        """Store a schedule whose job needs these artifacts.

        (new, id); else (exists, name), (full, most), (missing, tenant) or (artifact, id), and nothing is stored.
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
        how, what = self._functions.kept_words("add_schedule", schedule.schedule_id, MAX_SCHEDULES, *actor, *flat)
        return how, what

    def delete(self, tenant: str, name: str, actor: Actor = ANONYMOUS) -> bool:
        """Delete a schedule; False when there is none. Works in a full Redis."""
        return bool(self._functions.kept("end_schedule", tenant, name, *actor))

    def pause(self, tenant: str, name: str, actor: Actor = ANONYMOUS) -> bool:
        """Let it run no more until it is resumed; False when there is none."""
        return bool(self._functions.kept("turn_schedule", tenant, name, 0, *actor))

    def resume(self, tenant: str, name: str, following: int, actor: Actor = ANONYMOUS) -> bool:
        """Let it run from this time on; False when there is none."""
        return bool(self._functions.kept("turn_schedule", tenant, name, following, *actor))

    def due(self, most: int, without: int = 0) -> tuple[int, list[Schedule]]:
        """Return Redis' time in seconds and at most so many schedules that are due, but the first `without`."""
        now, *found = self._functions.run("due_schedules", most, without)
        return int(now), [_schedule(words[0].decode(), texts(words[1:])) for words in found]

    def coming(self) -> list[str]:
        """Return the ids of all schedules that run again, the latest first."""
        return [one.decode(errors="replace") for one in self._client.zrevrange(keys.SCHEDULES, 0, -1)]

    def times(self, ids: Sequence[str]) -> list[Schedule]:
        """Return those of these schedules that there are, without what they submit and what became of it."""
        pipe = self._pipe()
        for each in ids:
            pipe.hmget(keys.schedule(each), _TIMES)
        rows = skipped.replies(pipe) if ids else []
        found = [(each, row) for each, row in zip(ids, rows, strict=True) if row and row[0]]
        return [
            _schedule(
                each, {name: value.decode(errors="replace") for name, value in zip(_TIMES, row, strict=True) if value}
            )
            for each, row in found
        ]

    def late_seconds(self) -> float:
        """Return how long the schedule that has been due the longest waits for the leader; 0 while none is due."""
        first, (seconds, micros) = self._functions.read(("ZRANGE", keys.SCHEDULES, "0", "0", "WITHSCORES"), ("TIME",))
        now = int(seconds) + int(micros) / 1e6
        return max(0.0, now - float(first[1]) / 1000) if first else 0.0

    def claim(self, schedule: Schedule, firing: int, following: int, missed: int) -> bool:
        """Move a schedule on to its following time, 0: none, and claim a run, 0: none; False when somebody else did."""
        return bool(self._functions.run("claim_run", schedule.schedule_id, schedule.next, firing, following, missed))

    def note(self, schedule_id: str, firing: int, outcome: str, job: str, said: str) -> None:
        """Note what became of a claimed run: submitted, skipped or failed."""
        self._functions.run("note_run", schedule_id, firing, outcome, job, said)

    def claim_by_hand(self, schedule_id: str, run: str, lease_ms: int) -> str:
        """Claim a run that somebody asked for: ok; same: it was made; busy: another one is being made."""
        reply: bytes = self._functions.run("claim_by_hand", schedule_id, run, lease_ms)
        return reply.decode()

    def note_by_hand(self, schedule_id: str, run: str, job: str) -> None:
        """Note what a run that was claimed by hand has submitted; empty: it was refused."""
        self._functions.run("note_by_hand", schedule_id, run, job)

    def of_tenant(self, tenant: str) -> list[Schedule]:
        """Return a tenant's schedules by name."""
        [reply] = self._functions.read(("HGETALL", keys.schedules_of(tenant)))
        ids = list(texts(reply).values())
        stored = self._functions.read(*(("HGETALL", keys.schedule(one)) for one in ids))
        found = [_schedule(one, texts(fields)) for one, fields in zip(ids, stored, strict=True) if fields]
        return sorted(found, key=lambda one: one.name)

    def one(self, tenant: str, name: str) -> Schedule | None:
        """Return a schedule; None when there is none."""
        [known] = self._functions.read(("HGET", keys.schedules_of(tenant), name))
        if known is None:
            return None
        schedule_id = known.decode(errors="replace")
        [fields] = self._functions.read(("HGETALL", keys.schedule(schedule_id)))
        return _schedule(schedule_id, texts(fields)) if fields else None


def _schedule(schedule_id: str, known: Mapping[str, str]) -> Schedule:
    by_hand_until = int(known.get("hand", "").rpartition("|")[2] or 0)
    return record(Schedule, known, schedule_id=schedule_id, by_hand_until=by_hand_until)
