"""Implement cluster.proto by requests to the HTTP API in this process, so that both APIs have the same rules."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, NoReturn
from urllib.parse import urlencode

import grpc
from google.protobuf.message import Message
from starlette.types import ASGIApp

from coordinator.rpc import cluster_pb2 as messages
from coordinator.rpc.asgi_client import Answer, Request, send_request
from coordinator.rpc.frames import Frame, Frames
from coordinator.server import patterns
from coordinator.server.http import serialize_problem
from jobs import errors
from threads_protocol.states import TERMINAL

#: Maximum number of concurrent streams per coordinator.
MAX_STREAMS = 256
#: Metadata that is forwarded to the API as HTTP headers.
_PASSED = ("authorization", "traceparent", "tracestate", "x-forwarded-for")
#: Maximum length of an error message in characters.
_MAX_DETAIL = 1000
#: Maximum size in bytes of problem details in a trailer. Clients accept 8 KiB of metadata.
_MAX_TRAILER = 4096
_INTERVALS = (1.0, 60.0)
_JOB_ID = re.compile(patterns.JOB_ID)
_CODES = {
    HTTPStatus.BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    HTTPStatus.UNPROCESSABLE_ENTITY: grpc.StatusCode.INVALID_ARGUMENT,
    HTTPStatus.UNAUTHORIZED: grpc.StatusCode.UNAUTHENTICATED,
    HTTPStatus.FORBIDDEN: grpc.StatusCode.PERMISSION_DENIED,
    HTTPStatus.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    HTTPStatus.REQUEST_TIMEOUT: grpc.StatusCode.DEADLINE_EXCEEDED,
    HTTPStatus.CONFLICT: grpc.StatusCode.FAILED_PRECONDITION,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    HTTPStatus.TOO_MANY_REQUESTS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    HTTPStatus.SERVICE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    HTTPStatus.INSUFFICIENT_STORAGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class Service:
    """Answers gRPC calls with the application in this process.

    A call's cancellation or deadline aborts its HTTP request.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._streams = 0

    # -- unary calls -----------------------------------------------------------------------------------------------

    async def submit(self, request: Any, context: Any) -> Message:
        body = {name: _plain(request, name) for name in _BODY if _is_given(request, name)}
        if request.parameters_json:
            body["parameters"] = await self._parse(request.parameters_json, context)
        row = await self._ask(context, "POST", "/api/submit", _waiting(request), json.dumps(body).encode())
        result = json.dumps(row["result"], ensure_ascii=False) if "result" in row else None
        return messages.SubmitReply(
            job_id=row["job_id"],
            status=row["status"],
            estimated_wait_seconds=row["estimated_wait_seconds"],
            notes=row["notes"],
            result_json=result,
        )

    async def get_job(self, request: Any, context: Any) -> Message:
        path = f"/api/jobs/{await self._job_id(request, context)}"
        return _job(await self._ask(context, "GET", path, _waiting(request)))

    async def get_result(self, request: Any, context: Any) -> Message:
        row = await self._ask(context, "GET", f"/api/jobs/{await self._job_id(request, context)}/result")
        text = json.dumps(row["result"], ensure_ascii=False)
        return messages.Result(job_id=row["job_id"], type=row["type"], result_json=text)

    async def cancel(self, request: Any, context: Any) -> Message:
        job_id = await self._job_id(request, context)
        return _job(await self._ask(context, "POST", f"/api/jobs/{job_id}/cancel"))

    async def get_status(self, _request: Any, context: Any) -> Message:
        row = await self._ask(context, "GET", "/api/status")
        return messages.Status(status_json=json.dumps(row, ensure_ascii=False))

    # -- streams ----------------------------------------------------------------------------------------------------

    async def stream_events(self, request: Any, context: Any) -> AsyncIterator[Message]:
        one_job = bool(request.job_id)
        path = f"/api/jobs/{await self._job_id(request, context)}/events" if one_job else "/api/events"
        query = {"topics": request.topics} if request.topics and not one_job else {}
        headers = [(b"last-event-id", request.after.encode())] if request.after else []
        last = Frame("", "", "")
        async with self._streaming(context), self._send_request(context, "GET", path, query, headers=headers) as answer:
            await context.send_initial_metadata(())  # the stream has started, even if no event follows for a long time
            frames = Frames()
            async for piece in answer.pieces():
                for last in frames.take(piece):
                    yield messages.Event(id=last.id, type=last.type, data_json=last.data)
            if not one_job or (answer.status == HTTPStatus.OK and last.type not in TERMINAL):
                words = "the stream ended; call again with the ID of the last event as `after`"
                await context.abort(grpc.StatusCode.UNAVAILABLE, words)

    async def stream_metrics(self, request: Any, context: Any) -> AsyncIterator[Message]:
        interval = request.interval_seconds or _INTERVALS[0]
        if not _INTERVALS[0] <= interval <= _INTERVALS[1]:
            await self._refuse(context, _invalid("interval_seconds", f"must be 1 to 60; got {interval:g}"))
        seconds = max(1, round(interval))
        # The step divides the interval evenly, so that the newest sample is the last complete bin.
        query = {"names": request.names or "*", "seconds": 3 * seconds, "points": 3}
        async with self._streaming(context):
            told = 0
            while True:
                row = await self._ask(context, "GET", "/api/history", query)
                whole = [place for place, time in enumerate(row["times"]) if time + row["step_seconds"] <= row["to"]]
                if whole and row["times"][whole[-1]] > told:
                    told = row["times"][whole[-1]]
                    yield _sample(told, row["series"], whole[-1])
                await asyncio.sleep(interval)

    @asynccontextmanager
    async def _streaming(self, context: Any) -> AsyncIterator[None]:
        if self._streams >= MAX_STREAMS:
            words = f"{MAX_STREAMS} streams are open at this coordinator; call another one, or try again later"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, words)
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    # -- requests to the HTTP API --------------------------------------------------------------------------------------

    async def _ask(
        self, context: Any, method: str, path: str, query: Mapping[str, Any] | None = None, body: bytes = b""
    ) -> Any:
        """Return the API's response. An API error ends the call with the same message."""
        async with self._send_request(context, method, path, query, body) as answer:
            return json.loads(await answer.body())

    @asynccontextmanager
    async def _send_request(
        self,
        context: Any,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: bytes = b"",
        headers: list[tuple[bytes, bytes]] | None = None,
    ) -> AsyncIterator[Answer]:
        given = [*list_headers(context), *(headers or ())]
        if body:
            given += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        request = Request(
            method=method,
            path=path,
            query=urlencode(query or {}).encode(),
            headers=given,
            body=body,
            caller=_address(context.peer()),
        )
        async with send_request(self._app, request) as answer:
            if answer.status >= HTTPStatus.BAD_REQUEST:
                await _end(context, answer.status, await answer.body())
            if back := answer.headers.get(b"traceparent"):
                await context.send_initial_metadata((("traceparent", back.decode()),))
            yield answer

    async def _job_id(self, request: Any, context: Any) -> str:
        """Return the request's job ID. Raise an error if the ID contains characters that would change the URL path."""
        job_id: str = request.job_id
        if not _JOB_ID.fullmatch(job_id):
            await self._refuse(context, _invalid("job_id", "must be a job ID: 1 to 64 letters, digits, dashes or _"))
        return job_id

    async def _parse(self, text: str, context: Any) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            await self._refuse(context, _invalid("parameters_json", f"is not valid JSON: {error}"))

    async def _refuse(self, context: Any, error: errors.ClusterError) -> NoReturn:
        await _end(context, error.status, json.dumps(serialize_problem(error)).encode())


def _invalid(field: str, words: str) -> errors.InvalidRequest:
    return errors.InvalidRequest(f"{field}: {words}", field=field)


async def _end(context: Any, status: int, body: bytes) -> NoReturn:
    """End the call with the API's error message, and with the problem details as the trailer problem-bin."""
    known = json.loads(body) if body.startswith(b"{") else {}
    code = _CODES.get(HTTPStatus(status), grpc.StatusCode.INTERNAL)
    trailers = (("problem-bin", body),) if len(body) <= _MAX_TRAILER else ()
    await context.abort(code, str(known.get("detail", f"status {status}"))[:_MAX_DETAIL], trailers)
    raise AssertionError("abort raises")


#: Fields of a submission that have the same names in the HTTP API.
_BODY = (
    "type",
    "priority",
    "device",
    "gpu_preferred",
    "idempotency_key",
    "max_running",
    "hold",
    "timeout_seconds",
    "notify",
    "after",
    "after_any",
    "name",
    "tags",
)


def _is_given(request: Any, name: str) -> bool:
    if name in ("max_running", "timeout_seconds"):
        return bool(request.HasField(name))
    return bool(getattr(request, name))


def _plain(request: Any, name: str) -> Any:
    value = getattr(request, name)
    return list(value) if name in ("after", "after_any", "tags") else value


def _waiting(request: Any) -> dict[str, float]:
    return {"wait_seconds": request.wait_seconds} if request.wait_seconds else {}


def _job(row: Mapping[str, Any]) -> Message:
    return messages.Job(
        job_id=row["job_id"],
        type=row["type"],
        state=row["state"],
        progress=row["progress"],
        error=row["error"] or "",
        row_json=json.dumps(row, ensure_ascii=False),
    )


def _sample(time: int, series: Mapping[str, Any], place: int) -> Message:
    means = {name: bins["mean"][place] for name, bins in series.items()}
    return messages.Sample(time=time, values={name: mean for name, mean in means.items() if mean is not None})


def list_headers(context: Any) -> list[tuple[bytes, bytes]]:
    """Return the call's metadata as HTTP headers. Sets the host to localhost, because browsers cannot call gRPC."""
    given = [(name, value) for name, value in context.invocation_metadata() or () if name in _PASSED]
    return [(b"host", b"localhost"), *((name.encode(), _octets(value)) for name, value in given)]


def _octets(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _address(peer: str) -> tuple[str, int]:
    """Parse a peer such as ipv4:127.0.0.1:5 or ipv6:%5B::1%5D:5 into address and port.

    Returns empty values for other peers.
    """
    kind, _, place = peer.partition(":")
    host, _, port = place.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdecimal():
        return "", 0
    return host.removeprefix("%5B").removesuffix("%5D").strip("[]"), int(port)
