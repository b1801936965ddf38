"""Handle the calls of workers. Most calls map to a store method of the same name, with the worker's name added."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from coordinator.work import mark_validation, program_partials
from coordinator.work.identity import token_prefix, worker_lease_token
from coordinator.work.mark_validation import SubmittedMarks
from coordinator.work.polls import NO_WAKEUP, Wakeup
from jobs import errors, queues
from jobs.kinds import registry
from jobs.models import Device
from jobs.store import Store
from jobs.store.server.connection import RedisError, describe_for_log
from jobs.store.work.lease_store import Heard, Pulse
from jobs.store.work.leases import Finished, Grant, Merge
from jobs.store.work.results import SOME_BYTES
from jobs.store.work.slots import Taken
from jobs.worker import execution
from jobs.worker.api.calls import Call, Parts, Registered, Work
from jobs.worker.api.heartbeat_record import Row, offered

log = logging.getLogger(__name__)

#: Maximum size in bytes of a partial from which the coordinator derives the result of a program.
_SHORT_PARTIAL = 64 << 10


def accepts_only_replicas(asked: Any) -> bool:
    """Return True if a runner without a free slot requests work. Such a runner accepts only replicas."""
    return asked.device == "runner" and bool(asked.kinds) and registry.endless_kinds().issuperset(asked.kinds)


class Answers:
    """Handles the calls of one worker. Each public method except `answer` handles the call of the same name."""

    def __init__(self, store: Store, worker: str, labels: Sequence[str]) -> None:
        self._store = store
        self._worker = worker
        #: Host labels that the worker's token grants.
        self._labels = labels

    def answer(self, call: Call, asked: BaseModel) -> Any:
        """Handle a call with the method of this class, or otherwise with the store method that declares the call."""
        given = dict(asked)
        if given.get("token") is not None:
            given["token"] = worker_lease_token(self._worker, given["token"])
        if own := getattr(self, call.name, None):
            return own(**given)
        if call.names_worker:
            given["worker"] = self._worker
        return getattr(getattr(self._store, call.part), call.name)(**given)

    def register(self) -> Registered:
        return Registered(worker=self._worker, born=self._store.fleet.birth())

    def heartbeat(
        self, born: str, row: Row, leases: Sequence[tuple[str, str, int]], slot: bool, leaving: bool
    ) -> Heard:
        """Extend the worker's leases. The response also lists the jobs with followers, and requested shells."""
        said = row.labelled(self._labels)
        if leaving:
            return Heard(word=self._store.fleet.heartbeat(self._worker, born, said, leaving=True), leases=())
        kept = tuple((job, worker_lease_token(self._worker, token), upto) for job, token, upto in leases)
        heard = self._store.pulse(Pulse(worker=self._worker, born=born, row=lambda: said, leases=kept, slot=slot))
        alive = {job for (job, _, _), answer in zip(leases, heard.leases, strict=True) if answer}
        return replace(heard, **self._client_requests(alive)) if alive and row.device == "runner" else heard

    def _client_requests(self, jobs: set[str]) -> dict[str, Any]:
        follow = sorted(jobs & self._store.live_output.followed(self._store.clock.now() * 1000))
        return {"follow": tuple(follow), "attach": tuple(self._store.attachments.asked(jobs))}

    # -- leases --------------------------------------------------------------------------------------------------------

    def next(self, asked: Any, popped: Wakeup) -> Work:
        """Find work for the worker, and return it with the descriptions of the jobs.

        Calls the Redis function NEXT, and repeats the call if a job was deleted.
        """
        device = Device(asked.device)
        offer = offered(asked.offer.model_dump(), self._labels) if asked.offer else None
        while True:
            found = self._store.slots.next(
                self._worker,
                queues.for_worker(device),
                popped=popped,
                lanes=asked.lanes,
                take=asked.take,
                kinds=asked.kinds,
                offer=offer,
                owner=token_prefix(self._worker),
                labels=self._labels,
                replicas=accepts_only_replicas(asked),
            )
            popped = NO_WAKEUP
            if isinstance(found, str):
                return Work(how=found)
            if isinstance(found, Taken):
                tokens = tuple(token.removeprefix(token_prefix(self._worker)) for _, token in found.jobs)
                return Work(how="take", jobs=found.facts, leases=tokens)
            [facts] = self._store.slots.facts([found.job_id], device)
            if facts:
                return Work(how="hold", jobs=(facts,))

    def lease(self, job: str, token: str, lane: str, **more: Any) -> Grant | str:
        """Lease a range of the job in the worker's slot."""
        if self._store.slots.held(self._worker) != job:
            return "gone"
        lane = f"{self._worker}/{lane}"
        return self._store.leases.lease(job, token, worker=self._worker, lane=lane, labels=self._labels, **more)

    def commit(self, job: str, token: str, upto: int, partial: bytes, **more: Any) -> Merge:
        """Commit a partial result if it belongs to the lease. Finish the job if this is all of a short program.

        The worker would need three more calls to derive the result of a program that took milliseconds.
        """
        lo = more["lo"]
        if more["keep"] and lo is None:
            raise errors.InvalidRequest("lo: is required if the lease continues", field="lo")
        program_partials.check(self._store, job, token, lo, upto, partial, self._worker)
        merge = self._store.leases.commit(job, token, upto, partial, worker=self._worker, **more)
        if merge.finishing and merge.parts == 1 and len(partial) <= _SHORT_PARTIAL and self._finish_program(job):
            return replace(merge, finishing=False)
        return merge

    def _finish_program(self, job: str) -> bool:
        """Derive the result of a program. Return False if the worker must do it."""
        try:
            [job_is] = self._store.slots.described([job])
            if job_is is None or job_is.kind not in registry.names() or registry.program_kind(job_is.kind) is None:
                return False
            return execution.finish(self._store, job, job_is.kind, json.loads(job_is.spec))
        except RedisError as error:  # The units are committed, so the call must not fail
            log.warning("cannot finish a job: %s", describe_for_log(error), extra={"job_id": job})
            return False

    def done1_all(self, finished: Sequence[Finished], device: str) -> list[bool]:
        """Finish small jobs if their marks are valid."""
        mark_validation.check(self._store, [SubmittedMarks(one.job_id, one.marks, one.result) for one in finished])
        mine = [replace(one, token=worker_lease_token(self._worker, one.token)) for one in finished]
        return self._store.leases.done1_all(mine, worker=self._worker, device=device)

    # -- results -------------------------------------------------------------------------------------------------------

    def gather(self, job: str, limit: int, start: int) -> Parts:
        """Return some MiB of committed partials of a job that the worker holds or has computed.

        A lane can commit the last unit of a job when its worker already holds another job; the worker then derives the
        result. For other jobs, and if the job's tenant now requires labels that the host lacks, the response is empty.
        """
        slots = self._store.slots
        holds = slots.held(self._worker) == job or slots.has_computed(self._worker, job)
        if not holds or not self._store.tenants.lets(job, self._labels):
            return Parts(accumulator=None, parts=(), done=0, spec=None, more=False)
        found, more = self._store.results.gather_some(job, limit, start, SOME_BYTES)
        return Parts(accumulator=found.accumulator, parts=found.parts, done=found.done, spec=found.spec, more=more)

    def fold(self, job: str, digest: str, parts: int, accumulator: bytes) -> bool:
        return self._store.results.fold_seen(job, digest, parts, accumulator)

    def finish(self, job: str, digest: str, result: bytes, marks: str) -> bool:
        """Finish a job if its marks are valid."""
        mark_validation.check(self._store, [SubmittedMarks(job, marks, result)])
        return self._store.results.finish_seen(job, digest, result, marks)

    def fail_result(self, job: str, digest: str, error: str, token: str | None) -> bool:
        """Record the failure to derive a job's result, if the digest matches the stored partials."""
        results = self._store.results
        if not results.is_seen(job, digest):
            return False
        return results.abort(job, error) if token is None else results.count_derive_crash(job, token, error)
