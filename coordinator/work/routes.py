"""Routes of workers: each call of the store of leases that a worker makes, by the same functions.

Every call may be repeated after a lost answer. A worker is who its token is named after; the tokens of its leases are
known to Redis under its name, so that no other worker can name them. docs/lease-protocol.md describes the calls.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fastapi import Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from coordinator.access.asker import Asker, Scope
from coordinator.server import bodies, http
from coordinator.server.http import shown
from coordinator.state import shared_state
from coordinator.work import calls, left_marks, program_partials, queries, schemas
from coordinator.work.calls import Call
from coordinator.work.identity import WorkerDep, owned, owner
from coordinator.work.left_marks import Left
from coordinator.work.polls import NO_BELL, Bell, Polls
from jobs import errors, queues
from jobs.kinds import registry
from jobs.models import Device
from jobs.store import Store
from jobs.store.server.connection import ResponseError
from jobs.store.work.lease_store import Pulse
from jobs.store.work.leases import Finished, Grant

routes = http.router(tag="worker", scope=Scope.WORKER)

_GONE = {"how": "gone", "lo": 0, "hi": 0, "errors": 0}

Body = TypeVar("Body", bound=Call)
Answer = TypeVar("Answer")


async def answered(request: Request, model: type[Body], work: Callable[[Body], dict[str, Any]]) -> Response:
    """Read the body as a call and answer it in a thread."""
    async with _read(request) as body:
        return await run_in_threadpool(_checked, model, body, work)


def _read(request: Request) -> Any:
    return bodies.held(request, calls.MAX_BODY, calls.MAX_VALUES, {}, shared_state(request).work_bodies)


def _checked(model: type[Body], body: Any, work: Callable[[Body], dict[str, Any]]) -> Response:
    asked = http.parsed(model, body)
    if isinstance(body, dict):
        body.clear()  # its texts are as large as what was decoded of them
    try:
        return shown(work(asked))
    except ResponseError as error:
        raise _told(error) from error


def _told(error: ResponseError) -> Exception:
    """Return what a function's error means to the worker; other errors of Redis are not its fault."""
    text = str(error)
    if "COMMIT of" in text:
        return errors.InvalidRequest(f"upto: {text[text.index('COMMIT of') :]}", field="upto")
    if "DONE1 needs" in text:
        return errors.InvalidRequest("jobs: a lease of the whole job ends it, and this is of a part", field="jobs")
    return error


def _store(request: Request) -> Store:
    store: Store = shared_state(request).cluster.store
    return store


# -- the worker -------------------------------------------------------------------------------------------------------


@routes.post("/worker/register", **http.answers(schemas.Registered, takes=calls.Register))
async def register(request: Request, worker: WorkerDep) -> Response:
    """A worker's process begins. The answer names it."""
    store = _store(request)
    return await answered(request, calls.Register, lambda _: {"worker": worker, "born": store.fleet.birth()})


@routes.post("/worker/beat", **http.answers(schemas.Beaten, takes=calls.Beat))
async def beat(request: Request, worker: WorkerDep, asker: http.AskerDep) -> Response:
    """The worker lives, and keeps its leases and its slot: once a second, or they expire after three."""
    store = _store(request)

    def work(asked: calls.Beat) -> dict[str, Any]:
        row = calls.labelled(asked.row.model_dump(exclude_none=True), asker.labels)
        if asked.leaving:
            word = store.fleet.heartbeat(worker, asked.born, row, leaving=True)
            return {"word": word, "leases": [], "follow": [], "attach": [], "profiles": None}
        leases = tuple((one.job_id, owned(worker, one.lease), one.upto) for one in asked.leases)
        pulse = Pulse(worker=worker, born=asked.born, row=lambda: row, leases=leases, slot=asked.slot)
        heard = store.pulse(pulse)
        alive = {one.job_id for one, answer in zip(asked.leases, heard.leases, strict=True) if answer}
        if asked.row.device != "runner":
            alive = set()
        follow, attach = queries.followed(store, alive), queries.attached(store, alive)
        return {
            "word": heard.word,
            "leases": list(heard.leases),
            "follow": follow,
            "attach": attach,
            "profiles": None if heard.profiles is None else [dataclasses.asdict(order) for order in heard.profiles],
        }

    return await answered(request, calls.Beat, work)


@routes.post("/worker/claim", **http.answers(schemas.Claimed, takes=calls.Claim))
async def claim(request: Request, worker: WorkerDep) -> Response:
    """Take GPUs by their UUIDs, all or none, or renew that: for five seconds, a runner for 650; or give them back.

    A GPU worker hears for which priority programs wait for its GPU.
    """
    store = _store(request)

    def work(asked: calls.Claim) -> dict[str, Any]:
        if not asked.keep:
            store.fleet.give_up(asked.all(), worker, asked.priority)
            return {"claimed": False, "wanted": "", "by": ""}
        answer = store.fleet.claim(asked.all(), worker, asked.priority)
        return {"claimed": answer.held, "wanted": answer.wanted, "by": answer.by}

    return await answered(request, calls.Claim, work)


# -- work -------------------------------------------------------------------------------------------------------------


@routes.post("/worker/next", **http.answers(schemas.Work, takes=calls.Next))
async def next_work(request: Request, worker: WorkerDep, asker: http.AskerDep) -> Response:
    """End the worker's slot and give it the best work; wait for some up to `wait_seconds`.

    When the answer is lost, its leases and its slot expire after three seconds, and others get the work.
    """
    store, polls = _store(request), shared_state(request).polls
    async with _read(request) as body:
        asked: calls.Next = await run_in_threadpool(http.parsed, calls.Next, body)
    if (asked.offer is None) == (asked.device == "runner"):
        raise errors.InvalidRequest("offer: a runner gives it, and no other worker", field="offer")
    until = asyncio.get_running_loop().time() + asked.wait_seconds
    bell = NO_BELL
    while True:
        found = await run_in_threadpool(_next, store, worker, asked, bell, asker.labels)
        left = until - asyncio.get_running_loop().time()
        if found["how"] != "none" or left <= 0:
            return shown(found)
        bell = await _bell(request, polls, asked, left, asker)


async def _bell(request: Request, polls: Polls, asked: calls.Next, seconds: float, asker: Asker) -> Bell:
    """Return the bell that the worker answers next, or none.

    ClientDisconnect when it is gone; Unauthorized when its token does not count any more.
    """
    # These queues also get wake-ups for programs, and a runner without a free slot would pop them endlessly.
    listened = () if _takes_replicas_alone(asked) else queues.for_worker(Device(asked.device))
    bell = await polls.wait(listened, seconds)
    try:
        if await request.is_disconnected():
            raise ClientDisconnect
        await shared_state(request).cluster.credentials.require(asker)
    except Exception:
        await polls.put_back(bell)
        raise
    return bell


def _takes_replicas_alone(asked: calls.Next) -> bool:
    """Return True if a runner without a free slot requests work."""
    return asked.device == "runner" and bool(asked.kinds) and registry.endless().issuperset(asked.kinds or ())


def _next(store: Store, worker: str, asked: calls.Next, popped: Bell, labels: Sequence[str]) -> dict[str, Any]:
    device = Device(asked.device)
    offer = calls.offered(asked.offer.model_dump(), labels) if asked.offer else None
    while True:
        found = store.slots.next(
            worker,
            queues.for_worker(device),
            popped=popped,
            lanes=asked.lanes,
            take=asked.take,
            kinds=asked.kinds,
            offer=offer,
            owner=owner(worker),
            labels=labels,
            replicas=_takes_replicas_alone(asked),
        )
        popped = NO_BELL
        if (shaped := queries.work(store, worker, device, found)) is not None:
            return shaped


@routes.post("/worker/waiting", **http.answers(schemas.WaitingCounts, takes=calls.Waiting))
async def waiting(request: Request, worker: WorkerDep) -> Response:
    """How many jobs wait in each queue that a worker of this device listens to."""
    store = _store(request)
    return await answered(request, calls.Waiting, lambda asked: queries.waiting(store, Device(asked.device)))


@routes.post("/worker/leave", **http.answers(schemas.Left, takes=calls.Leave))
async def leave(request: Request, worker: WorkerDep) -> Response:
    """End the worker's slot: its job goes to others."""
    store = _store(request)

    def work(_: calls.Leave) -> dict[str, Any]:
        store.slots.leave(worker)
        return {"ended": True}

    return await answered(request, calls.Leave, work)


@routes.post("/worker/lease", **http.answers(schemas.Granted, takes=calls.Lease))
async def lease(request: Request, worker: WorkerDep, asker: http.AskerDep) -> Response:
    """A range of the job that the worker holds, for a lane; gone for any other job. The same token gets it again."""
    store = _store(request)

    def work(asked: calls.Lease) -> dict[str, Any]:
        if store.slots.held(worker) != asked.job_id:
            return _GONE
        answer = store.leases.lease(
            asked.job_id,
            owned(worker, asked.lease),
            want=asked.want,
            least=asked.least,
            worker=worker,
            lane=f"{worker}/{asked.lane}",
            rate=asked.rate,
            higher=calls.known_queues(asked.higher),
            labels=asker.labels,
        )
        if isinstance(answer, Grant):
            return {"how": "ok", "lo": answer.lo, "hi": answer.hi, "errors": answer.errors}
        return _GONE | {"how": answer}

    return await answered(request, calls.Lease, work)


@routes.post("/worker/commit", **http.answers(schemas.Merged, takes=calls.Commit))
async def commit(request: Request, worker: WorkerDep) -> Response:
    """Store the partial of the units below `upto`, once, and end the lease, or keep what is left of it."""
    store = _store(request)

    def work(asked: calls.Commit) -> dict[str, Any]:
        if asked.keep and asked.lo is None:
            raise errors.InvalidRequest("lo: a lease that goes on needs the partial's first unit", field="lo")
        program_partials.check(
            store, asked.job_id, owned(worker, asked.lease), asked.lo, asked.upto, asked.partial, worker
        )
        done = store.leases.commit(
            asked.job_id,
            owned(worker, asked.lease),
            asked.upto,
            asked.partial,
            ms=asked.ms,
            worker=worker,
            device=asked.device,
            pace=asked.pace,
            device_ms=asked.device_ms,
            joules=asked.joules,
            keep=asked.keep,
            lo=asked.lo,
        )
        return {"merged": done.merged, "finishing": done.finishing, "parts": done.parts}

    return await answered(request, calls.Commit, work)


@routes.post("/worker/return", **http.answers(schemas.Ended, takes=calls.Return))
async def give_back(request: Request, worker: WorkerDep) -> Response:
    """End a lease without a commit: its range goes to others."""
    store = _store(request)

    def work(asked: calls.Return) -> dict[str, Any]:
        token = owned(worker, asked.lease)
        if asked.how == "fail":
            return {"ended": store.leases.fail(asked.job_id, token, asked.error)}
        how = store.leases.crash if asked.how == "crash" else store.leases.release
        return {"ended": how(asked.job_id, token)}

    return await answered(request, calls.Return, work)


@routes.post("/worker/fail-unit", **http.answers(schemas.Ended, takes=calls.FailUnit))
async def fail_unit(request: Request, worker: WorkerDep) -> Response:
    """End a lease whose first unit failed: it waits or is given up, and the units after it are leased next."""
    store = _store(request)

    def work(asked: calls.FailUnit) -> dict[str, Any]:
        failed = store.leases.fail_unit(
            asked.job_id,
            owned(worker, asked.lease),
            asked.error,
            most=asked.most,
            wait_ms=asked.wait_ms,
            row=asked.row,
            unit=asked.unit,
        )
        return {"ended": failed}

    return await answered(request, calls.FailUnit, work)


@routes.post("/worker/split", **http.answers(schemas.Ended, takes=calls.Split))
async def split(request: Request, worker: WorkerDep) -> Response:
    """End a lease at a unit within it; the units from there on go to others."""
    store = _store(request)
    return await answered(
        request,
        calls.Split,
        lambda asked: {"ended": store.leases.split(asked.job_id, owned(worker, asked.lease), asked.at)},
    )


@routes.post("/worker/done", **http.answers(schemas.AllEnded, takes=calls.Done))
async def done(request: Request, worker: WorkerDep) -> Response:
    """Commit and finish small jobs, each of which one lease covers."""
    store = _store(request)

    def work(asked: calls.Done) -> dict[str, Any]:
        left_marks.check(store, [Left(one.job_id, one.marks, one.result) for one in asked.jobs])
        finished = [
            Finished(
                job_id=one.job_id,
                token=owned(worker, one.lease),
                result=one.result,
                ms=one.ms,
                marks=one.marks,
                device_ms=one.device_ms,
            )
            for one in asked.jobs
        ]
        return {"ended": store.leases.done1_all(finished, worker=worker, device=asked.device)}

    return await answered(request, calls.Done, work)


# -- results ----------------------------------------------------------------------------------------------------------


@routes.post("/worker/gather", **http.answers(schemas.Parts, takes=calls.Gather))
async def gather(request: Request, worker: WorkerDep, asker: http.AskerDep) -> Response:
    """The committed parts of the job that the worker holds, or has computed to its end; nothing of any other."""
    store = _store(request)

    def work(asked: calls.Gather) -> dict[str, Any]:
        return queries.gathered(store, worker, asked.job_id, asked.limit, asked.start, asker.labels)

    return await answered(request, calls.Gather, work)


@routes.post("/worker/fold", **http.answers(schemas.Ended, takes=calls.Fold))
async def fold(request: Request, worker: WorkerDep) -> Response:
    """Put an accumulator in the place of what was gathered, of which only who gathered it knows the digest."""
    store = _store(request)

    def work(asked: calls.Fold) -> dict[str, Any]:
        return {"ended": store.results.fold_seen(asked.job_id, asked.digest, asked.parts, asked.accumulator)}

    return await answered(request, calls.Fold, work)


@routes.post("/worker/finish", **http.answers(schemas.Ended, takes=calls.Finish))
async def finish(request: Request, worker: WorkerDep) -> Response:
    """Store the result of what was gathered."""
    store = _store(request)

    def work(asked: calls.Finish) -> dict[str, Any]:
        left_marks.check(store, [Left(asked.job_id, asked.marks, asked.result)])
        return {"ended": store.results.finish_seen(asked.job_id, asked.digest, asked.result, asked.marks)}

    return await answered(request, calls.Finish, work)


@routes.post("/worker/give-up", **http.answers(schemas.Ended, takes=calls.GiveUp))
async def give_up(request: Request, worker: WorkerDep) -> Response:
    """The result of what was gathered cannot be derived: the job fails, or a death of a lane over it is counted."""
    store = _store(request)

    def work(asked: calls.GiveUp) -> dict[str, Any]:
        if not store.results.is_seen(asked.job_id, asked.digest):
            return {"ended": False}
        if asked.lease is None:
            return {"ended": store.results.abort(asked.job_id, asked.error)}
        return {"ended": store.results.stumble(asked.job_id, owned(worker, asked.lease), asked.error)}

    return await answered(request, calls.GiveUp, work)
