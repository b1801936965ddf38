"""Forward requests to replicas. A request is sent to a second replica if the first one fails before its first byte."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import httpx
from fastapi import Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from coordinator.server import http
from coordinator.services.gateway import affinity, error_forms, event_repairs, openai, tunnels
from coordinator.services.gateway.frames import Frames
from coordinator.services.gateway.openai import BadUpstream, TooLate
from coordinator.services.gateway.routing import Route, Routes
from coordinator.services.gateway.shares import SMALL, Shares
from coordinator.services.usage_statistics import Exchange
from engines import calls
from jobs import errors
from jobs.store.server import connection
from jobs.store.services import Replica

log = logging.getLogger(__name__)

#: Connect timeout of a replica in seconds.
_CONNECT_SECONDS = 3.0
#: Interval in seconds between comments on a stream whose service is waking up.
COMMENT_SECONDS = 5.0
_COMMENT = b": waiting\n\n"
#: Maximum size in bytes of a response that is not a stream.
MAX_ANSWER = 32 << 20
#: Memory limits in bytes for large unanswered requests: for all tenants, and per tenant.
#: Memory limits in bytes for large responses: for all tenants, and per tenant.
_REQUESTS, _ANSWERS = (96 << 20, 64 << 20), (64 << 20, 40 << 20)
#: Time limit in seconds for sending a whole response.
#: Number of bytes per send.
TAKE_SECONDS, _PIECE = 300.0, 64 << 10
#: Content types that are forwarded. Other responses become binary, so that no browser displays them as a page.
_TYPES = ("application/json", "text/plain", "text/event-stream")
#: Status codes with which engines reject unknown calls.
_NO_CALL = (404, 405, 501)
#: Advice for finding an engine that supports the call.
_SEE = "GET /v1/models lists the capabilities of each model; docs/services.md says which engine supports which calls"
#: Status codes of a replica after which the request is sent to another replica.
_TRY_ANOTHER = (502, 503)
_ATTEMPTS = 2
#: Content encoding requested from replicas, because a few compressed KiB can expand to gigabytes.
_PLAIN = "identity"
#: Errors of a broken replica, including a redirect to an invalid URL.
BROKEN = (httpx.TransportError, httpx.StreamError, httpx.InvalidURL)


#: Context manager of a sent request. Yields a response after its headers were received.
Answering: TypeAlias = contextlib.AbstractAsyncContextManager[httpx.Response]


class _Another(Exception):
    """The replica failed before it responded, so the request can be sent to another replica."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A client's request in the form that is sent to replicas."""

    tenant: str
    path: str
    model: str
    content: bytes = field(repr=False)
    #: Digest of the prompt prefix, shared by requests with the same prefix.
    prefix: bytes
    streams: bool
    #: True if the client did not request token counts at the end of the stream.
    hide_usage: bool


def question(tenant: str, path: str, body: Mapping[str, Any]) -> Question:
    """Build the request for replicas. Raises InvalidRequest for a body without a model."""
    streams, options = body.get("stream") is True, body.get("stream_options")
    # Responses and messages always contain token counts.
    counts = path not in (calls.CHAT, calls.COMPLETIONS) or (isinstance(options, dict) and options.get("include_usage"))
    hides = streams and not counts
    sent = dict(body)
    if hides:
        sent["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
    return Question(
        tenant=tenant,
        path=path,
        model=openai.model(body),
        prefix=affinity.prefix(tenant, path, sent),
        content=json.dumps(sent, ensure_ascii=False, separators=(",", ":")).encode(errors="replace"),
        streams=streams,
        hide_usage=hides,
    )


class Gateway:
    """Forwards requests to replicas. Use it from one event loop."""

    def __init__(self, routes: Routes, ended: Callable[[Exchange], None] = lambda exchange: None) -> None:
        self.routes = routes
        self.requests, self.answers = Shares(*_REQUESTS), Shares(*_ANSWERS)
        self._parsing = asyncio.Lock()
        self._ended = ended
        self._http = tunnels.through(routes.tunnels)

    def turn(self, size: int) -> contextlib.AbstractAsyncContextManager[None]:
        """Wait until no other large request is being parsed.

        Small requests do not wait, and are handled between large ones.
        """
        return self._parsing if size > SMALL else contextlib.nullcontext()

    async def close(self) -> None:
        """Close the connections to replicas."""
        await self._http.aclose()
        await self.routes.close()

    async def answer(self, request: Request, question: Question, room: AsyncExitStack) -> Response:
        """Forward a request, and return its response. Raises subclasses of ClusterError.

        `room` holds the memory reservation of the request until the response starts.
        """
        route = await self.routes.find(question.tenant, question.model)
        if not route.answers(question.path):
            raise openai.LacksCall(f"{_engine_of(route)} does not support {openai.PREFIX}{question.path}; {_SEE}")
        name, service = route.service.name, route.service.service_id
        exchange = Exchange(tenant=question.tenant, model=name, service=service, began=time.monotonic())
        gone = asyncio.ensure_future(_gone(request))
        asked = asyncio.ensure_future(_Call(self, route, exchange, question, room).response())
        try:
            await asyncio.wait({gone, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                exchange.status = 499
                return Response(None, 499)
            return asked.result()
        except errors.ClusterError as error:
            exchange.status = error.status
            self.end(exchange)
            raise
        finally:
            gone.cancel()
            if not asked.done():
                asked.cancel()
                self.end(exchange)
                with contextlib.suppress(asyncio.CancelledError, errors.ClusterError):
                    await asked

    def end(self, exchange: Exchange) -> None:
        """Record the outcome of a finished request, once per request."""
        if exchange.seconds:
            return
        exchange.seconds = time.monotonic() - exchange.began
        self._ended(exchange)

    def send(self, replica: Replica, path: str, content: bytes, seconds: float) -> Answering:
        """Send a call to a replica. Entering the result returns the response's headers."""
        assert replica.report
        headers = {
            "Authorization": f"Bearer {replica.report.key}",
            "Content-Type": "application/json",
            "Content-Length": str(len(content)),
            "Accept-Encoding": _PLAIN,
        }
        target = f"{openai.PREFIX}{path}".encode()
        return self.pass_on(replica, "POST", target, headers, seconds, content=_in_pieces(content))

    def pass_on(
        self, replica: Replica, method: str, target: bytes, headers: Mapping[str, str], seconds: float, **body: Any
    ) -> Answering:
        """Send a request to a replica. Raises InvalidRequest if the target is not a path.

        `seconds` is the maximum time without data from the replica.
        """
        assert replica.report
        at = httpx.URL(f"http://{self.routes.name(replica)}:{replica.report.port}")
        try:
            url = at.copy_with(raw_path=target)
        except (httpx.InvalidURL, ValueError) as error:
            raise errors.InvalidRequest(f"the path is invalid: {error}") from None
        timeout = httpx.Timeout(seconds, connect=_CONNECT_SECONDS)
        return self._http.stream(method, url, headers=dict(headers), timeout=timeout, **body)


class WholeAnswer(Response):
    """A complete response. A caller that does not send it must call `let_go` to release its memory."""

    def __init__(self, content: bytes, status: int, kind: str | None, held: AsyncExitStack) -> None:
        super().__init__(content, status, media_type=kind)
        self.let_go = held.aclose

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(TAKE_SECONDS):
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                for at in range(0, len(self.body), _PIECE):
                    await send({"type": "http.response.body", "body": self.body[at : at + _PIECE], "more_body": True})
                await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            log.info("a client did not read its whole response within %g s", TAKE_SECONDS)
        finally:
            await self.let_go()


class PassedStream(StreamingResponse):
    """A stream that releases its resources when the client stops reading or never starts."""

    def __init__(self, pieces: AsyncIterator[bytes], let_go: Callable[[], Awaitable[None]]) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(pieces, media_type="text/event-stream", headers=headers)
        self._let_go = let_go

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with contextlib.aclosing(cast(AsyncGenerator[bytes, None], self.body_iterator)):
                await super().__call__(scope, receive, send)
        finally:  # a generator that never started has no cleanup
            await self._let_go()


async def _gone(request: Request) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class _Call:
    """One call of a client. The permit and the connection of the call are released when its response ends."""

    def __init__(
        self, gateway: Gateway, route: Route, exchange: Exchange, question: Question, room: AsyncExitStack
    ) -> None:
        self._gateway, self._route, self._exchange, self._path = gateway, route, exchange, question.path
        self._streams, self._hide_usage = question.streams, question.hide_usage
        self._content, self._prefix, self._room = question.content, question.prefix, room
        self._until = time.monotonic() + route.seconds
        self._held = AsyncExitStack()

    @property
    def _seconds_left(self) -> float:
        return max(0.001, self._until - time.monotonic())

    async def response(self) -> Response:
        """Return the response: a stream after its first frame, or at once if the service is waking up."""
        try:
            self._room = self._room.pop_all()
            self._held.push_async_callback(self._room.aclose)
            self._held.enter_context(self._gateway.routes.asking(self._route.service))
            await self._held.enter_async_context(self._route.gate.turn(self._route.most, self._seconds_left))
            if self._route.wakes and self._streams:
                return PassedStream(self._with_comments(), self._let_go)
            return await self._wait_until_awake()
        except BaseException:
            await self._held.aclose()
            raise

    async def _let_go(self) -> None:
        """Finish a stream. If nothing else has finished it, the client disconnected."""
        try:
            self._exchange.status = self._exchange.status or 499
            self._gateway.end(self._exchange)
        finally:
            await self._held.aclose()

    async def _wait_until_awake(self) -> Response:
        self._route = await self._gateway.routes.awake(self._route, self._seconds_left)
        return await self._from_some_replica()

    async def _with_comments(self) -> AsyncIterator[bytes]:
        """Yield comments until a replica responds, then the response. Errors become frames."""
        asked = asyncio.ensure_future(self._wait_until_awake())
        try:
            while not asked.done():
                yield _COMMENT
                await asyncio.wait({asked}, timeout=COMMENT_SECONDS)
            async with contextlib.aclosing(_pieces(asked.result(), self._path)) as pieces:
                async for piece in pieces:
                    yield piece
        except connection.Unreachable as error:
            away = errors.Unavailable(f"{connection.reason(error)}; try again in a moment")
            self._exchange.status = away.status
            yield error_forms.frame(away, self._path)
        except errors.ClusterError as error:
            self._exchange.status = error.status
            yield error_forms.frame(error, self._path)
        finally:
            asked.cancel()
            await asyncio.wait({asked})
            if not asked.cancelled():
                await _unsent(asked)
            await self._let_go()

    async def _from_some_replica(self) -> Response:
        tried: list[Replica] = []
        while True:
            replica = self._gateway.routes.pick(self._route, tried, self._prefix)
            try:
                return await self._from(replica)
            except _Another as error:
                tried.append(replica)
                self._gateway.routes.eject(replica)
                log.warning("a replica did not respond: %s", error, extra={"job_id": replica.job_id})
                self._route = await self._with_another(tried, error)

    async def _with_another(self, tried: Sequence[Replica], error: _Another) -> Route:
        """Return the route, refreshed if every known replica was tried.

        Raises BadUpstream if there is no other replica.
        """
        routes, route = self._gateway.routes, self._route
        if len(tried) < _ATTEMPTS and not routes.has_another(route, tried):
            route = await routes.awake(await routes.refresh(route), self._seconds_left)
        if not route.ready or (len(tried) < _ATTEMPTS and routes.has_another(route, tried)):
            return route
        asked = f"tried {len(tried)} of {len(route.ready)}"
        detail = f"no replica of {route.service.name} responded; {asked}; last error: {error}"
        raise BadUpstream(detail) from None

    async def _from(self, replica: Replica) -> Response:
        held = AsyncExitStack()
        try:
            held.enter_context(self._gateway.routes.count_request(replica))
            async with asyncio.timeout(self._seconds_left):
                answer = await held.enter_async_context(
                    self._gateway.send(replica, self._path, self._content, self._seconds_left)
                )
                if answer.status_code in _TRY_ANOTHER:
                    raise _Another(f"it returned HTTP {answer.status_code}")
                if answer.headers.get("content-encoding", _PLAIN) != _PLAIN:
                    raise BadUpstream("the replica compressed its response, which was not requested")
                kind = answer.headers.get("content-type", "")
                if self._streams and answer.status_code < 300 and kind.startswith("text/event-stream"):
                    return await self._stream(answer, held)
                return await self._pass_whole(answer, held)
        except (TimeoutError, httpx.ReadTimeout):
            await held.aclose()
            raise TooLate(f"no response within request_timeout_seconds ({self._route.seconds:g})") from None
        except BROKEN as error:
            await held.aclose()
            raise _Another(str(error) or type(error).__name__) from error
        except BaseException:
            await held.aclose()
            raise

    async def _pass_whole(self, answer: httpx.Response, held: AsyncExitStack) -> Response:
        room = AsyncExitStack()
        try:
            return await self._read(answer, held, room)
        except BaseException:
            await room.aclose()
            raise

    async def _read(self, answer: httpx.Response, held: AsyncExitStack, room: AsyncExitStack) -> Response:
        content = bytearray()
        async for piece in answer.aiter_bytes():
            if len(content) <= SMALL < len(content) + len(piece):
                share = self._gateway.answers.room(self._exchange.tenant, _announced_size(answer), self._seconds_left)
                await room.enter_async_context(share)
            content += piece
            if len(content) > MAX_ANSWER:
                raise BadUpstream(f"the response is larger than {MAX_ANSWER} bytes")
        await held.aclose()
        await self._held.aclose()
        if not _is_passed_on(answer.status_code):
            raise BadUpstream(f"the replica returned HTTP {answer.status_code}")  # the caller counts the failure
        if answer.status_code >= http.FIRST_ERROR:
            return self._refusal(answer.status_code, bytes(content), room)
        self._note(answer.status_code, openai.usage(content))
        self._gateway.end(self._exchange)
        kind = answer.headers.get("content-type", "")
        safe = kind if kind.isascii() and kind.partition(";")[0].strip() in _TYPES else "application/octet-stream"
        return WholeAnswer(bytes(content), answer.status_code, safe, room)

    def _refusal(self, status: int, content: bytes, room: AsyncExitStack) -> Response:
        """Return an engine's error. Raises LacksCall if the engine does not support the call."""
        if self._is_unknown(status, content):
            said = error_forms.read_error_message(content)
            call = f"{openai.PREFIX}{self._path}"
            detail = f"{_engine_of(self._route)} returned HTTP {status} for {call}: {said or 'no reason'}"
            raise openai.LacksCall(f"{detail}; {_SEE}")
        self._note(status, None)
        self._gateway.end(self._exchange)
        return WholeAnswer(error_forms.of_engine(content, status, self._path), status, "application/json", room)

    def _is_unknown(self, status: int, content: bytes) -> bool:
        completes = self._path in (calls.CHAT, calls.COMPLETIONS)
        return status in _NO_CALL and not (completes and error_forms.has_form(content, self._path))

    def _note(self, status: int, usage: Any) -> None:
        self._exchange.status = status
        self._exchange.prompt_tokens, self._exchange.answer_tokens = openai.tokens(usage)

    async def _stream(self, answer: httpx.Response, held: AsyncExitStack) -> Response:
        """Return a stream after its first frame. Until then, the request can be sent to another replica."""
        repair = event_repairs.of(self._path, self._route.service.name)
        frames, pieces = Frames(hide_usage=self._hide_usage, repair=repair), answer.aiter_bytes()
        first = b""
        while not first:
            try:
                first = b"".join(frames.feed(await anext(pieces)))
            except StopAsyncIteration:
                raise _Another("the stream ended before its first event") from None
        self._content = b""  # the request is not sent to another replica any more
        await self._room.aclose()
        self._exchange.first_seconds = time.monotonic() - self._exchange.began
        self._held.push_async_callback(held.aclose)
        return PassedStream(self._pass_frames(first, frames, pieces), self._let_go)

    async def _pass_frames(self, first: bytes, frames: Frames, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        status = 499  # the client disconnected, unless the stream finishes
        try:
            yield first
            try:
                while True:
                    if several := b"".join(frames.feed(await self._next(pieces))):
                        yield several
            except StopAsyncIteration:
                status = 200 if frames.done else 502
                if not frames.done:  # a closed connection does not prove completion
                    yield error_forms.frame(
                        BadUpstream("the replica broke the connection before the end of its stream"), self._path
                    )
            except (TimeoutError, *BROKEN) as error:
                status = 502
                yield error_forms.frame(self._broken(error), self._path)
        finally:
            self._note(status, frames.usage)
            await self._let_go()

    async def _next(self, pieces: AsyncIterator[bytes]) -> bytes:
        """Return the next bytes. Raises TimeoutError at the deadline, even if the replica keeps sending."""
        if time.monotonic() >= self._until:
            raise TimeoutError
        return await asyncio.wait_for(anext(pieces), self._seconds_left)

    def _broken(self, error: Exception) -> errors.ClusterError:
        if isinstance(error, TimeoutError):
            return TooLate(f"the response took longer than request_timeout_seconds ({self._route.seconds:g})")
        return BadUpstream(f"the replica broke the connection: {str(error) or type(error).__name__}")


async def _unsent(asked: asyncio.Future[Response]) -> None:
    """Release an unsent response. Its error was sent, or the client disconnected."""
    if asked.exception() is None and isinstance(answer := asked.result(), WholeAnswer):
        await answer.let_go()


async def _pieces(answer: Response, path: str) -> AsyncGenerator[bytes, None]:
    """Yield a response as pieces of a running stream. A whole response becomes one frame."""
    if isinstance(answer, WholeAnswer):
        content = bytes(answer.body)
        try:
            if answer.status_code >= http.FIRST_ERROR:
                yield error_forms.build_error_frame(content, path)
            else:
                yield b"data: " + content.replace(b"\n", b" ") + b"\n\n"
        finally:
            await answer.let_go()
        return
    assert isinstance(answer, PassedStream)
    async with contextlib.aclosing(cast(AsyncGenerator[bytes, None], answer.body_iterator)) as pieces:
        async for piece in pieces:
            yield piece


def _engine_of(route: Route) -> str:
    return f"the engine {route.service.engine} of {route.service.name}"


async def _in_pieces(content: bytes) -> AsyncIterator[bytes]:
    """Yield the request in pieces, because httpx keeps a body in one piece in memory during the response."""
    for at in range(0, len(content), _PIECE):
        yield content[at : at + _PIECE]


def _announced_size(answer: httpx.Response) -> int:
    """Return the announced or else the maximum size of a response in bytes."""
    length = answer.headers.get("content-length", "")
    return min(int(length), MAX_ANSWER) if length.isdigit() else MAX_ANSWER


def _is_passed_on(status: int) -> bool:
    """Return False for statuses that clients must not receive: redirects, a rejected key, and invalid codes."""
    return (200 <= status < 300 or 400 <= status < 600) and status != 401
