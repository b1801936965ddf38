"""Submission and control of jobs."""

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
    """A job to be submitted."""

    job_id: str
    kind: str
    version: int
    plan: Plan
    priority: str
    device: str
    queue: str
    #: True for gpu_preferred: the job moves to the `any` queue if no GPU worker is alive.
    prefer: bool
    small: bool
    #: Estimated milliseconds of work for one lane.
    estimate_ms: int
    ttl_seconds: int
    #: Maximum number of lanes that compute the job at once; 0 for no limit.
    max_running: int = 0
    #: Milliseconds from the first lease, without pauses, after which the job fails; 0 for never.
    timeout_ms: int = 0
    #: Idempotency key as tenant:key or question@tenant:key; empty if none.
    idempotency: str = ""
    #: Digest of the request body. A request with the same key and another digest is a conflict.
    digest: str = ""
    #: Tenant that owns the job.
    tenant: str = DEFAULT_TENANT
    #: ID of the token that submitted the job; empty if none.
    token: str = ""
    #: If a cap rejects the job, True adds it to its tenant's backlog instead.
    hold: bool = False
    #: Jobs that must succeed before this job starts, and jobs that must end in any state.
    after: tuple[str, ...] = ()
    after_any: tuple[str, ...] = ()
    #: URL that is notified when the job ends.
    notify: str = ""
    #: Workflow of the job, its action in the workflow, and the attempt of the workflow that submits it.
    workflow: str = ""
    action: str = ""
    attempt: int = 0
    #: TRACEPARENT and TRACESTATE of the job's programs, and the parent of its own span. Empty without tracing.
    traceparent: str = ""
    tracestate: str = ""
    parent_span: str = ""


@dataclass(frozen=True, kw_only=True)
class CapReached:
    """Cap or limit that rejects a job."""

    #: Name of the limit: max_jobs, max_stored_bytes, MAX_QUEUED, `requirements` or `notify` (undelivered webhooks).
    cap: str
    value: int
    #: Seconds after which a client should try again.
    seconds: int
    #: Number of stored bytes; 0 for other caps.
    used: int = 0
    #: Event that is expected after these seconds: `end` of a job, a new `day`, or `expiry` of a job. Empty if unknown.
    awaits: str = ""


class Jobs(Part):
    """Submits and controls jobs."""

    def submit(
        self, jobs: Sequence[NewJob], most_queued: int = 0, *, disk: bool = False
    ) -> list[tuple[str, str] | CapReached]:
        """Store jobs, each atomically with its wake-up. Return (new|same|conflict, job_id) or Over for each job.

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
        """Store one job like `submit`, in an event loop. None means that the outcome is unknown: call `submit`."""
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
        """Raise Unavailable if Redis cannot confirm writes to its disk. Changes nothing."""
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
        """Cancel a job. Return [ok, state], [conflict, state] or [missing], like pause, resume, retry and delete.

        `during` is a workflow and its attempt: return [stale] unless that attempt is being cancelled.
        """
        return self._functions.run_acknowledged_texts("cancel", job, *actor, *(during or ()))

    def pause(self, job: str, actor: Actor = ANONYMOUS) -> list[str]:
        """Pause a job: its lanes commit their progress, and no new leases are granted."""
        return self._functions.run_acknowledged_texts("pause", job, *actor)

    def resume(self, job: str, actor: Actor = ANONYMOUS, *, hold: bool = False) -> list[str]:
        """Continue a paused job. Unless `hold` is set, return [over, cap, value, seconds] if a cap rejects it."""
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
        """Retry the unfinished units of a failed or cancelled job. Caps can reject it, as in `resume`.

        Return [version, V] if the job's partials come from version V of the kind's model, not from `version`. Return
        [skipped, ROOT, state] if the failed, cancelled or deleted job ROOT must be retried first. `during` is a
        workflow and its attempt: return [stale] unless that attempt is running.
        """
        answer = ["more"]
        while answer == ["more"]:  # each call moves some thousand ranges, so other calls are served in between
            answer = self._functions.run_acknowledged_texts("retry", job, version, *actor, int(hold), *(during or ()))
        return answer

    def retry_dead(
        self, job: str, first: int, version: int, actor: Actor = ANONYMOUS, *, hold: bool = False
    ) -> list[str]:
        """Retry the dead range that starts at unit `first`.

        Return the same as `retry`, or [none] if there is no such range.
        """
        return self._functions.run_acknowledged_texts("retry_dead", job, first, version, *actor, int(hold))

    def delete(self, job: str, actor: Actor = ANONYMOUS) -> list[str]:
        """Delete a job that has ended or is blocked. Return [waited, N] if N jobs wait for it."""
        return self._functions.run_acknowledged_texts("delete", job, *actor)


def _parse_submit_reply(reply: list[Any]) -> tuple[str, str] | CapReached:
    how, *rest = (word.decode() for word in reply)
    return parse_cap_reached(rest) if how == "over" else (how, rest[0])


def parse_cap_reached(words: Sequence[str]) -> CapReached:
    """Parse the words after `over` in the reply of a Redis function."""
    cap, *numbers = words[:4]
    named = dict(zip(("value", "seconds", "used"), map(int, numbers), strict=False))
    return CapReached(cap=cap, **named, awaits="".join(words[4:5]))


def _submit_arguments(job: NewJob, most_queued: int) -> list[str | int | float]:
    plan = job.plan
    fields: dict[str, str | int | float] = {
        # Frequently read fields come first, because Redis scans small hashes from the start.
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
        "token": job.token,
    }
    flat = [item for pair in fields.items() for item in pair]
    return [job.job_id, job.idempotency, job.digest, job.queue, job.tenant, int(job.hold), most_queued, *flat]
