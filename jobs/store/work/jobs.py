"""Submission of jobs to Redis, and calls that cancel, pause, retry or delete jobs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobs import errors
from jobs.hosts import requirements
from jobs.models import ANONYMOUS, DEFAULT_TENANT, Actor, Plan
from jobs.store.server.acknowledgement import Acknowledgement
from jobs.store.server.connection import ResponseError, Unreachable, reason
from jobs.store.server.functions import Part
from jobs.store.server.wire import NoReply, Wire


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """Job that a client submits."""

    job_id: str
    kind: str
    version: int
    plan: Plan
    priority: str
    device: str
    queue: str
    #: True if the job prefers GPUs. It moves to the queue for any device if no GPU worker is alive.
    prefer: bool
    small: bool
    #: Estimated milliseconds of work for a single lane.
    estimate_ms: int
    ttl_seconds: int
    #: Maximum number of lanes that compute the job at the same time. 0 means no limit.
    max_running: int = 0
    #: Milliseconds from the first lease, without pauses, after which the job fails. 0 means never.
    timeout_ms: int = 0
    #: Idempotency key in the form tenant:key or question@tenant:key, or empty.
    idempotency: str = ""
    #: Digest of the request body. The same idempotency key with another digest is a conflict.
    digest: str = ""
    #: Tenant to which the job belongs.
    tenant: str = DEFAULT_TENANT
    #: ID of the API token that submitted the job, or empty.
    token: str = ""
    #: True if the job goes to its tenant's backlog when a limit rejects it.
    hold: bool = False
    #: IDs of jobs that must succeed before this job starts.
    after: tuple[str, ...] = ()
    after_any: tuple[str, ...] = ()
    #: URL to which the cluster sends a webhook when the job ends.
    notify: str = ""
    #: ID of the workflow to which the job belongs, or empty.
    workflow: str = ""
    action: str = ""
    attempt: int = 0
    #: TRACEPARENT of the job's programs, or empty if the job is not traced.
    traceparent: str = ""
    tracestate: str = ""
    parent_span: str = ""
    #: Title of the job chosen by the submitter, or empty.
    name: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CapReached:
    """Limit because of which the cluster rejects a job."""

    #: Name of the limit: max_jobs, max_stored_bytes, MAX_QUEUED, `requirements` or `notify` (undelivered webhooks).
    cap: str
    value: int
    #: Seconds after which a client can try again.
    seconds: int
    #: Number of stored bytes, or 0 for other limits.
    used: int = 0
    #: Event after which the job may be accepted: the `end` or `expiry` of a job, or a new `day`. Empty if unknown.
    awaits: str = ""


class Jobs(Part):
    """Submits and controls jobs in Redis."""

    def submit(
        self, jobs: Sequence[NewJob], most_queued: int = 0, *, disk: bool = False
    ) -> list[tuple[str, str] | CapReached]:
        """Store jobs and notify workers. For each job, return (new|same|conflict, ID) or CapReached.

        Other replies are (artifact, ID) if a required artifact does not exist, (after|after_any, ID) if a parent does
        not exist or belongs to another tenant, (workflow, state) if the workflow is not running this attempt, (taken,
        ID) if another job has the ID, and (refused, reason) if Redis rejects some jobs but not all.

        `most_queued` limits the number of queued jobs in the cluster; 0 means no limit. Raises Unreachable if Redis
        rejects all jobs, and Unacknowledged if replicas (or the disk, with `disk`) lack the writes.
        """
        asked = Acknowledgement(replicas=self._functions.replicas, disk=disk)
        replies = self._functions.many("submit", [_submit_arguments(job, most_queued) for job in jobs], asked)
        failed = [reply for reply in replies if isinstance(reply, Exception)]
        for error in failed:
            if len(failed) == len(replies) or not isinstance(error, Unreachable):
                raise error
        return [
            ("refused", reason(reply)) if isinstance(reply, Exception) else _parse_submit_reply(reply)
            for reply in replies
        ]

    async def submit_by(self, wire: Wire, job: NewJob, most_queued: int = 0) -> tuple[str, str] | CapReached | None:
        """Store one job without blocking the event loop. If the outcome is unknown, return None, and call `submit`
        next.
        """
        if self._functions.replicas:
            return None
        try:
            [reply] = await wire.call(
                ("FCALL", self._functions.function("submit"), 0, *_submit_arguments(job, most_queued))
            )
        except NoReply:
            return None
        return None if isinstance(reply, Exception) else _parse_submit_reply(reply)

    def require_disk(self) -> None:
        """Raise Unavailable if Redis cannot confirm writes to its disk. This method changes nothing."""
        try:
            self._client.waitaof(1, 0, 1)
        except ResponseError as error:
            raise errors.Unavailable(self._no_disk(str(error))) from error

    def _no_disk(self, answer: str) -> str:
        if "unknown command" in answer.lower():
            version = self._client.info("server")["redis_version"]
            why = f"requires Redis 7.2 or later for WAITAOF, but this is {version}. Upgrade Redis"
        elif "appendonly" in answer:
            why = (
                "requires the append-only file. Run redis-cli config set appendonly yes, and set it in redis.conf, too"
            )
        else:
            why = f"cannot be guaranteed because Redis replied {answer}. Fix this"
        return f"SUBMIT_DURABLE {why}, or unset SUBMIT_DURABLE; nothing was submitted"

    def cancel(self, job: str, actor: Actor = ANONYMOUS, *, during: tuple[str, int] | None = None) -> list[str]:
        """Cancel a job. Return [ok, state], [conflict, state] or [missing], like other calls that control jobs.

        `during` is a workflow and its attempt: return [stale] unless that attempt is being cancelled.
        """
        return self._functions.run_acknowledged_texts("cancel", job, *actor, *(during or ()))

    def pause(self, job: str, actor: Actor = ANONYMOUS) -> list[str]:
        """Pause a job. Its lanes commit their progress, and Redis grants no new leases."""
        return self._functions.run_acknowledged_texts("pause", job, *actor)

    def resume(self, job: str, actor: Actor = ANONYMOUS, *, hold: bool = False) -> list[str]:
        """Continue a paused job. If a limit rejects it, return [over, cap, value, seconds] unless `hold` is set."""
        return self._functions.run_acknowledged_texts("resume", job, *actor, int(hold))

    def retry(
        self,
        job: str,
        version: int,
        actor: Actor = ANONYMOUS,
        *,
        hold: bool = False,
        during: tuple[str, int] | None = None,
    ) -> list[str]:
        """Retry the unfinished units of a failed or cancelled job. A limit can reject the job, as for `resume`.

        Return [version, V] if the job's partials come from version V of the kind's model, not from `version`. Return
        [skipped, ROOT, state] if the failed, cancelled or deleted job ROOT must be retried first. `during` is a
        workflow and its attempt: return [stale] unless that attempt is running.
        """
        answer = ["more"]
        while answer == ["more"]:  # Each call moves some thousand ranges, so Redis can serve other calls in between
            answer = self._functions.run_acknowledged_texts("retry", job, version, *actor, int(hold), *(during or ()))
        return answer

    def retry_dead(
        self, job: str, first: int, version: int, actor: Actor = ANONYMOUS, *, hold: bool = False
    ) -> list[str]:
        """Retry the permanently failed range of units that starts at unit `first`.

        Return the same as `retry`, or [none] if there is no such range.
        """
        return self._functions.run_acknowledged_texts("retry_dead", job, first, version, *actor, int(hold))

    def delete(self, job: str, actor: Actor = ANONYMOUS) -> list[str]:
        """Delete a job that has ended or is blocked. Return [waited, N] if N other jobs wait for it."""
        return self._functions.run_acknowledged_texts("delete", job, *actor)


def _parse_submit_reply(reply: list[Any]) -> tuple[str, str] | CapReached:
    how, *rest = (word.decode() for word in reply)
    return parse_cap_reached(rest) if how == "over" else (how, rest[0])


def parse_cap_reached(words: Sequence[str]) -> CapReached:
    """Parse the reply of a Redis function that rejected a job because of a limit. `words` follow `over` in the
    reply.
    """
    cap, *numbers = words[:4]
    named = dict(zip(("value", "seconds", "used"), map(int, numbers), strict=False))
    return CapReached(cap=cap, **named, awaits="".join(words[4:5]))


def _submit_arguments(job: NewJob, most_queued: int) -> list[str | int | float]:
    plan = job.plan
    fields: dict[str, str | int | float] = {
        # Fields that are often read come first, because Redis searches small hashes from the start.
        "kind": job.kind,
        "version": job.version,
        "small": int(job.small),
        "total": plan.total,
        "est_ms": job.estimate_ms,
        "ttl_ms": job.ttl_seconds * 1000,
        "grain": plan.grain,
        "offset": plan.offset,
        "max_ms": int(plan.max_lease_seconds * 1000),
        "mode": plan.mode,
        "spec": json.dumps(plan.spec, separators=(",", ":")),
        "parameters": json.dumps(plan.parameters, separators=(",", ":")),
        "notes": json.dumps(plan.notes),
        "priority": job.priority,
        "device": job.device,
        "prefer": int(job.prefer),
        **({"max_running": job.max_running} if job.max_running else {}),
        **({"timeout_ms": job.timeout_ms} if job.timeout_ms else {}),
        **({"requirements": needed} if (needed := requirements.canonical(plan.requirements)) else {}),
        **({"unit_ms": math.ceil(plan.unit_seconds * 1000)} if plan.unit_seconds is not None else {}),
        **({"artifacts": json.dumps(plan.artifacts)} if plan.artifacts else {}),
        **({"after": json.dumps(job.after)} if job.after else {}),
        **({"after_any": json.dumps(job.after_any)} if job.after_any else {}),
        **({"notify": job.notify} if job.notify else {}),
        **({"workflow": job.workflow, "action": job.action} if job.workflow else {}),
        **({"attempt": job.attempt} if job.attempt else {}),
        **({"traceparent": job.traceparent, "parent_span": job.parent_span} if job.traceparent else {}),
        **({"tracestate": job.tracestate} if job.tracestate else {}),
        **({"name": job.name} if job.name else {}),
        **({"tags": json.dumps(job.tags)} if job.tags else {}),
        "token": job.token,
    }
    flat = [item for pair in fields.items() for item in pair]
    return [job.job_id, job.idempotency, job.digest, job.queue, job.tenant, int(job.hold), most_queued, *flat]
