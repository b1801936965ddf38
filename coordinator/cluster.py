"""API operations that change jobs, and the objects that the routes of one replica share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

from starlette.concurrency import run_in_threadpool

from coordinator.access.credentials import Credentials
from coordinator.access.guests import Guests
from coordinator.access.principal import Principal
from coordinator.artifacts.catalog import Catalog
from coordinator.artifacts.trees import Trees
from coordinator.events.hub import Hub
from coordinator.jobs import scheduler, submissions
from coordinator.jobs.references import References
from coordinator.queries import Queries
from coordinator.secrets.keys import Keys
from coordinator.secrets.vault import Vault
from coordinator.tracing import TraceContext, Tracing
from jobs import errors
from jobs.encoding.json_reader import JsonReader
from jobs.kinds import registry
from jobs.models import Binary
from jobs.settings import Settings
from jobs.store import Store
from jobs.store.work.job_reads import ResultText
from jobs.store.work.jobs import CapReached, NewJob, parse_cap_reached
from jobs.worker import execution
from threads_protocol.answers import jobs as answers

#: Maximum number of cached result encoders (packers). Each uses up to tens of MB of memory.
_MAX_PACKERS = 4
#: Function that encodes a job's result in a binary format, with the options of a request.
Packer = Callable[[Mapping[str, str]], bytes]


class Cluster:
    """Shared objects of one replica (store, event hub, queries, caches) and the operations of its routes."""

    def __init__(self, store: Store, hub: Hub, settings: Settings) -> None:
        self.store = store
        self.hub = hub
        self.settings = settings
        self.credentials = Credentials(settings, store.tokens)
        self.guests = Guests(settings, store.tenants)
        self.queries = Queries(store, settings)
        self.artifacts = Trees(store, settings)
        self.models = Catalog(store.artifacts, self.artifacts)
        self.secrets = Vault(store.secrets, Keys(settings.secrets_keys()))
        self.tracing = Tracing.from_settings(settings)
        #: Cached result encoders, by job ID and name of the binary format.
        self.packers: dict[tuple[str, str], Packer] = {}
        self._packing = asyncio.Lock()
        #: True once Redis is known to support SUBMIT_DURABLE.
        self._is_disk_checked = False

    def submit(
        self, bodies: Sequence[Any], principal: Principal, trace: TraceContext | None = None
    ) -> list[answers.Submitted | errors.ClusterError]:
        """Validate job submissions and store the valid ones. Return one response or error per body, in order."""
        fleet = self.queries.fleet_cache.get()
        references = References(principal, self.artifacts, self.secrets)
        results = [self._accept(body, principal, fleet, references) for body in bodies]
        accepted = [result for result in results if isinstance(result, submissions.AcceptedJob)]
        jobs = [self._add_trace(each.job, trace) for each in accepted]
        written = iter(zip(accepted, self._write(jobs), strict=True) if accepted else [])
        return [
            result if isinstance(result, errors.ClusterError) else self._answer(*next(written)) for result in results
        ]

    async def submit_one(
        self, body: Any, principal: Principal, trace: TraceContext | None, *, short: bool
    ) -> answers.Submitted | errors.ClusterError:
        """Submit one job. Small jobs are submitted in the event loop, which is faster than using a thread.

        `short` is True if the request body is short.
        """
        fleet = self.queries.fleet_cache.fresh()
        if fleet is None or not short or self.settings.submit_durable == "true" or not submissions.is_quick(body):
            [answer] = await run_in_threadpool(self.submit, [body], principal, trace)
            return answer
        accepted = self._accept(body, principal, fleet, References(principal, self.artifacts, self.secrets))
        if isinstance(accepted, errors.ClusterError):
            return accepted
        job = self._add_trace(accepted.job, trace)
        written = await self.store.jobs.submit_by(self.store.wire, job, self.settings.max_queued)
        if written is None:
            [written] = await run_in_threadpool(self._write, [job])
        if not isinstance(written, CapReached) and written[0] == "new" and not (job.after or job.after_any or job.hold):
            return accepted.answer(written[1])
        return await run_in_threadpool(self._answer, accepted, written)

    def estimate(self, body: Any, principal: Principal) -> answers.Estimate:
        """Return when a submission would start, without submitting it. Raises the errors of a submission."""
        fleet = self.queries.fleet_cache.get()
        references = References(principal, self.artifacts, self.secrets)
        asked = submissions.parse_submission(body)
        return submissions.accept(asked, principal, fleet, self.settings, references).estimate(fleet)

    def _add_trace(self, job: NewJob, trace: TraceContext | None) -> NewJob:
        return job if trace is None else self.tracing.add_context(job, trace)

    def _write(self, jobs: Sequence[NewJob]) -> list[tuple[str, str] | CapReached]:
        """Write jobs to Redis. If SUBMIT_DURABLE is set, wait until Redis has written them to disk."""
        disk = self.settings.submit_durable == "true"
        if disk and not self._is_disk_checked:
            self.store.jobs.require_disk()
            self._is_disk_checked = True
        return self.store.jobs.submit(jobs, self.settings.max_queued, disk=disk)

    def _accept(
        self, body: Any, principal: Principal, fleet: scheduler.Fleet, references: References
    ) -> submissions.AcceptedJob | errors.ClusterError:
        try:
            return submissions.accept(submissions.parse_submission(body), principal, fleet, self.settings, references)
        except errors.ClusterError as error:
            return error

    def _answer(
        self, accepted: submissions.AcceptedJob, written: tuple[str, str] | CapReached
    ) -> answers.Submitted | errors.ClusterError:
        if error := submissions.refusal(accepted.job, written):
            return error
        outcome, job_id = cast(tuple[str, str], written)
        if accepted.job.hold:  # The job may be in its tenant's backlog
            waits = [row.get("estimated_wait_seconds") for row in self.queries.jobs.by_ids([job_id])]
            accepted = replace(accepted, estimated_wait_seconds=next(iter(waits), None))
        has_parents = bool(accepted.job.after or accepted.job.after_any)
        is_queued = outcome == "new" and not has_parents
        state = "queued" if is_queued else self.queries.jobs.states([job_id])[0] or "queued"
        return accepted.answer(job_id, state)

    def binary(self, job_id: str, name: str) -> tuple[str, Binary]:
        """Return a job's kind and one of its binary formats. Raise NotFound if the kind lacks this format."""
        kind = self.queries.jobs.result(job_id)[0]["type"]
        binaries = registry.definition(kind).binaries
        if name not in binaries:
            known = ", ".join(binaries) or "none"
            raise errors.NotFound(f"kind {kind} has no binary {name}; available: {known}", field="binary")
        return kind, binaries[name]

    def packer(self, source: str, name: str) -> Packer | None:
        """Return the cached packer of a job's binary format, or None if this replica has not created one."""
        return self.packers.get((source, name))

    async def prepare(self, kind: str, name: str, source: str, stored: ResultText) -> Packer:
        """Create and cache the packer of a job's binary format from the job's stored result.

        Packers are created one at a time, because each needs seconds of CPU time and tens of MB of memory.
        """
        definition = registry.definition(kind)
        async with self._packing:
            if packer := self.packer(source, name):  # created by a concurrent request
                return packer
            packer = await run_in_threadpool(lambda: definition.binary(name, JsonReader(stored.pieces())))
            while len(self.packers) >= _MAX_PACKERS:
                del self.packers[next(iter(self.packers))]
            self.packers[(source, name)] = packer
        return packer

    def ask_question(self, job_id: str, name: str, choice: Mapping[str, str], principal: Principal) -> str:
        """Submit a question about a job, and return the ID of the job that answers it.

        Raise NotFound if the kind does not support the question, or Unavailable if no live worker can answer it.
        """
        job = self.queries.jobs.job(job_id)
        kind = registry.definition(job["type"])
        if name not in kind.questions:
            known = ", ".join(kind.questions) or "none"
            raise errors.NotFound(
                f"kind {job['type']} does not support question {name}; supported: {known}", field="question"
            )
        question = submissions.question(
            job["type"], kind.question(name, job["parameters"], choice), principal, self.queries.fleet_cache.get()
        )
        if question.estimated_wait_seconds is None:
            raise errors.Unavailable(f"no live worker serves the queue {question.job.queue}; see GET /api/workers")
        [written] = self.store.jobs.submit([question.job])
        if isinstance(written, CapReached):
            raise submissions.limit_error(written, principal.tenant)
        return written[1]

    def steer(self, job_id: str, verb: str, principal: Principal, *, hold: bool = False) -> None:
        """Cancel, pause, resume, retry or delete a job.

        Raise NotFound if the job does not exist, Conflict if its state does not allow the action, or OverLimit if a
        tenant cap prevents a resume or retry. With `hold`, the job waits until the cap allows it.
        """
        self._check(job_id, verb, self._apply(job_id, verb, principal, hold))

    def retry_dead(self, job_id: str, first: int, principal: Principal, *, hold: bool = False) -> None:
        """Retry one failed range of a job. Raise NotFound if the range does not exist.

        Other errors are the same as for `steer`.
        """
        version = registry.definition(self.queries.jobs.job(job_id)["type"]).model_version
        answer = self.store.jobs.retry_dead(job_id, first, version, principal.actor, hold=hold)
        if answer == ["none"]:
            raise errors.NotFound(
                f"job {job_id} has no failed range that starts at {first};"
                f" list failed ranges with GET /api/jobs/{job_id}/dead",
                field="first",
            )
        self._check(job_id, "retry", answer)

    def _check(self, job_id: str, verb: str, answer: Sequence[str]) -> None:
        """Raise the error that a Redis function returned for a job, if any."""
        outcome, *details = answer
        if outcome == "over":
            raise submissions.limit_error(parse_cap_reached(details), self.queries.jobs.job(job_id)["tenant"])
        if outcome == "missing":
            raise errors.missing("job", job_id, "job_id")
        if outcome == "version":
            detail = f"the job's partial results were computed by version {details[0]} of its kind; submit a new job"
            raise errors.Conflict(detail, field="state")
        if outcome == "waited":
            dependents = "1 job depends" if details[0] == "1" else f"{details[0]} jobs depend"
            advice = f"cancel or delete dependent jobs first; list them with GET /api/jobs/{job_id}/relations"
            detail = f"{dependents} on job {job_id}; {advice}"
            raise errors.Conflict(detail, field="state")
        if outcome == "skipped":
            raise errors.Conflict(_explain_skip(job_id, *details), field="state")
        if outcome == "conflict":
            advice = "; cancel it first" if verb == "delete" else ""
            raise errors.Conflict(f"cannot {verb} a job that is {details[0]}{advice}", field="state")

    def _apply(self, job_id: str, verb: str, principal: Principal, hold: bool) -> list[str]:
        if verb == "retry":
            kind = self.queries.jobs.job(job_id)["type"]
            return self.store.jobs.retry(job_id, registry.definition(kind).model_version, principal.actor, hold=hold)
        if verb == "resume":
            return self.store.jobs.resume(job_id, principal.actor, hold=hold)
        answer: list[str] = getattr(self.store.jobs, verb)(job_id, principal.actor)
        return answer

    def result_so_far(self, job_id: str, kind: str) -> dict[str, Any] | None:
        """Return the merged result of the units committed so far, or None if the job has ended or does not exist."""
        gathered = self.store.results.gather(job_id, limit=10_000)
        if gathered.spec is None or (gathered.done and gathered.accumulator is None and not gathered.parts):
            return None
        return {"units": gathered.done, "result": execution.partial_result(kind, json.loads(gathered.spec), gathered)}

    @staticmethod
    @lru_cache
    def kinds() -> list[answers.Kind]:
        """Return the job kinds that GET /api/job-types lists."""
        return [_serialize_kind(name) for name in registry.names() if not registry.definition(name).is_for_leader]


def _explain_skip(job_id: str, root: str, state: str) -> str:
    """Explain why a skipped job can be retried only after the job that caused the skip."""
    if state == "gone":
        return f"{job_id} depends on job {root}, which was deleted; submit {job_id} again without this dependency"
    outcome = "was cancelled" if state == "cancelled" else "failed"
    return (
        f"{job_id} depends on job {root}, which {outcome}; run `cluster retry {root}`, which also restores the jobs"
        " that were skipped because of it"
    )


def _serialize_kind(name: str) -> answers.Kind:
    definition = registry.definition(name)
    kind: answers.Kind = {
        "type": name,
        "summary": definition.summary,
        "model_version": definition.model_version,
        "devices": [device.value for device in registry.devices(name)],
        "schema": definition.parameters.model_json_schema(),
        "example": definition.example,
        "questions": dict(definition.questions),
        "binaries": {each: binary.summary for each, binary in definition.binaries.items()},
    }
    if definition.result_schema is not None:
        kind["result_schema"] = dict(definition.result_schema)
    return kind
