"""Storage of workflows: their documents, the jobs of their actions, and the outcomes of other actions."""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jobs.models import ANONYMOUS, Actor
from jobs.store import keys, unreadable_entries
from jobs.store.server.functions import Part
from jobs.store.server.records import record
from jobs.store.work.jobs import CapReached, parse_cap_reached

#: Maximum number of unfinished workflows per tenant.
#: `MAX_STORED` is the maximum total size in bytes of a tenant's compressed workflow documents.
MAX_LIVE, MAX_STORED = 100, 64 << 20
#: Number of jobs whose fields are read in one round trip to Redis.
_AT_ONCE = 1000
#: Estimated size in bytes of the ID of a unit's artifact.
_ARTIFACT_BYTES = 100
#: Name under which the audit log records the deletion of expired workflows.
_EXPIRED = Actor("", "*")


@dataclass(frozen=True, kw_only=True)
class NewWorkflow:
    """Workflow that a client submits."""

    #: Idempotency key in the form OWNER:KEY, or empty.
    key: str = ""
    #: Digest of the request body.
    digest: str
    #: Actions of the workflow as JSON values.
    document: Any
    name: str
    description: str
    total: int
    #: True if the user who submits the workflow can run programs.
    run: bool
    #: URL to which the cluster sends a webhook when the workflow ends, or empty.
    notify: str = ""
    #: W3C traceparent of the submission, or empty if it is not traced.
    traceparent: str = ""
    tracestate: str = ""


@dataclass(frozen=True, kw_only=True)
class StoredWorkflow:
    """Workflow as stored in Redis, without its document."""

    id: str
    tenant: str
    #: ID of the API token that submitted the workflow, or empty.
    token: str
    run: bool
    name: str
    description: str
    state: str
    #: Number of times that the workflow was retried, plus one.
    attempt: int
    #: Number of actions in the workflow.
    total: int
    #: Creation time in milliseconds since 1970.
    created: int
    ended: int
    #: Number of actions in each state, when the leader last counted them.
    counts: Mapping[str, int]
    #: Reason why the next job is not submitted, or empty.
    waits: str
    error: str
    #: URL to which the cluster sends a webhook when the workflow ends, or empty.
    notify: str = ""
    #: W3C traceparent of the submission, or empty if it is not traced.
    traceparent: str = ""
    tracestate: str = ""


@dataclass(frozen=True, kw_only=True)
class WorkflowCounts:
    """Fields of a workflow that are needed to count workflows and actions."""

    state: str
    #: Number of actions in each state, when the leader last counted them.
    counts: Mapping[str, int]
    changed: int


@dataclass(frozen=True, kw_only=True)
class Course:
    """Progress of the actions of a workflow."""

    workflow: StoredWorkflow
    jobs: Mapping[str, str]
    records: Mapping[str, Any]
    retries: frozenset[str]
    #: Final states of the actions, or empty while the workflow is active.
    final: Mapping[str, str]


class OutputSizes(NamedTuple):
    """Sizes of the parts of a finished job's output."""

    units: int
    result_bytes: int
    accumulator_bytes: int

    def bytes(self, *, with_units: bool) -> int:
        """Return the size of a job's result in bytes, optionally with the units' values and artifact IDs."""
        of_units = self.accumulator_bytes + _ARTIFACT_BYTES * self.units if with_units else 0
        return self.result_bytes + of_units


class JobOutput(NamedTuple):
    """Output of a finished job, which later actions of the workflow can use."""

    state: str
    result: bytes
    #: Values and artifact IDs of the units, or empty if they were not requested.
    accumulator: bytes
    artifacts: Sequence[Any]

    @property
    def units(self) -> int:
        """Return the number of units whose artifacts were requested."""
        return len(self.artifacts)

    @property
    def bytes(self) -> int:
        """Return the total size of the output in bytes."""
        return len(self.result) + len(self.accumulator) + _ARTIFACT_BYTES * len(self.artifacts)


class Workflows(Part):
    """Stores and reads workflows in Redis."""

    def add(self, new: NewWorkflow, actor: Actor = ANONYMOUS) -> tuple[str, str] | CapReached:
        """Store a new workflow under a random ID. Return (new, ID), or (same, ID) for a repeated submission.

        Otherwise, return (conflict, ID) if the key belongs to another request, (missing, 0) if the tenant does not
        exist, (live, number of unfinished workflows), (full, stored bytes), or CapReached if a cap of the tenant or the
        limit of pending webhooks is exceeded.
        """
        how, *words = "taken", ""
        while how == "taken":
            how, *words = self._added(secrets.token_hex(8), new, actor)
        return parse_cap_reached(words) if how == "over" else (how, words[0])

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
        return self._functions.run_acknowledged_texts("add_workflow", *named, *actor, *limits, document, *fields)

    def cancel(self, workflow: str, actor: Actor = ANONYMOUS) -> list[str]:
        """Cancel a workflow. Return [ok, state], [conflict, state] or [missing], like other calls that control
        workflows.
        """
        return self._functions.run_acknowledged_texts("cancel_workflow", workflow, *actor)

    def decide(
        self, workflow: str, attempt: int, action: str, verb: str, record: Any, actor: Actor = ANONYMOUS
    ) -> list[str]:
        """Store the decision about an action that waits for a person. The verb is approve or reject."""
        return self._functions.run_acknowledged_texts(
            "decide_workflow", workflow, attempt, action, json.dumps(record), verb, *actor
        )

    def retry(
        self, workflow: str, attempt: int, retried: Sequence[str], forgotten: Sequence[str], actor: Actor = ANONYMOUS
    ) -> list[str]:
        """Retry a failed or cancelled workflow.

        Actions in `retried` keep their jobs; actions in `forgotten` get new ones.
        """
        counts = (len(retried), len(forgotten))
        return self._functions.run_acknowledged_texts(
            "retry_workflow", workflow, attempt, *actor, *counts, *retried, *forgotten
        )

    def delete(self, workflow: str, actor: Actor = ANONYMOUS) -> list[str]:
        """Delete a finished workflow. Its jobs remain. This also works if Redis is full."""
        return self._functions.run_acknowledged_texts("delete_workflow", workflow, *actor)

    # -- reads ------------------------------------------------------------------------------------------------------

    def page(self, tenant: str | None, after: tuple[int, str] | None, most: int) -> list[tuple[int, str]]:
        """Return one page of workflows, newest first, as (creation time, ID). `tenant` is None for all tenants.

        `after` is the last workflow of the previous page, and `most` is the size of the page.
        """
        place = keys.WORKFLOWS if tenant is None else keys.workflows_of(tenant)
        top, found, at = "+inf" if after is None else after[0], list[tuple[int, str]](), 0
        while len(found) < most and (rows := self._client.zrevrangebyscore(place, top, "-inf", at, most, True)):
            each = ((int(score), name.decode()) for name, score in rows)
            found += [one for one in each if after is None or one < after]
            at += len(rows)
        return found[:most]

    def read(self, ids: Sequence[str]) -> list[StoredWorkflow | None]:
        """Return workflows by ID. The entry of a missing or unreadable workflow is None. Unreadable ones are logged."""
        pipe = self._pipe()
        for each in ids:
            pipe.hgetall(keys.workflow(each))
        return [
            _readable(each, row) for each, row in zip(ids, unreadable_entries.replies(pipe) if ids else (), strict=True)
        ]

    def course(self, workflow: str) -> Course | None:
        """Return the progress of a workflow's actions, or None if the workflow does not exist.

        Raises ValueError for invalid data.
        """
        pipe = self._pipe().hgetall(keys.workflow(workflow)).hgetall(keys.workflow_jobs(workflow))
        # These reads are not atomic. A script would block Redis while reading ten thousand fields.
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
        """Return the actions of a workflow and their size as JSON in bytes. Return None if there are none."""
        stored = self._client.get(keys.workflow_document(workflow))
        if not stored:
            return None
        text = zlib.decompress(stored)
        return json.loads(text), len(text)

    def job_fields(self, ids: Sequence[str], names: Sequence[str]) -> list[list[bytes | None]]:
        """Return the named fields of each job. The values of a missing job are None."""
        rows: list[list[bytes | None]] = []
        for first in range(0, len(ids), _AT_ONCE):
            pipe = self._pipe()
            for job_id in ids[first : first + _AT_ONCE]:
                pipe.hmget(keys.job(job_id), list(names))
            rows += [row or [None] * len(names) for row in unreadable_entries.replies(pipe)]
        return rows

    def done_heads(self, ids: Sequence[str]) -> list[OutputSizes | None]:
        """Return the sizes of the output of jobs, in one round trip. The entry of a missing or broken job is None."""
        pipe = self._pipe()
        for job_id in ids:
            pipe.hget(keys.job(job_id), "total")
            pipe.strlen(keys.job_result(job_id)).strlen(keys.job_accumulator(job_id))
        replies = unreadable_entries.replies(pipe) if ids else []
        rows = zip(replies[::3], replies[1::3], replies[2::3], strict=True)
        return [None if None in row or not row[0].isdigit() else OutputSizes(*map(int, row)) for row in rows]

    def done_jobs(self, wanted: Sequence[tuple[str, int]]) -> list[JobOutput]:
        """Return the output of jobs, in one round trip. `wanted` contains job IDs and numbers of units."""
        pipe = self._pipe()
        for job_id, units in wanted:
            pipe.hget(keys.job(job_id), "state").get(keys.job_result(job_id))
            if units:
                pipe.get(keys.job_accumulator(job_id)).hmget(keys.job_files(job_id), range(units))
        replies = iter(unreadable_entries.replies(pipe) if wanted else ())
        return [_parse_output(replies, units) for _, units in wanted]

    # -- leader methods --------------------------------------------------------------------------------------------

    def take_due(self, most: int) -> list[str]:
        """Take the workflows that must be processed next. `open` returns them until `looked` is called."""
        return [each.decode() for each in self._functions.run("take_workflows", most)]

    def looked(self, workflow: str) -> None:
        """Record that the leader has processed a workflow."""
        self._client.srem(keys.WORKFLOWS_TAKEN, workflow)

    def open(self) -> list[str]:
        """Return all unfinished workflows, and workflows whose processing may have been interrupted."""
        return sorted(each.decode() for each in self._client.sunion(keys.WORKFLOWS_LIVE, keys.WORKFLOWS_TAKEN))

    def glances(self, ids: Sequence[str]) -> list[WorkflowCounts]:
        """Return the fields that are needed to count workflows and actions. Missing workflows are omitted."""
        pipe = self._pipe()
        for each in ids:
            pipe.hmget(keys.workflow(each), ["state", "counts", "changed", "created"])
        rows = [row for row in unreadable_entries.replies(pipe) if row and row[0]] if ids else []
        return [
            WorkflowCounts(
                state=state.decode(errors="replace"),
                counts=json.loads(counts or "{}"),
                changed=int(changed or created or 0),
            )
            for state, counts, changed, created in rows
        ]

    def publish(self, figures: Mapping[str, int]) -> None:
        """Store the numbers of workflows for metrics."""
        self._client.hset(keys.WORKFLOW_FIGURES, mapping={name: str(value) for name, value in figures.items()})

    def record(self, workflow: str, attempt: int, key: str, record: Any) -> bool:
        """Record the outcome of an action without a job. Return False if the workflow is not running this attempt.

        An outcome is recorded only once.
        """
        text = json.dumps(record, separators=(",", ":"))
        return bool(self._functions.run_acknowledged("record_action", workflow, attempt, key, text))

    def settle(
        self,
        seen: StoredWorkflow,
        state: str,
        ttl_seconds: int,
        jobs: Sequence[tuple[str, str]] = (),
        /,
        **fields: str | bytes,
    ) -> bool:
        """Record a workflow's new state and other fields. Return False if its state has changed meanwhile.

        The state was derived from `jobs`, which lists job IDs with their states. Return False if one of these has
        changed.
        """
        flat = [item for pair in (*jobs, *fields.items()) for item in pair]
        arguments = (seen.id, seen.state, seen.attempt, state, ttl_seconds * 1000, len(jobs), *flat)
        return bool(self._functions.run_acknowledged("settle_workflow", *arguments))

    def forget(self, workflow: str, attempt: int, names: Sequence[str]) -> bool:
        """Remove the jobs and outcomes of actions, so that the actions start again.

        Return False if another attempt is running.
        """
        return bool(self._functions.run_acknowledged("forget_actions", workflow, attempt, *names))

    def retried(self, workflow: str, attempt: int, names: Sequence[str]) -> bool:
        """Record that the jobs of actions were retried. Return False if another attempt of the workflow is running."""
        return bool(self._functions.run("retried_actions", workflow, attempt, *names))

    def purge(self, most: int) -> int:
        """Delete expired workflows, and return their number."""
        now = self.now_ms()
        expired = self._client.zrangebyscore(keys.WORKFLOW_EXPIRY, "-inf", now, 0, most)
        for workflow in expired:
            self.delete(workflow.decode(), _EXPIRED)
        return len(expired)


def pack_states(states: Mapping[str, str]) -> bytes:
    """Encode the final states of a workflow's actions for storage in Redis."""
    return zlib.compress(json.dumps(states, separators=(",", ":")).encode())


def _parse_output(replies: Iterator[Any], units: int) -> JobOutput:
    state, result = next(replies), next(replies)
    accumulator, artifacts = (next(replies), next(replies)) if units else (None, None)
    return JobOutput(
        state=(state or b"").decode(errors="replace"),
        result=result or b"",
        accumulator=accumulator or b"",
        artifacts=artifacts or [None] * units,
    )


def _readable(workflow: str, row: Mapping[bytes, bytes] | None) -> StoredWorkflow | None:
    found = unreadable_entries.readable(
        "workflow", [(keys.workflow(workflow), row)], lambda _, stored: _stored(workflow, stored)
    )
    return found[0] if found else None


def _stored(workflow: str, row: Mapping[bytes, bytes] | None) -> StoredWorkflow | None:
    if not row or b"state" not in row:
        return None
    stored = {name.decode(): value.decode(errors="replace") for name, value in row.items() if name != b"final"}
    for name in ("attempt", "total", "created", "ended"):
        if not (text := stored.get(name, "0" if name == "ended" else "")).isdigit():
            raise ValueError(f"{name} of {keys.workflow(workflow)} in Redis must be a number, not {text[:80]!r}")
    return record(StoredWorkflow, stored, id=workflow, counts=json.loads(stored.get("counts", "{}")))
