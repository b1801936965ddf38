"""One coordinator replica: what its routes share, and what they do besides reading."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from starlette.concurrency import run_in_threadpool

from coordinator.access.credentials import Credentials
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
from jobs.store.work.jobs import NewJob, Over, over
from jobs.worker import execution
from threads_protocol.answers import jobs as answers

#: Prepared traces and the like that are kept, up to some tens of MB each.
_PACKERS = 4
#: Returns the bytes that a request asks for; takes the request's choices.
Packer = Callable[[Mapping[str, str]], bytes]


class Cluster:
    """One replica: its connection, its hub, its queries, and what its routes do with them."""

    def __init__(self, store: Store, hub: Hub, settings: Settings) -> None:
        self.store = store
        self.hub = hub
        self.settings = settings
        self.credentials = Credentials(settings, store.tokens)
        self.queries = Queries(store, settings)
        self.artifacts = Trees(store, settings)
        self.models = Catalog(store.artifacts, self.artifacts)
        self.secrets = Vault(store.secrets, Keys(settings.secrets_keys()))
        self.tracing = Tracing.from_settings(settings)
        #: By job and name of the binary: windows of one trace are asked for in a row.
        self.packers: dict[tuple[str, str], Packer] = {}
        self._packing = asyncio.Lock()
        #: Whether Redis has been asked, and can say what is on its disk.
        self._disk_checked = False

    def submit(
        self, bodies: Sequence[Any], principal: Principal, trace: TraceContext | None = None
    ) -> list[answers.Submitted | errors.ClusterError]:
        """Validate each body alone and write the good ones; return one answer or error each, in order.

        `trace`: where in a trace they are submitted.
        """
        fleet = self.queries.fleet_cache.get()
        references = References(principal, self.artifacts, self.secrets)
        accepted = [self._accept(body, principal, fleet, references) for body in bodies]
        good = [one for one in accepted if isinstance(one, submissions.Accepted)]
        jobs = [self._traced(one.job, trace) for one in good]
        written = iter(zip(good, self._write(jobs), strict=True) if good else [])
        return [one if isinstance(one, errors.ClusterError) else self._answer(*next(written)) for one in accepted]

    async def submit_one(
        self, body: Any, principal: Principal, trace: TraceContext | None, *, short: bool
    ) -> answers.Submitted | errors.ClusterError:
        """Do the same for one body, within the loop where that takes no longer than to ask a thread.

        `short`: its text is, so that what is made of it is.
        """
        fleet = self.queries.fleet_cache.fresh()
        if fleet is None or not short or self.settings.submit_durable == "true" or not submissions.is_quick(body):
            [answer] = await run_in_threadpool(self.submit, [body], principal, trace)
            return answer
        one = self._accept(body, principal, fleet, References(principal, self.artifacts, self.secrets))
        if isinstance(one, errors.ClusterError):
            return one
        job = self._traced(one.job, trace)
        written = await self.store.jobs.submit_by(self.store.wire, job, self.settings.max_queued)
        if written is None:
            [written] = await run_in_threadpool(self._write, [job])
        if not isinstance(written, Over) and written[0] == "new" and not (job.after or job.after_any):
            return one.answer(written[1])
        return await run_in_threadpool(self._answer, one, written)

    def _traced(self, job: NewJob, trace: TraceContext | None) -> NewJob:
        return job if trace is None else self.tracing.add_context(job, trace)

    def _write(self, jobs: Sequence[NewJob]) -> list[tuple[str, str] | Over]:
        """Write jobs; with SUBMIT_DURABLE return when they are on Redis' disk."""
        disk = self.settings.submit_durable == "true"
        if disk and not self._disk_checked:
            self.store.jobs.require_disk()
            self._disk_checked = True
        return self.store.jobs.submit(jobs, self.settings.max_queued, disk=disk)

    def _accept(
        self, body: Any, principal: Principal, fleet: scheduler.Fleet, references: References
    ) -> submissions.Accepted | errors.ClusterError:
        try:
            return submissions.accept(submissions.read(body), principal, fleet, self.settings, references)
        except errors.ClusterError as error:
            return error

    def _answer(
        self, one: submissions.Accepted, written: tuple[str, str] | Over
    ) -> answers.Submitted | errors.ClusterError:
        if refused := submissions.refusal(one.job, written):
            return refused
        how, job_id = cast(tuple[str, str], written)
        waits = bool(one.job.after or one.job.after_any)
        state = "queued" if how == "new" and not waits else self.queries.jobs.states([job_id])[0] or "queued"
        return one.answer(job_id, state)

    def binary(self, job_id: str, name: str) -> tuple[str, Binary]:
        """Return the kind of a job and its binary of this name. NotFound naming those there are."""
        kind = self.queries.jobs.result(job_id)[0]["type"]
        binaries = registry.definition(kind).binaries
        if name not in binaries:
            have = ", ".join(binaries) or "none"
            raise errors.NotFound(f"{kind} has no binary {name}; it has {have}", field="binary")
        return kind, binaries[name]

    def packer(self, source: str, name: str) -> Packer | None:
        """Return the packer of a binary made of the result of the job `source`; None unless it was prepared here."""
        return self.packers.get((source, name))

    async def prepare(self, kind: str, name: str, source: str, stored: ResultText) -> Packer:
        """Make the packer of a binary from the stored result of the job `source`, and cache it for later requests.

        Runs one at a time, because each takes up to a few seconds of CPU time and tens of MB.
        """
        definition = registry.definition(kind)
        async with self._packing:
            if made := self.packer(source, name):  # by an earlier request
                return made
            made = await run_in_threadpool(lambda: definition.binary(name, JsonReader(stored.pieces())))
            while len(self.packers) >= _PACKERS:
                del self.packers[next(iter(self.packers))]
            self.packers[(source, name)] = made
        return made

    def ask(self, job_id: str, name: str, choice: Mapping[str, str], principal: Principal) -> str:
        """Submit a question about a job and return the id of the job that answers it.

        NotFound naming the questions that its kind answers; Unavailable when no live worker could.
        """
        job = self.queries.jobs.job(job_id)
        kind = registry.definition(job["type"])
        if name not in kind.questions:
            have = ", ".join(kind.questions) or "none"
            raise errors.NotFound(f"{job['type']} answers no question {name}; it answers {have}", field="question")
        asked = submissions.question(
            job["type"], kind.question(name, job["parameters"], choice), principal, self.queries.fleet_cache.get()
        )
        if asked.estimated_wait_seconds is None:
            raise errors.Unavailable(f"no live worker serves the queue {asked.job.queue}; see GET /api/workers")
        [written] = self.store.jobs.submit([asked.job])
        if isinstance(written, Over):
            raise submissions.over(written, principal.tenant)
        return written[1]

    def steer(self, job_id: str, verb: str, principal: Principal, *, hold: bool = False) -> None:
        """Cancel, pause, resume, retry or delete a job. NotFound, or Conflict naming the state.

        OverLimit where a cap of its tenant refuses to resume or retry it, unless `hold`.
        """
        self._check(job_id, verb, self._steered(job_id, verb, principal, hold))

    def retry_dead(self, job_id: str, first: int, principal: Principal, *, hold: bool = False) -> None:
        """Let one range be computed again that was given up; NotFound when there is none. Else as `steer`."""
        version = registry.definition(self.queries.jobs.job(job_id)["type"]).model_version
        answer = self.store.jobs.retry_dead(job_id, first, version, principal.actor, hold=hold)
        if answer == ["none"]:
            raise errors.NotFound(f"no range of job {job_id} that begins at {first} was given up", field="first")
        self._check(job_id, "retry", answer)

    def _check(self, job_id: str, verb: str, answer: Sequence[str]) -> None:
        """Raise what the answer of a function of Redis to a call about a job means."""
        how, *rest = answer
        if how == "over":
            raise submissions.over(over(rest), self.queries.jobs.job(job_id)["tenant"])
        if how == "missing":
            raise errors.missing("job", job_id, "job_id")
        if how == "version":
            detail = f"the job's partial results come from version {rest[0]} of its kind; submit it anew"
            raise errors.Conflict(detail, field="state")
        if how == "waited":
            those = "a job waits for it" if rest[0] == "1" else f"{rest[0]} jobs wait for it"
            detail = f"{those}: cancel or delete those first; GET /api/jobs/{job_id}/relations names them"
            raise errors.Conflict(detail, field="state")
        if how == "skipped":
            raise errors.Conflict(_root(job_id, *rest), field="state")
        if how == "conflict":
            first = "; cancel it first" if verb == "delete" else ""
            raise errors.Conflict(f"cannot {verb} a job that is {rest[0]}{first}", field="state")

    def _steered(self, job_id: str, verb: str, principal: Principal, hold: bool) -> list[str]:
        if verb == "retry":
            kind = self.queries.jobs.job(job_id)["type"]
            return self.store.jobs.retry(job_id, registry.definition(kind).model_version, principal.actor, hold=hold)
        if verb == "resume":
            return self.store.jobs.resume(job_id, principal.actor, hold=hold)
        answer: list[str] = getattr(self.store.jobs, verb)(job_id, principal.actor)
        return answer

    def so_far(self, job_id: str, kind: str) -> dict[str, Any] | None:
        """Return the result over the units committed up to now; None when the job has ended or gone meanwhile."""
        gathered = self.store.results.gather(job_id, limit=10_000)
        if gathered.spec is None or (gathered.done and gathered.accumulator is None and not gathered.parts):
            return None
        return {"units": gathered.done, "result": execution.so_far(kind, json.loads(gathered.spec), gathered)}

    @staticmethod
    @lru_cache
    def kinds() -> list[answers.Kind]:
        """Return every kind as /api/job-types shows it."""
        return [_kind(name) for name in registry.names() if not registry.definition(name).is_for_leader]


def _root(job_id: str, root: str, state: str) -> str:
    """Return why a job cannot be retried before the job because of which it was skipped, or would be."""
    if state == "gone":
        return f"{job_id} comes after job {root}, which is gone: submit it again without that"
    what = "was cancelled" if state == "cancelled" else "failed"
    return (
        f"{job_id} comes after job {root}, which {what}: cluster retry {root}, which also brings back what it skipped"
    )


def _kind(name: str) -> answers.Kind:
    definition = registry.definition(name)
    row: answers.Kind = {
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
        row["result_schema"] = dict(definition.result_schema)
    return row
