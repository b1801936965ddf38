"""The store of a worker that reaches the coordinators alone: the calls of LeaseStore, by HTTP."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from jobs.gathered import Gathered
from jobs.hosts.requirements import Offer
from jobs.models import MAX_UNITS, Device
from jobs.store.server.connection import CoordinatorRejects
from jobs.store.work.bounds import MAX_PACE, MAX_RATE, MAX_REASON
from jobs.store.work.lease_store import FleetCalls, Heard, LeaseCalls, ProfileCalls, Pulse, Row
from jobs.store.work.leases import Finished, Grant, Merge
from jobs.store.work.slots import TAKE, Facts, Held, Taken
from jobs.worker.api.api_calls import Api
from jobs.worker.api.calls import CALLS, MAX_WAIT_SECONDS, Registered

log = logging.getLogger(__name__)

#: Seconds that a part of a recording may take beside the usual.
_PART_SECONDS = 30.0
#: Jobs whose gathered state is remembered.
_REMEMBERED = 64


def _shortened(row: Mapping[str, str | int | float]) -> Row:
    """Return a worker's row with its reasons cut to what the API takes."""
    return {**row, **{name: str(row[name])[:MAX_REASON] for name in ("retired", "refused") if name in row}}


class Remote:
    """Makes calls as they are declared; a method of its own is one that does more."""

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
        """Return what tells this process from others of its name."""
        return str(self._ask("register").born)

    def heartbeat(
        self, worker: str, born: str, facts: Mapping[str, str | int | float], *, leaving: bool = False
    ) -> str:
        return str(self._ask("beat", born, _shortened(facts), leaving=leaving).word)


class ApiSlots(Remote):
    def __init__(self, api: Api, device: Device, poll_seconds: float) -> None:
        super().__init__(api)
        self.device = device
        self._poll_seconds = poll_seconds
        #: Facts of the job that NEXT answered last; they come with its answer.
        self._facts: Facts | None = None

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
        """Do as `Slots.next`, and wait for work; none when none came in time. Coordinators hear the bells.

        The offer counts as long as the call waits.
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

    def facts(self, jobs: Sequence[str], device: str) -> list[Facts | None]:
        """Return the facts of the job that NEXT answered last; None for others."""
        return [self._facts if self._facts and self._facts.job_id == job else None for job in jobs]

    def waiting(self, listened: Sequence[str]) -> list[int]:
        return list(self._ask("waiting", listened))


class ApiLeases(Remote):
    def lease(
        self, job: str, token: str, *, want: int, least: int = 1, lane: str = "0", rate: float = 0.0, **more: Any
    ) -> Grant | str:
        """Do as `Leases.lease`, with numbers cut to what the API takes."""
        want, least, rate = min(want, MAX_UNITS), min(least, MAX_UNITS), min(rate, MAX_RATE)
        lane = lane.rpartition("/")[2]
        answer: Grant | str = self._ask("lease", job, token, want=want, least=least, lane=lane, rate=rate, **more)
        return replace(answer, token=token) if isinstance(answer, Grant) else answer

    def commit(self, job: str, token: str, upto: int, partial: bytes, *, pace: float = 0.0, **more: Any) -> Merge:
        """Do as `Leases.commit`. A partial that the coordinator rejects fails its range with the reason."""
        try:
            done: Merge = self._ask("commit", job, token, upto, partial, pace=min(pace, MAX_PACE), **more)
            return done
        except CoordinatorRejects as error:
            log.error("a partial was rejected: %s", error, extra={"job_id": job})
            self.fail(job, token, str(error))
            return Merge(merged=False)

    def done1_all(self, finished: Sequence[Finished], **more: str) -> list[bool]:
        """Do as `Leases.done1_all`. Where the coordinator rejects the call, each job is sent alone."""
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
    """Gathers, folds and finishes. A call about a result names the digest of what was gathered of it."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self._digests: dict[str, str] = {}

    def gather(self, job: str, limit: int = 256) -> Gathered:
        """Do as `Results.gather`, for a job that this worker holds; else as for a job that is gone."""
        first = more = self._ask("gather", job, limit)
        parts = list(first.parts)
        # What changes between two of these calls has another digest, and nothing is done with it.
        while more.more and len(parts) < limit:
            more = self._ask("gather", job, limit - len(parts), len(parts))
            parts += more.parts
        gathered = Gathered(accumulator=first.accumulator, parts=tuple(parts), done=first.done, spec=first.spec)
        self.remember(job, gathered.digest)
        return gathered

    def remember(self, job: str, digest: str) -> None:
        self._digests.pop(job, None)
        self._digests[job] = digest
        while len(self._digests) > _REMEMBERED:
            del self._digests[next(iter(self._digests))]

    def fold(self, job: str, gathered: Gathered, accumulator: bytes) -> bool:
        return bool(self._ask("fold", job, gathered.digest, len(gathered.parts), accumulator))

    def finish(self, job: str, gathered: Gathered, result: bytes, marks: str = "[]") -> bool:
        """Do as `Results.finish`. A result that the coordinator rejects fails its job with the reason."""
        try:
            return bool(self._ask("finish", job, gathered.digest, result, marks))
        except CoordinatorRejects as error:
            log.error("a result was rejected: %s", error, extra={"job_id": job})
            self.abort(job, str(error))
            return False

    def abort(self, job: str, error: str) -> bool:
        return bool(self._ask("fail_result", job, self._digests.get(job, ""), error))

    def stumble(self, job: str, token: str, error: str) -> bool:
        return bool(self._ask("fail_result", job, self._digests.get(job, ""), error, token))


class ApiStore:
    """The store of leases for the worker of a token."""

    def __init__(self, api: Api, device: Device, poll_seconds: float = MAX_WAIT_SECONDS) -> None:
        self.api = api
        self.fleet = cast(FleetCalls, ApiFleet(api))
        self.slots = ApiSlots(api, device, poll_seconds)
        self.leases = cast(LeaseCalls, ApiLeases(api))
        self.results = ApiResults(api)
        self.profiles = cast(ProfileCalls, Remote(api, _PART_SECONDS))

    def register(self) -> Registered:
        """Return the worker's name, which is its token's, and what tells this process from others of that name."""
        return cast(Registered, self.api.ask(CALLS["register"], {}))

    def pulse(self, pulse: Pulse) -> Heard:
        """Keep a worker's leases, its slot and the worker alive, with one request."""
        call = CALLS["beat"]
        body = call.body(pulse.born, _shortened(pulse.row()), pulse.leases, pulse.slot)
        return cast(Heard, self.api.ask(call, body))

    def drop_idle_connections(self) -> None:
        self.api.disconnect()
