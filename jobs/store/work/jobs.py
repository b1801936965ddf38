"""Jobs as wholes: submitting and steering them."""

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
from jobs.store.server.wire import Away, Wire


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """Job as SUBMIT writes it."""

    job_id: str
    kind: str
    version: int
    plan: Plan
    priority: str
    device: str
    queue: str
    #: gpu_preferred: moves to the any queue when no GPU worker lives.
    prefer: bool
    small: bool
    #: Estimated milliseconds of one lane's work.
    estimate_ms: int
    ttl_seconds: int
    #: Most lanes that compute it at once; 0: any number.
    max_running: int = 0
    #: Milliseconds from its first lease after which it fails, the time while it is paused apart; 0: none.
    timeout_ms: int = 0
    #: tenant:key, or question@tenant:key, or empty.
    idempotency: str = ""
    #: Digest of the request's body; the same key with another body is a conflict.
    digest: str = ""
    #: Whose job it is.
    tenant: str = DEFAULT_TENANT
    #: Id of the token that submitted it; empty without one.
    token: str = ""
    #: Puts it into its tenant's backlog where a cap of the tenant refuses it.
    hold: bool = False
    #: Jobs that must be done before it starts, and jobs that must have ended, however.
    after: tuple[str, ...] = ()
    after_any: tuple[str, ...] = ()
    #: URL that is told of its end.
    notify: str = ""
    #: Workflow that it belongs to, its action there, and the workflow's attempt for which it is submitted.
    workflow: str = ""
    action: str = ""
    attempt: int = 0
    #: What its programs have as TRACEPARENT and TRACESTATE, and the span that its own has for a parent; empty: it is in
    #: no trace, or nobody added to it.
    traceparent: str = ""
    tracestate: str = ""
    parent_span: str = ""


@dataclass(frozen=True, kw_only=True)
class Over:
    """Cap or limit that refuses one more job."""

    #: max_jobs or max_stored_bytes of the tenant, MAX_QUEUED, requirements: so many different ones wait, or notify: so
    #: many of the tenant's webhooks are not delivered.
    cap: str
    value: int
    #: Seconds after which a client should try again.
    seconds: int
    #: How much of the cap is used: the bytes that are stored; 0 where it is all.
    used: int = 0
    #: Event that happens after these seconds. end: a job ends, at its present rate. day: the next day begins. expiry: a
    #: job expires. Empty: nothing is known.
    awaits: str = ""


class Jobs(Part):
    """Submits and steers jobs."""

    def submit(
        self, jobs: Sequence[NewJob], most_queued: int = 0, *, disk: bool = False
    ) -> list[tuple[str, str] | Over]:
        """Write jobs, each atomically with its bell. One (new|same|conflict, job_id), or Over, each.

        (artifact, id) where a job needs an artifact that is not there, (after|after_any, id) where it comes after a job
        that is not there or another tenant's, (workflow, state) where its workflow does not run, or in another attempt,
        (taken, id) where something else has the id.
        While `most_queued` jobs are queued in the cluster, none is added; 0: any number. Where Redis refuses some and
        not all: (refused, why) for those. Raises Unreachable when it refuses all, and Unacknowledged when replicas, or
        with `disk` the disk, lack what was written.
        """
        asked = Acknowledgement(replicas=self._functions.replicas, disk=disk)
        replies = self._functions.many("submit", [_submit_arguments(job, most_queued) for job in jobs], asked)
        failed = [reply for reply in replies if isinstance(reply, Exception)]
        for error in failed:
            if len(failed) == len(replies) or not isinstance(error, Unreachable):
                raise error
        return [("refused", reason(reply)) if isinstance(reply, Exception) else _written(reply) for reply in replies]

    async def submit_by(self, wire: Wire, job: NewJob, most_queued: int = 0) -> tuple[str, str] | Over | None:
        """Write one job as `submit` does, in a loop. None where that failed or cannot be said: `submit` says it."""
        if self._functions.replicas:
            return None
        try:
            [reply] = await wire.call(
                ("FCALL", self._functions.function("submit"), 0, *_submit_arguments(job, most_queued))
            )
        except Away:
            return None
        return None if isinstance(reply, Exception) else _written(reply)

    def require_disk(self) -> None:
        """Refuse as Unavailable a Redis that cannot say what is on its disk; changes nothing."""
        try:
            self._client.waitaof(1, 0, 1)
        except ResponseError as error:
            raise errors.Unavailable(self._no_disk(str(error))) from error

    def _no_disk(self, answer: str) -> str:
        if "unknown command" in answer.lower():
            version = self._client.info("server")["redis_version"]
            why = f"needs Redis 7.2 or later for WAITAOF, and this is {version}: upgrade Redis"
        elif "appendonly" in answer:
            why = (
                "needs Redis' log, which is off: redis-cli config set appendonly yes, and the same in its configuration"
            )
        else:
            why = f"cannot be kept, Redis says {answer}: mend that"
        return f"SUBMIT_DURABLE {why}, or unset SUBMIT_DURABLE; nothing was submitted"

    def cancel(self, job: str, actor: Actor = ANONYMOUS, *, during: tuple[str, int] | None = None) -> list[str]:
        """Return [ok, state], [conflict, state] or [missing]; pause, resume, retry and delete do too.

        `during`: a workflow and its attempt; [stale] unless that is being cancelled.
        """
        return self._functions.kept_words("cancel", job, *actor, *(during or ()))

    def pause(self, job: str, actor: Actor = ANONYMOUS) -> list[str]:
        """Let lanes commit what they have and take no more."""
        return self._functions.kept_words("pause", job, *actor)

    def resume(self, job: str, actor: Actor = ANONYMOUS, *, hold: bool = False) -> list[str]:
        """Let a paused job go on. [over, cap, value, seconds] when a cap of its tenant refuses it and not `hold`."""
        return self._functions.kept_words("resume", job, *actor, int(hold))

    def retry(
        self,
        job: str,
        version: int,
        actor: Actor = ANONYMOUS,
        *,
        hold: bool = False,
        during: tuple[str, int] | None = None,
    ) -> list[str]:
        """Go on with what is not done of a job that failed or was cancelled; refused by caps as `resume` is.

        Returns [version, V] when its partials come from version V of the kind's model and not from `version`;
        [skipped, ROOT, state] when it cannot run before job ROOT is tried again, which is failed, cancelled or gone.
        `during`: a workflow and its attempt; [stale] unless that runs.
        """
        answer = ["more"]
        while answer == ["more"]:  # each call moves some thousand ranges, so that others are served between two
            answer = self._functions.kept_words("retry", job, version, *actor, int(hold), *(during or ()))
        return answer

    def retry_dead(
        self, job: str, first: int, version: int, actor: Actor = ANONYMOUS, *, hold: bool = False
    ) -> list[str]:
        """Let one range that was given up, the one that begins at unit `first`, be computed again.

        Answers as `retry`; [none] when no such range was given up.
        """
        return self._functions.kept_words("retry_dead", job, first, version, *actor, int(hold))

    def delete(self, job: str, actor: Actor = ANONYMOUS) -> list[str]:
        """Remove a job that has ended, or is blocked; [waited, N] while N jobs wait for it."""
        return self._functions.kept_words("delete", job, *actor)


def _written(reply: list[Any]) -> tuple[str, str] | Over:
    how, *rest = (word.decode() for word in reply)
    return over(rest) if how == "over" else (how, rest[0])


def over(words: Sequence[str]) -> Over:
    """Return the refusal that follows the word over in a script's reply."""
    cap, *numbers = words[:4]
    named = dict(zip(("value", "seconds", "used"), map(int, numbers), strict=False))
    return Over(cap=cap, **named, awaits="".join(words[4:5]))


def _submit_arguments(job: NewJob, most_queued: int) -> list[str | int | float]:
    plan = job.plan
    fields: dict[str, str | int | float] = {
        # What every function reads is first: Redis looks for it from the beginning of a hash.
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
