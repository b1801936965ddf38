"""The store of a worker that reaches the coordinators alone: the calls of LeaseStore, by HTTP."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from jobs.gathered import Gathered
from jobs.hosts.requirements import Offer
from jobs.models import MAX_UNITS, Device
from jobs.store.profiles import Order, Recording, Reported
from jobs.store.server.connection import CoordinatorRejects
from jobs.store.work.lease_store import Claimed, Heard, Pulse, Row
from jobs.store.work.leases import MAX_UNIT_ERROR, Committed, Finished, Grant
from jobs.store.work.slots import TAKE, Facts, Held, Taken
from jobs.worker.api.api_calls import Api

log = logging.getLogger(__name__)

#: Seconds for which a question for work may wait.
POLL_SECONDS = 20.0
#: Most that the API takes of a lane's units/s, and of its speed over the kind's estimate.
MAX_RATE, MAX_PACE = 1e18, 1e9
#: Characters of what a worker says to people.
_MAX_TEXT = 2000
#: Names of facts: a later coordinator may say more.
_FACTS = frozenset(field.name for field in fields(Facts))
#: Seconds that a part of a recording may take beside the usual.
_PART_SECONDS = 30.0
#: Jobs whose gathered state is remembered.
_REMEMBERED = 64


def packed(content: bytes) -> str:
    """Return bytes as a JSON text can hold them."""
    return base64.b64encode(content).decode()


def unpacked(text: str | None) -> bytes | None:
    """Return the bytes of such a text; None for none."""
    return None if text is None else base64.b64decode(text)


def _parts(answer: Mapping[str, Any]) -> list[bytes]:
    return [base64.b64decode(part) for part in answer["parts"]]


def _shortened(row: Mapping[str, str | int | float]) -> Row:
    """Return a worker's row with its reasons cut to what the API takes."""
    return {**row, **{name: str(row[name])[:_MAX_TEXT] for name in ("retired", "refused") if name in row}}


class ApiFleet:
    def __init__(self, api: Api) -> None:
        self._api = api

    def birth(self) -> str:
        """Return what tells this process from others of its name."""
        return str(self.register()["born"])

    def register(self) -> dict[str, Any]:
        """Return the worker's name, which is its token's, and what tells this process from others of that name."""
        return self._api.call("register", {})

    def heartbeat(
        self, worker: str, born: str, facts: Mapping[str, str | int | float], *, leaving: bool = False
    ) -> str:
        return str(self._api.call("beat", {"born": born, "row": _shortened(facts), "leaving": leaving})["word"])

    def claim(self, gpus: Sequence[str], worker: str, priority: str = "") -> Claimed:
        answer = self._api.call("claim", {"gpus": list(gpus), "keep": True, "priority": priority})
        return Claimed(held=answer["claimed"], wanted=answer["wanted"], by=answer["by"])

    def give_up(self, gpus: Sequence[str], worker: str, priority: str = "") -> None:
        self._api.call("claim", {"gpus": list(gpus), "keep": False, "priority": priority})


class ApiSlots:
    def __init__(self, api: Api, device: Device, poll_seconds: float) -> None:
        self._api = api
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
        body = {
            "device": self.device,
            "lanes": lanes,
            "take": take,
            "kinds": None if kinds is None else dict(kinds),
            "wait_seconds": self._poll_seconds,
            **({} if offer is None else {"offer": dict(offer)}),
        }
        answer = self._api.call("next", body, wait_seconds=self._poll_seconds)
        facts = [Facts(**{name: value for name, value in job.items() if name in _FACTS}) for job in answer["jobs"]]
        if answer["how"] == "hold":
            self._facts = facts[0]
            return Held(job_id=facts[0].job_id)
        if answer["how"] != "take":
            return str(answer["how"])
        pairs = zip(facts, answer["leases"], strict=True)
        return Taken(jobs=tuple((fact.job_id, lease) for fact, lease in pairs), facts=tuple(facts))

    def leave(self, worker: str) -> None:
        self._api.call("leave", {})

    def facts(self, jobs: Sequence[str], device: str) -> list[Facts | None]:
        """Return the facts of the job that NEXT answered last; None for others."""
        return [self._facts if self._facts and self._facts.job_id == job else None for job in jobs]

    def waiting(self, listened: Iterable[str]) -> list[int]:
        counts: list[int] = self._api.call("waiting", {"device": self.device})["waiting"]
        return counts


class ApiLeases:
    def __init__(self, api: Api) -> None:
        self._api = api

    def lease(
        self,
        job: str,
        token: str,
        *,
        want: int,
        least: int = 1,
        worker: str,
        lane: str = "0",
        rate: float = 0.0,
        higher: Iterable[str] = (),
    ) -> Grant | str:
        body = {
            "job_id": job,
            "lease": token,
            "want": min(want, MAX_UNITS),
            "least": min(least, MAX_UNITS),
            "lane": lane.rpartition("/")[2],
            "rate": min(rate, MAX_RATE),
            "higher": list(higher),
        }
        answer = self._api.call("lease", body)
        if answer["how"] == "ok":
            return Grant(token=token, lo=answer["lo"], hi=answer["hi"], errors=answer["errors"])
        return str(answer["how"])

    def commit(
        self,
        job: str,
        token: str,
        upto: int,
        partial: bytes,
        *,
        ms: int,
        worker: str,
        device: str,
        pace: float = 0.0,
        device_ms: int = 0,
        joules: float | None = None,
        keep: bool = False,
        lo: int | None = None,
    ) -> Committed:
        """Do as `Leases.commit`. A partial that the coordinator rejects fails its range with the reason."""
        body = {
            "job_id": job,
            "lease": token,
            "upto": upto,
            "partial": packed(partial),
            "ms": ms,
            "device": device,
            "pace": min(pace, MAX_PACE),
            "device_ms": device_ms,
            "joules": joules,
            "keep": keep,
            "lo": lo,
        }
        try:
            return Committed(**self._api.call("commit", body))
        except CoordinatorRejects as error:
            log.error("a partial was rejected: %s", error, extra={"job_id": job})
            self.fail(job, token, str(error))
            return Committed(merged=False)

    def done1_all(self, finished: Sequence[Finished], *, worker: str, device: str) -> list[bool]:
        """Do as `Leases.done1_all`. Where the coordinator rejects the call, each job is sent alone."""
        if not finished:
            return []
        jobs = [
            {
                "job_id": one.job_id,
                "lease": one.token,
                "result": packed(one.result),
                "ms": one.ms,
                "marks": one.marks,
                "device_ms": one.device_ms,
            }
            for one in finished
        ]
        try:
            ended: list[bool] = self._api.call("done", {"jobs": jobs, "device": device})["ended"]
            return ended
        except CoordinatorRejects as error:
            if len(finished) > 1:
                return [self.done1_all([one], worker=worker, device=device)[0] for one in finished]
            log.error("a result was rejected: %s", error, extra={"job_id": finished[0].job_id})
            self.fail(finished[0].job_id, finished[0].token, str(error))
            return [False]

    def release(self, job: str, token: str) -> bool:
        return self._return(job, token, "release")

    def crash(self, job: str, token: str) -> bool:
        return self._return(job, token, "crash")

    def fail(self, job: str, token: str, error: str) -> bool:
        return self._return(job, token, "fail", error[:_MAX_TEXT])

    def fail_unit(
        self, job: str, token: str, error: str, *, most: int, wait_ms: int, row: str = "", unit: int | None = None
    ) -> bool:
        body = {
            "job_id": job,
            "lease": token,
            "unit": unit,
            "error": error[:MAX_UNIT_ERROR],
            "most": most,
            "wait_ms": wait_ms,
            "row": row,
        }
        return bool(self._api.call("fail-unit", body)["ended"])

    def split(self, job: str, token: str, at: int) -> bool:
        return bool(self._api.call("split", {"job_id": job, "lease": token, "at": at})["ended"])

    def _return(self, job: str, token: str, how: str, error: str = "") -> bool:
        body = {"job_id": job, "lease": token, "how": how, "error": error}
        return bool(self._api.call("return", body)["ended"])


class ApiResults:
    """Gathers, folds and finishes. A call about a result names the digest of what was gathered of it."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._digests: dict[str, str] = {}

    def gather(self, job: str, limit: int = 256) -> Gathered:
        """Do as `Results.gather`, for a job that this worker holds; else as for a job that is gone."""
        answer = self._api.call("gather", {"job_id": job, "limit": limit})
        parts = _parts(answer)
        # What changes between two of these calls has another digest, and nothing is done with it.
        more = answer
        while more["more"] and len(parts) < limit:
            more = self._api.call("gather", {"job_id": job, "limit": limit - len(parts), "start": len(parts)})
            parts += _parts(more)
        gathered = Gathered(
            accumulator=unpacked(answer["accumulator"]),
            parts=tuple(parts),
            done=answer["done"],
            spec=unpacked(answer["spec"]),
        )
        self.remember(job, gathered.digest)
        return gathered

    def remember(self, job: str, digest: str) -> None:
        self._digests.pop(job, None)
        self._digests[job] = digest
        while len(self._digests) > _REMEMBERED:
            del self._digests[next(iter(self._digests))]

    def fold(self, job: str, gathered: Gathered, accumulator: bytes) -> bool:
        body = {
            "job_id": job,
            "digest": gathered.digest,
            "parts": len(gathered.parts),
            "accumulator": packed(accumulator),
        }
        return bool(self._api.call("fold", body)["ended"])

    def finish(self, job: str, gathered: Gathered, result: bytes, marks: str = "[]") -> bool:
        """Do as `Results.finish`. A result that the coordinator rejects fails its job with the reason."""
        body = {"job_id": job, "digest": gathered.digest, "result": packed(result), "marks": marks}
        try:
            return bool(self._api.call("finish", body)["ended"])
        except CoordinatorRejects as error:
            log.error("a result was rejected: %s", error, extra={"job_id": job})
            self.abort(job, str(error))
            return False

    def abort(self, job: str, error: str) -> bool:
        return self._give_up(job, error)

    def stumble(self, job: str, token: str, error: str) -> bool:
        return self._give_up(job, error, token)

    def _give_up(self, job: str, error: str, lease: str | None = None) -> bool:
        body = {"job_id": job, "digest": self._digests.get(job, ""), "error": error[:_MAX_TEXT], "lease": lease}
        return bool(self._api.call("give-up", body)["ended"])


class ApiProfiles:
    def __init__(self, api: Api) -> None:
        self._api = api

    def report(self, profile_id: str, worker: str, devices: Sequence[str], recordings: Sequence[Recording]) -> Reported:
        body = {"profile_id": profile_id, "devices": list(devices), "recordings": [asdict(one) for one in recordings]}
        answer = self._api.call("profile", body)
        wanted = {str(name): str(what) for name, what in answer["wanted"].items()}
        return Reported(
            state=str(answer["state"]), now=int(answer["now"]), devices=tuple(answer["devices"]), wanted=wanted
        )

    def add_part(self, profile_id: str, worker: str, recording: str, number: int, data: bytes) -> str:
        body = {"profile_id": profile_id, "recording": recording, "number": number, "data": packed(data)}
        return str(self._api.call("profile-part", body, slower_seconds=_PART_SECONDS)["how"])


def _orders(rows: Sequence[Mapping[str, Any]] | None) -> tuple[Order, ...] | None:
    """Return what a coordinator says of profiles; None where it cannot tell."""
    if rows is None:
        return None
    return tuple(
        Order(
            profile_id=str(row["profile_id"]),
            state=str(row["state"]),
            hz=int(row["hz"]),
            until=int(row["until"]),
            hosts=tuple(map(str, row["hosts"])),
        )
        for row in rows
    )


class ApiStore:
    """The store of leases for the worker of a token."""

    def __init__(self, api: Api, device: Device, poll_seconds: float = POLL_SECONDS) -> None:
        self.api = api
        self.fleet = ApiFleet(api)
        self.slots = ApiSlots(api, device, poll_seconds)
        self.leases = ApiLeases(api)
        self.results = ApiResults(api)
        self.profiles = ApiProfiles(api)

    def pulse(self, pulse: Pulse) -> Heard:
        """Keep a worker's leases, its slot and the worker alive, with one request."""
        leases = [{"job_id": job, "lease": token, "upto": upto} for job, token, upto in pulse.leases]
        body = {"born": pulse.born, "row": _shortened(pulse.row()), "leases": leases, "slot": pulse.slot}
        answer = self.api.call("beat", body)
        attach = tuple((str(job), int(unit), str(name)) for job, unit, name in answer["attach"])
        return Heard(
            leases=tuple(answer["leases"]),
            word=str(answer["word"]),
            follow=tuple(answer["follow"]),
            attach=attach,
            profiles=_orders(answer["profiles"]),
        )

    def drop_idle_connections(self) -> None:
        self.api.disconnect()
