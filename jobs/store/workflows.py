"""Workflows as they are stored: what they are, which jobs their actions have, what came of the others."""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jobs.models import ANONYMOUS, Actor
from jobs.store import keys, skipped
from jobs.store.server.functions import Part
from jobs.store.server.records import record
from jobs.store.work.jobs import Over, over

#: Workflows of a tenant that have not ended, and bytes of the documents that are kept of it, compressed.
MAX_LIVE, MAX_STORED = 100, 64 << 20
#: Fields of jobs that are read in one round trip.
_AT_ONCE = 1000
#: Bytes that the artifact of a unit counts for.
_ARTIFACT_BYTES = 100
#: Actor that stands for the end of a workflow's time.
_EXPIRED = Actor("", "*")


@dataclass(frozen=True, kw_only=True)
class NewWorkflow:
    """Workflow as it is added."""

    #: Idempotency key, as OWNER:KEY: the same is the same workflow while that is there. Empty: none.
    key: str = ""
    #: Digest of what was sent.
    digest: str
    #: Its actions, as JSON values.
    document: Any
    name: str
    description: str
    total: int
    #: Its maker may run programs.
    run: bool
    #: URL that is told of its end; empty: none.
    notify: str = ""
    #: Place in a trace of what submitted it, as W3C's traceparent and tracestate have it; empty: it is in none.
    traceparent: str = ""
    tracestate: str = ""


@dataclass(frozen=True, kw_only=True)
class StoredWorkflow:
    """Workflow without its document."""

    id: str
    tenant: str
    #: Id of the token that submitted it; empty without one.
    token: str
    run: bool
    name: str
    description: str
    state: str
    #: 1, and one more for each retry.
    attempt: int
    #: Actions.
    total: int
    #: Milliseconds since 1970; 0: it has not ended.
    created: int
    ended: int
    #: Actions by state, as the leader saw them last.
    counts: Mapping[str, int]
    #: Why its next job is not submitted; why its first action failed. Empty: for no reason.
    waits: str
    error: str
    #: URL that is told of its end; empty: none.
    notify: str = ""
    #: Place in a trace of what submitted it; empty: it is in none.
    traceparent: str = ""
    tracestate: str = ""


@dataclass(frozen=True, kw_only=True)
class Glance:
    """Part of a workflow by which it is counted."""

    state: str
    #: Actions by state, as the leader saw them last, and milliseconds since 1970 when these changed.
    counts: Mapping[str, int]
    changed: int


@dataclass(frozen=True, kw_only=True)
class Course:
    """Course of a workflow's actions so far."""

    workflow: StoredWorkflow
    jobs: Mapping[str, str]
    records: Mapping[str, Any]
    retries: frozenset[str]
    #: States of actions when it ended; empty before.
    final: Mapping[str, str]


class DoneHead(NamedTuple):
    """Sizes of what a job left when it was done."""

    units: int
    result_bytes: int
    accumulator_bytes: int

    def bytes(self, *, with_units: bool) -> int:
        """Return the bytes of its result, and of the values and artifacts of its units."""
        of_units = self.accumulator_bytes + _ARTIFACT_BYTES * self.units if with_units else 0
        return self.result_bytes + of_units


class DoneJob(NamedTuple):
    """Texts that a job left when it was done."""

    state: str
    result: bytes
    #: Values of its units, where they were asked for, and the artifact of each; empty otherwise.
    accumulator: bytes
    artifacts: Sequence[Any]

    @property
    def units(self) -> int:
        """Units of which the artifacts were asked for."""
        return len(self.artifacts)

    @property
    def bytes(self) -> int:
        """Bytes of all of it."""
        return len(self.result) + len(self.accumulator) + _ARTIFACT_BYTES * len(self.artifacts)


class Workflows(Part):
    """Adds, steers, reads and deletes workflows."""

    def add(self, new: NewWorkflow, actor: Actor = ANONYMOUS) -> tuple[str, str] | Over:
        """Store a workflow under an id that nobody chooses: (new or same, id).

        Else (conflict, id), its key stands for another text; (missing, 0): its tenant; (live, how many have not ended);
        (full, bytes that are stored). Over: a cap of the tenant, or webhooks that nobody takes.
        """
        how, *words = "taken", ""
        while how == "taken":
            how, *words = self._added(secrets.token_hex(8), new, actor)
        return over(words) if how == "over" else (how, words[0])

    def _added(self, workflow: str, new: NewWorkflow, actor: Actor) -> list[str]:
        document = zlib.compress(json.dumps(new.document, separators=(",", ":")).encode())
        fields: tuple[str | int, ...] = (
            "name",
            new.name,
            "description",
            new.description,
            "total",
            new.total,
            "run",
            int(new.run),
        )
        fields += ("notify", new.notify) if new.notify else ()
        fields += ("traceparent", new.traceparent) if new.traceparent else ()
        fields += ("tracestate", new.tracestate) if new.tracestate else ()
        limits = (MAX_LIVE, MAX_STORED)
        named = (workflow, new.key, new.digest)
        return self._functions.kept_words("add_workflow", *named, *actor, *limits, document, *fields)

    def cancel(self, workflow: str, actor: Actor = ANONYMOUS) -> list[str]:
        """Return [ok, state], [conflict, state] or [missing]; approve, retry and delete do too."""
        return self._functions.kept_words("cancel_workflow", workflow, *actor)

    def approve(self, workflow: str, attempt: int, action: str, record: Any, actor: Actor = ANONYMOUS) -> list[str]:
        """Let an action that waits for a person be done, with what is recorded of it."""
        return self._functions.kept_words("approve_workflow", workflow, attempt, action, json.dumps(record), *actor)

    def retry(
        self, workflow: str, attempt: int, retried: Sequence[str], forgotten: Sequence[str], actor: Actor = ANONYMOUS
    ) -> list[str]:
        """Go on with a workflow that failed or was cancelled: with jobs of these actions, others begin anew."""
        counts = (len(retried), len(forgotten))
        return self._functions.kept_words("retry_workflow", workflow, attempt, *actor, *counts, *retried, *forgotten)

    def delete(self, workflow: str, actor: Actor = ANONYMOUS) -> list[str]:
        """Forget a workflow that has ended; its jobs stay. Works in a full Redis."""
        return self._functions.kept_words("delete_workflow", workflow, *actor)

    # -- reads ------------------------------------------------------------------------------------------------------

    def page(self, tenant: str | None, after: tuple[int, str] | None, most: int) -> list[tuple[int, str]]:
        """Return (creation, id) of at most `most` workflows, newest first, of one tenant or of all, behind one."""
        place = keys.WORKFLOWS if tenant is None else keys.workflows_of(tenant)
        top, found, at = "+inf" if after is None else after[0], list[tuple[int, str]](), 0
        while len(found) < most and (rows := self._client.zrevrangebyscore(place, top, "-inf", at, most, True)):
            each = ((int(score), name.decode()) for name, score in rows)
            found += [one for one in each if after is None or one < after]
            at += len(rows)
        return found[:most]

    def read(self, ids: Sequence[str]) -> list[StoredWorkflow | None]:
        """Return workflows; None in the place of one that does not exist, and of a broken one, which is skipped."""
        pipe = self._pipe()
        for each in ids:
            pipe.hgetall(keys.workflow(each))
        return [_readable(each, row) for each, row in zip(ids, skipped.replies(pipe) if ids else (), strict=True)]

    def course(self, workflow: str) -> Course | None:
        """Return what became of a workflow's actions; None if it does not exist. ValueError for a broken one."""
        pipe = self._pipe().hgetall(keys.workflow(workflow)).hgetall(keys.workflow_jobs(workflow))
        # Not at one moment: a script takes long over ten thousand fields. What is written meanwhile is seen or is not,
        # and `settle` refuses what was seen of another state or attempt.
        pipe.hgetall(keys.workflow_records(workflow)).smembers(keys.workflow_retries(workflow))
        fields, jobs, records, retries = pipe.execute()
        stored = _stored(workflow, fields)
        if stored is None:
            return None
        final = fields.get(b"final")
        return Course(
            workflow=stored,
            jobs={name.decode(): job.decode() for name, job in jobs.items()},
            records={name.decode(): json.loads(text) for name, text in records.items()},
            retries=frozenset(name.decode() for name in retries),
            final=json.loads(zlib.decompress(final)) if final else {},
        )

    def document(self, workflow: str) -> tuple[Any, int] | None:
        """Return a workflow's actions, as `add` was given them, and their bytes as JSON; None where there are none."""
        stored = self._client.get(keys.workflow_document(workflow))
        if not stored:
            return None
        text = zlib.decompress(stored)
        return json.loads(text), len(text)

    def job_fields(self, ids: Sequence[str], names: Sequence[str]) -> list[list[bytes | None]]:
        """Return these fields of each job; None in the place of one that is not there."""
        rows: list[list[bytes | None]] = []
        for first in range(0, len(ids), _AT_ONCE):
            pipe = self._pipe()
            for job_id in ids[first : first + _AT_ONCE]:
                pipe.hmget(keys.job(job_id), list(names))
            rows += [row or [None] * len(names) for row in skipped.replies(pipe)]
        return rows

    def done_heads(self, ids: Sequence[str]) -> list[DoneHead | None]:
        """Return how much these jobs left; None in the place of one that is gone or broken. One round trip."""
        pipe = self._pipe()
        for job_id in ids:
            pipe.hget(keys.job(job_id), "total")
            pipe.strlen(keys.job_result(job_id)).strlen(keys.job_accumulator(job_id))
        replies = skipped.replies(pipe) if ids else []
        rows = zip(replies[::3], replies[1::3], replies[2::3], strict=True)
        return [None if None in row or not row[0].isdigit() else DoneHead(*map(int, row)) for row in rows]

    def done_jobs(self, wanted: Sequence[tuple[str, int]]) -> list[DoneJob]:
        """Return what these jobs left, each with its first units, 0 for none. One round trip."""
        pipe = self._pipe()
        for job_id, units in wanted:
            pipe.hget(keys.job(job_id), "state").get(keys.job_result(job_id))
            if units:
                pipe.get(keys.job_accumulator(job_id)).hmget(keys.job_files(job_id), range(units))
        replies = iter(skipped.replies(pipe) if wanted else ())
        return [_done_job(replies, units) for _, units in wanted]

    # -- the leader's -----------------------------------------------------------------------------------------------

    def take_due(self, most: int) -> list[str]:
        """Return workflows at which somebody must look; they are `open` until `looked` is called."""
        return [each.decode() for each in self._functions.run("take_workflows", most)]

    def looked(self, workflow: str) -> None:
        """Note that somebody has looked at a workflow that was due."""
        self._client.srem(keys.WORKFLOWS_TAKEN, workflow)

    def open(self) -> list[str]:
        """Return the workflows that have not ended, and those at which somebody was to look and may have died."""
        return sorted(each.decode() for each in self._client.sunion(keys.WORKFLOWS_LIVE, keys.WORKFLOWS_TAKEN))

    def glances(self, ids: Sequence[str]) -> list[Glance]:
        """Return the part by which workflows are counted, of those that are there."""
        pipe = self._pipe()
        for each in ids:
            pipe.hmget(keys.workflow(each), ["state", "counts", "changed", "created"])
        rows = [row for row in skipped.replies(pipe) if row and row[0]] if ids else []
        return [
            Glance(
                state=state.decode(errors="replace"),
                counts=json.loads(counts or "{}"),
                changed=int(changed or created or 0),
            )
            for state, counts, changed, created in rows
        ]

    def publish(self, figures: Mapping[str, int]) -> None:
        """Store counts of workflows for whoever shows them."""
        self._client.hset(keys.WORKFLOW_FIGURES, mapping={name: str(value) for name, value in figures.items()})

    def record(self, workflow: str, attempt: int, key: str, record: Any) -> bool:
        """Note once what came of an action that is no job; False: the workflow runs no more, or anew."""
        text = json.dumps(record, separators=(",", ":"))
        return bool(self._functions.kept("record_action", workflow, attempt, key, text))

    def settle(
        self,
        seen: StoredWorkflow,
        state: str,
        ttl_seconds: int,
        jobs: Sequence[tuple[str, str]] = (),
        /,
        **fields: str | bytes,
    ) -> bool:
        """Note the state that a workflow has now, with other fields; False: its state is another meanwhile.

        `jobs`: some of its jobs with the states from which that follows; False where one has another meanwhile.
        """
        flat = [item for pair in (*jobs, *fields.items()) for item in pair]
        arguments = (seen.id, seen.state, seen.attempt, state, ttl_seconds * 1000, len(jobs), *flat)
        return bool(self._functions.kept("settle_workflow", *arguments))

    def forget(self, workflow: str, attempt: int, names: Sequence[str]) -> bool:
        """Forget jobs and records of these keys, so that they begin anew; False: it runs no more, or anew."""
        return bool(self._functions.kept("forget_actions", workflow, attempt, *names))

    def retried(self, workflow: str, attempt: int, names: Sequence[str]) -> bool:
        """Forget that jobs of these actions are to be tried again: they are; False: that was in another attempt."""
        return bool(self._functions.run("retried_actions", workflow, attempt, *names))

    def purge(self, most: int) -> int:
        """Forget workflows whose time is over; return how many."""
        now = self.now_ms()
        over = self._client.zrangebyscore(keys.WORKFLOW_EXPIRY, "-inf", now, 0, most)
        for workflow in over:
            self.delete(workflow.decode(), _EXPIRED)
        return len(over)


def packed(states: Mapping[str, str]) -> bytes:
    """Return states of actions as `Course.final` has them."""
    return zlib.compress(json.dumps(states, separators=(",", ":")).encode())


def _done_job(replies: Iterator[Any], units: int) -> DoneJob:
    state, result = next(replies), next(replies)
    accumulator, artifacts = (next(replies), next(replies)) if units else (None, None)
    return DoneJob(
        state=(state or b"").decode(errors="replace"),
        result=result or b"",
        accumulator=accumulator or b"",
        artifacts=artifacts or [None] * units,
    )


def _readable(workflow: str, row: Mapping[bytes, bytes] | None) -> StoredWorkflow | None:
    found = skipped.readable("workflow", [(keys.workflow(workflow), row)], lambda _, stored: _stored(workflow, stored))
    return found[0] if found else None


def _stored(workflow: str, row: Mapping[bytes, bytes] | None) -> StoredWorkflow | None:
    if not row or b"state" not in row:
        return None
    stored = {name.decode(): value.decode(errors="replace") for name, value in row.items() if name != b"final"}
    for name in ("attempt", "total", "created", "ended"):
        if not (text := stored.get(name, "0" if name == "ended" else "")).isdigit():
            raise ValueError(f"{name} of {keys.workflow(workflow)} in Redis must be a number; it is {text[:80]!r}")
    return record(StoredWorkflow, stored, id=workflow, counts=json.loads(stored.get("counts", "{}")))
