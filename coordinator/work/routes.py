"""Worker API routes, one for each call that `jobs.worker.api.calls` declares.

Each call can be repeated after a lost response. A worker is identified by the name of its token. Redis stores the
tokens of its leases with this name as prefix, so other workers cannot use them. See docs/lease-protocol.md.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from coordinator.access.principal import Principal, Scope
from coordinator.server import bodies, http
from coordinator.state import shared_state
from coordinator.work.answers import Answers, accepts_only_replicas
from coordinator.work.identity import WorkerDep
from coordinator.work.polls import NO_WAKEUP, Polls, Wakeup
from jobs import errors, queues
from jobs.models import Device
from jobs.store.server.connection import ResponseError
from jobs.worker.api.calls import CALLS, Call

#: Maximum size of a request body in bytes.
MAX_BODY = 64 << 20
#: Maximum number of JSON values in a request body, not counting base64 texts.
MAX_VALUES = 150_000
#: Maximum total size in bytes of the request bodies being read or handled.
MAX_MEMORY = 72 << 20

routes = http.router(tag="worker", scope=Scope.WORKER)


def _read(request: Request) -> Any:
    return bodies.open_json(request, MAX_BODY, MAX_VALUES, {}, shared_state(request).worker_body_memory)


def _parse_call(call: Call, body: Any) -> Any:
    asked = http.parse(call.takes, body)
    if isinstance(body, dict):
        body.clear()  # free the texts, which are as large as the decoded values
    return asked


def _serialize_answer(call: Call, answer: Any) -> Response:
    given = call.gives.model_construct(answer=answer)
    return Response(given.model_dump_json(), media_type="application/json")


def _answers(request: Request, worker: str, principal: Principal) -> Answers:
    return Answers(shared_state(request).cluster.store, worker, principal.labels)


def _convert_error(error: ResponseError) -> Exception:
    """Convert an error of a Redis function to an API error. Return other errors of Redis unchanged."""
    text = str(error)
    if "COMMIT of" in text:
        return errors.InvalidRequest(f"upto: {text[text.index('COMMIT of') :]}", field="upto")
    if "DONE1 needs" in text:
        return errors.InvalidRequest(
            "finished: requires a lease of the whole job, but this lease covers a part", field="finished"
        )
    return error


def _handle_call(call: Call, body: Any, answers: Answers) -> Response:
    asked = _parse_call(call, body)
    try:
        return _serialize_answer(call, answers.answer(call, asked))
    except ResponseError as error:
        raise _convert_error(error) from error


def _endpoint(call: Call) -> Callable[..., Awaitable[Response]]:
    """Return a route function that parses a call and handles it in a thread."""

    async def answer(request: Request, worker: WorkerDep, principal: http.PrincipalDep) -> Response:
        async with _read(request) as body:
            return await run_in_threadpool(_handle_call, call, body, _answers(request, worker, principal))

    return answer


# -- long polling for work ---------------------------------------------------------------------------------------------


async def next_work(request: Request, worker: WorkerDep, principal: http.PrincipalDep) -> Response:
    """Respond with leases as soon as there is work, or with none after `wait_seconds`."""
    call, answers = CALLS["next"], _answers(request, worker, principal)
    async with _read(request) as body:
        asked = await run_in_threadpool(_parse_call, call, body)
    if (asked.offer is None) == (asked.device == "runner"):
        raise errors.InvalidRequest("offer: is required for runners and not allowed for other workers", field="offer")
    until = asyncio.get_running_loop().time() + asked.wait_seconds
    wakeup = NO_WAKEUP
    while True:
        found = await run_in_threadpool(answers.next, asked, wakeup)
        left = until - asyncio.get_running_loop().time()
        if found.how != "none" or left <= 0:
            return _serialize_answer(call, found)
        wakeup = await _wait_for_wakeup(request, shared_state(request).polls, asked, left, principal)


async def _wait_for_wakeup(request: Request, polls: Polls, asked: Any, seconds: float, principal: Principal) -> Wakeup:
    """Wait for a wake-up signal for the worker. Return NO_WAKEUP after `seconds`, or if pending work has no signal.

    Raises ClientDisconnect if the worker has disconnected, and Unauthorized if its token is no longer valid.
    """
    # A runner without a free slot listens to no queue, because it would pop wake-ups for programs endlessly.
    listened = () if accepts_only_replicas(asked) else queues.for_worker(Device(asked.device))
    wakeup = await polls.wait(listened, seconds)
    try:
        if await request.is_disconnected():
            raise ClientDisconnect
        await shared_state(request).cluster.credentials.require_valid(principal)
    except Exception:
        await polls.put_back(wakeup)
        raise
    return wakeup


for _each in CALLS.values():
    routes.add_api_route(
        f"/worker/{_each.path}",
        next_work if _each.name == "next" else _endpoint(_each),
        methods=["POST"],
        name=_each.name,
        description=inspect.getdoc(_each.takes),
        **http.describe_response(_each.gives, body=_each.takes),
    )
