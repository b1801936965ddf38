"""Implementation of LeaseStore over the worker API, for workers that reach only coordinators."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from jobs.hosts.requirements import Offer
from jobs.models import MAX_UNITS, Device
from jobs.partial_reader import GatheredPartials
from jobs.store.server.connection import CoordinatorRejects
from jobs.store.work.bounds import MAX_PACE, MAX_RATE, MAX_REASON
from jobs.store.work.lease_store import FleetCalls, Heard, LeaseCalls, ProfileCalls, Pulse, Row
from jobs.store.work.leases import Finished, Grant, Merge
from jobs.store.work.slots import TAKE, Held, JobFacts, Taken
from jobs.worker.api.api_calls import Api
from jobs.worker.api.calls import CALLS, MAX_WAIT_SECONDS, Registered

log = logging.getLogger(__name__)

#: Time in seconds to add to the usual timeout for uploading a part of a recording.
_PART_SECONDS = 30.0
#: Maximum number of jobs for which the digest of the gathered partial results is remembered.
_REMEMBERED = 64


def _truncate_reasons(row: Mapping[str, str | int | float]) -> Row:
    """Truncate the reasons in a worker's record to the maximum length of the API."""
    return {**row, **{name: str(row[name])[:MAX_REASON] for name in ("retired", "refused") if name in row}}


class Remote:
    """Sends the calls in `calls.CALLS` to the worker API. Subclasses define only calls that need extra work."""

    def __init__(self, api: Api, slower_seconds: float = 0.0) -> None:
        self._api = api
        self._slower_seconds = slower_seconds

    def __getattr__(self, name: str) -> Any:
        if name not in CALLS:
            raise AttributeError(name)
        return lambda *given, **named: self._ask(name, *given, **named)

    def _ask(self, name: str, *given: Any, **named: Any) -> Any:
        call = CALLS[name]
        return self._api.ask(call, call.body(*given, **named), slower_seconds=self._slower_seconds)


class ApiFleet(Remote):
    def birth(self) -> str:
        """Return the identifier of this process, which differs from other processes with the same worker name."""
        return str(self._ask("register").born)

    def heartbeat(
        self, worker: str, born: str, facts: Mapping[str, str | int | float], *, leaving: bool = False
    ) -> str:
        return str(self._ask("heartbeat", born, _truncate_reasons(facts), leaving=leaving).word)


class ApiSlots(Remote):
    def __init__(self, api: Api, device: Device, poll_seconds: float) -> None:
        super().__init__(api)
        self.device = device
        self._poll_seconds = poll_seconds
        #: Description of the job in the last response to `next`.
        self._facts: JobFacts | None = None

    def next(
        self,
        worker: str,
        queues: Iterable[str],
        *,
        popped: str = "",
        lanes: int = 1,
        take: int = TAKE,
        kinds: Mapping[str, int] | None = None,
        offer: Offer | None = None,
    ) -> Held | Taken | str:
        """Request work from the coordinator, and wait for work for up to `poll_seconds`.

        The coordinator receives the wake-ups. The offer stays valid while the request waits.
        """
        call, known = CALLS["next"], None if kinds is None else dict(kinds)
        body = call.body(self.device, lanes, take, known, self._poll_seconds, offer)
        work = self._api.ask(call, body, wait_seconds=self._poll_seconds)
        if work.how == "hold":
            [self._facts] = work.jobs
            return Held(job_id=work.jobs[0].job_id)
        if work.how != "take":
            return str(work.how)
        pairs = zip(work.jobs, work.leases, strict=True)
        return Taken(jobs=tuple((facts.job_id, lease) for facts, lease in pairs), facts=work.jobs)

    def leave(self, worker: str) -> None:
        self._ask("leave", worker)

    def facts(self, jobs: Sequence[str], device: str) -> list[JobFacts | None]:
        """Return the description of the job in the last response to `next`, and None for other jobs."""
        return [self._facts if self._facts and self._facts.job_id == job else None for job in jobs]

    def waiting(self, listened: Sequence[str]) -> list[int]:
        return list(self._ask("waiting", listened))

    def unsupported(self) -> list[str]:
        return list(self._ask("unsupported"))


class ApiLeases(Remote):
    def lease(
        self, job: str, token: str, *, want: int, least: int = 1, lane: str = "0", rate: float = 0.0, **more: Any
    ) -> Grant | str:
        """Request a lease. Limit the numbers in the request to the maximum values of the API."""
        want, least, rate = min(want, MAX_UNITS), min(least, MAX_UNITS), min(rate, MAX_RATE)
        lane = lane.rpartition("/")[2]
        answer: Grant | str = self._ask("lease", job, token, want=want, least=least, lane=lane, rate=rate, **more)
        return replace(answer, token=token) if isinstance(answer, Grant) else answer

    def commit(self, job: str, token: str, upto: int, partial: bytes, *, pace: float = 0.0, **more: Any) -> Merge:
        """Commit a lease. If the coordinator rejects the partial result, report the range as failed."""
        try:
            done: Merge = self._ask("commit", job, token, upto, partial, pace=min(pace, MAX_PACE), **more)
            return done
        except CoordinatorRejects as error:
            log.error("a partial result was rejected: %s", error, extra={"job_id": job})
            self.fail(job, token, str(error))
            return Merge(merged=False)

    def done1_all(self, finished: Sequence[Finished], **more: str) -> list[bool]:
        """Finish small jobs in one call. If the coordinator rejects the call, send each job separately."""
        if not finished:
            return []
        try:
            return list(self._ask("done1_all", finished, **more))
        except CoordinatorRejects as error:
            if len(finished) > 1:
                return [self.done1_all([one], **more)[0] for one in finished]
            log.error("a result was rejected: %s", error, extra={"job_id": finished[0].job_id})
            self.fail(finished[0].job_id, finished[0].token, str(error))
            return [False]


class ApiResults(Remote):
    """Merges partial results and finishes jobs through the worker API.

    Calls identify the gathered partial results by their digest.
    """

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self._digests: dict[str, str] = {}

    def gather(self, job: str, limit: int = 256) -> GatheredPartials:
        """Return the partial results of a job. A job that this worker does not hold counts as deleted."""
        first = more = self._ask("gather", job, limit)
        parts = list(first.parts)
        # If the partial results change between two calls, the digest does not match, and later calls are rejected.
        while more.more and len(parts) < limit:
            more = self._ask("gather", job, limit - len(parts), len(parts))
            parts += more.parts
        gathered = GatheredPartials(accumulator=first.accumulator, parts=tuple(parts), done=first.done, spec=first.spec)
        self.remember(job, gathered.digest)
        return gathered

    def remember(self, job: str, digest: str) -> None:
        self._digests.pop(job, None)
        self._digests[job] = digest
        while len(self._digests) > _REMEMBERED:
            del self._digests[next(iter(self._digests))]

    def fold(self, job: str, gathered: GatheredPartials, accumulator: bytes) -> bool:
        return bool(self._ask("fold", job, gathered.digest, len(gathered.parts), accumulator))

    def finish(self, job: str, gathered: GatheredPartials, result: bytes, marks: str = "[]") -> bool:
        """Finish a job. If the coordinator rejects the result, the job fails with the reason."""
        try:
            return bool(self._ask("finish", job, gathered.digest, result, marks))
        except CoordinatorRejects as error:
            log.error("a result was rejected: %s", error, extra={"job_id": job})
            self.abort(job, str(error))
            return False

    def abort(self, job: str, error: str) -> bool:
        return bool(self._ask("fail_result", job, self._digests.get(job, ""), error))

    def count_derive_crash(self, job: str, token: str, error: str) -> bool:
        return bool(self._ask("fail_result", job, self._digests.get(job, ""), error, token))


class ApiStore:
    """Store of leases that a worker reaches through the worker API. The token names the worker."""

    def __init__(self, api: Api, device: Device, poll_seconds: float = MAX_WAIT_SECONDS) -> None:
        self.api = api
        self.fleet = cast(FleetCalls, ApiFleet(api))
        self.slots = ApiSlots(api, device, poll_seconds)
        self.leases = cast(LeaseCalls, ApiLeases(api))
        self.results = ApiResults(api)
        self.profiles = cast(ProfileCalls, Remote(api, _PART_SECONDS))

    def register(self) -> Registered:
        """Return the worker's name, taken from its token, and the identifier of this process."""
        return cast(Registered, self.api.ask(CALLS["register"], {}))

    def pulse(self, pulse: Pulse) -> Heard:
        """Send one heartbeat, which extends the worker's leases and its slot."""
        call = CALLS["heartbeat"]
        body = call.body(pulse.born, _truncate_reasons(pulse.row()), pulse.leases, pulse.slot)
        return cast(Heard, self.api.ask(call, body))

    def drop_idle_connections(self) -> None:
        self.api.disconnect()
