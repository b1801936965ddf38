"""Forward a service's page, such as Dask's dashboard, from the leading replica, under its own host name.

Requests for these host names never reach the cluster's own routes and pages, and requests for other host names never
reach the pages of services.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from types import SimpleNamespace

import httpx
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from coordinator.access.principal import Principal
from coordinator.access.principal import Scope as Right
from coordinator.cluster import Cluster
from coordinator.server import browsers, pages
from coordinator.services.gateway import error_forms
from coordinator.services.gateway.gateway import BROKEN, Gateway
from coordinator.services.gateway.openai import BadUpstream
from coordinator.services.gateway.routing import Page
from coordinator.services.pages import page_sockets, tickets
from coordinator.services.pages.page_names import PageNames
from coordinator.services.pages.tickets import Place, Use
from engines import registry
from jobs import errors
from jobs.network.tunnel import run_until_first
from jobs.store.server.connection import Unreachable, reason
from jobs.store.services import Replica
from threads_protocol.numbers import short

log = logging.getLogger(__name__)

#: Path of the link that logs a browser in. No engine uses this path.
LINK = "/.cluster/open"
#: Route label of requests to pages in metrics.
ROUTE = SimpleNamespace(path_format="page of a service")
#: Maximum number of concurrent requests and WebSockets per service and coordinator.
MOST = 100
#: Read timeout of a replica in seconds.
#: Interval in seconds between two validations of a ticket.
SILENT_SECONDS, WATCH_SECONDS = 60.0, 5.0
#: Request headers that are forwarded to a replica.
_ASKED = ("accept", "accept-encoding", "accept-language", "if-none-match", "if-modified-since", "range")
#: Response headers that are forwarded from a replica.
_ANSWERED = (
    "content-type",
    "content-length",
    "content-encoding",
    "content-range",
    "accept-ranges",
    "cache-control",
    "etag",
    "last-modified",
    "vary",
    "location",
)
#: A service's page can use any script or style of its own origin, and can connect only to that origin.
HEADERS = {
    **pages.HEADERS,
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; object-src 'none'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "X-Frame-Options": "SAMEORIGIN",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_POLICY_VIOLATED = 1008


@dataclass(frozen=True, kw_only=True)
class Admission:
    """A browser with access to a page, and the replica that answers it."""

    principal: Principal
    page: Page
    replica: Replica
    #: The browser's ticket, or an empty string if none is required.
    ticket: str

    @property
    def place(self) -> Place:
        return place(self.page, self.replica)


def place(page: Page, replica: Replica) -> Place:
    """Return the page and replica for which tickets are valid."""
    assert replica.report
    return Place(service_id=page.service.service_id, key=replica.report.key)


class PageLayer:
    """ASGI layer that answers requests for the host names of pages, and passes other requests on unchanged."""

    def __init__(self, app: ASGIApp, names: PageNames, gateway: Gateway, cluster: Cluster) -> None:
        self._app, self._names, self._gateway, self._cluster = app, names, gateway, cluster
        self._open: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        service_id = self._names.service_id(_header(scope, b"host"))
        origin = _header(scope, b"origin").partition("://")[2]
        if not service_id and not (origin and self._names.service_id(origin)):
            await self._app(scope, receive, send)
            return
        scope["route"] = ROUTE
        if not service_id:
            await _refuse_page(origin, scope, receive, send)
            return
        connection = HTTPConnection(scope)
        try:
            _check_principal(connection)
            if scope["type"] == "http":
                await self._answer(service_id, Request(scope, receive), receive, send)
            else:
                await self._socket(service_id, WebSocket(scope, receive, send))
        except errors.ClusterError as error:
            await _refuse(error, scope, receive, send)
        except Unreachable as error:
            await _refuse(errors.Unavailable(f"{reason(error)}; try again in a moment"), scope, receive, send)

    # -- access ----------------------------------------------------------------------------------------------------

    async def _let_in(self, service_id: str, connection: HTTPConnection, given: str, use: Use) -> Admission:
        """Authenticate a browser. Raises Unauthorized without a valid ticket, NotFound and Unavailable."""
        credentials = self._cluster.credentials
        if not given and credentials.is_token_required:
            raise errors.Unauthorized("this browser is not logged in; create a link with: cluster service open NAME")
        page = await self._gateway.routes.page(service_id)
        if page is None:
            raise errors.NotFound("the service no longer exists; see: cluster services")
        name = page.service.name
        if page.leader is None:
            why = f"no replica of {name} serves its page now: {page.because}"
            raise errors.Unavailable(f"{why}; see: cluster service show {name}")
        principal = await tickets.holder(given, place(page, page.leader), use, credentials) if given else None
        if principal is None and credentials.is_token_required:
            why = "it expired, its token or login was revoked, or another replica leads"
            raise errors.Unauthorized(
                f"this browser's access is no longer valid ({why}); get a new link: cluster service open {name}"
            )
        seen = principal or await credentials.principal_by_bearer("")
        seen.require(Right.READ)
        if seen.only_tenant not in (None, page.service.tenant):
            raise errors.NotFound("the service does not exist; see: cluster services")
        return Admission(principal=seen, page=page, replica=page.leader, ticket=given if principal else "")

    async def watch(self, let: Admission) -> None:
        """Wait until the browser's access is revoked or expires."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            credentials = self._cluster.credentials
            with contextlib.suppress(*Unreachable):
                if let.ticket and not await tickets.holder(let.ticket, let.place, Use.COOKIE, credentials):
                    return

    @contextmanager
    def _counted(self, service_id: str) -> Iterator[None]:
        if self._open[service_id] >= MOST:
            raise errors.OverLimit(f"{MOST} requests of this page are running; reload it later", seconds=1)
        self._open[service_id] += 1
        try:
            yield
        finally:
            self._open[service_id] -= 1
            if not self._open[service_id]:
                del self._open[service_id]

    # -- responses -------------------------------------------------------------------------------------------------

    async def _answer(self, service_id: str, request: Request, receive: Receive, send: Send) -> None:
        if request.method not in ("GET", "HEAD"):
            raise _NotAllowed(f"{request.method}: pages of services accept only GET and HEAD")
        if request.url.path == LINK:
            await (await self._followed(service_id, request))(request.scope, receive, send)
            return
        let = await self._let_in(service_id, request, request.cookies.get(_cookie(request), ""), Use.COOKIE)
        with self._counted(service_id):
            await self._passed_on(let, request, receive, send)

    async def _followed(self, service_id: str, request: Request) -> Response:
        """Follow a link: set a cookie for this host, and redirect to the page."""
        given = request.query_params.get("ticket", "")
        let = await self._let_in(service_id, request, given, Use.LINK)
        answer = RedirectResponse(registry.page(let.page.service.engine), 303, HEADERS | {"Cache-Control": "no-store"})
        if let.ticket:
            text = tickets.issue(let.place, Use.COOKIE, let.principal, tickets.POLL_SECONDS)
            answer.set_cookie(
                _cookie(request),
                text,
                max_age=tickets.POLL_SECONDS,
                path="/",
                secure=browsers.is_tls(request),
                httponly=True,
                # Strict cookies fail here, because the link is on the cluster's pages, which are another site.
                samesite="lax",
            )
        return answer

    async def _passed_on(self, let: Admission, request: Request, receive: Receive, send: Send) -> None:
        given = {name: request.headers[name] for name in _ASKED if name in request.headers}
        headers = {"accept-encoding": "identity"} | given | _of_replica(let.replica)
        began, target = False, _target(request.scope)
        try:
            async with contextlib.AsyncExitStack() as held:
                asked = self._gateway.pass_on(let.replica, request.method, target, headers, SILENT_SECONDS)
                async with asyncio.timeout(SILENT_SECONDS):  # covers all 1xx responses and headers
                    answer = await held.enter_async_context(asked)
                if not 200 <= answer.status_code < 600:
                    raise BadUpstream(f"{let.replica.job_id} returned the invalid HTTP status {answer.status_code}")
                response = StreamingResponse(answer.aiter_raw(), answer.status_code, _shown(answer))
                began = True
                await response(request.scope, receive, send)
        except (TimeoutError, *BROKEN) as error:
            said = str(error) or type(error).__name__
            log.warning(
                "a service's page %s: %s",
                "was interrupted" if began else "did not respond",
                said,
                extra={"job_id": let.replica.job_id},
            )
            if began:  # the server closes the connection without an end, so the browser notices the incomplete response
                return
            raise BadUpstream(f"{let.replica.job_id} did not respond: {said}") from None

    async def _socket(self, service_id: str, browser: WebSocket) -> None:
        let = await self._let_in(service_id, browser, browser.cookies.get(_cookie(browser), ""), Use.COOKIE)
        routes, report = self._gateway.routes, let.replica.report
        assert report
        with self._counted(service_id):
            opening = page_sockets.opened(
                routes.tunnels,
                routes.name(let.replica),
                report.port,
                _target(browser.scope).decode(),
                _of_replica(let.replica),
                browser.scope.get("subprotocols", []),
            )
            async with contextlib.AsyncExitStack() as held:
                try:
                    replica = await held.enter_async_context(opening)
                except page_sockets.BROKEN as error:
                    said = str(error) or type(error).__name__
                    raise BadUpstream(f"{let.replica.job_id} did not open a WebSocket: {said}") from None
                await browser.accept(subprotocol=replica.subprotocol)
                await run_until_first(page_sockets.passed_on(browser, replica), self.watch(let))
                with contextlib.suppress(RuntimeError):  # the browser has disconnected
                    await browser.close(_POLICY_VIOLATED if replica.close_code is None else 1000)


class _NotAllowed(errors.ClusterError):
    """Pages of services do not accept this method."""

    status = 405


def check_transport(connection: HTTPConnection) -> None:
    """Raise Forbidden if links and cookies would cross the network unencrypted."""
    if browsers.is_readable(connection):
        host = short(connection.headers.get("host", ""), 80)
        detail = f"pages of services at {host} require TLS (https://), because tickets would be readable on the network"
        raise errors.Forbidden(detail, field="Host")


def _cookie(connection: HTTPConnection) -> str:
    return browsers.cookie_name(connection, "service_page")


def _check_principal(connection: HTTPConnection) -> None:
    """Raise Forbidden for requests from other origins, except followed links, and for requests without TLS."""
    check_transport(connection)
    browsers.check_origin(connection)
    headers = connection.headers
    followed = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    if not browsers.is_of_own_page(connection) and not followed:
        raise errors.Forbidden("a page of another origin cannot use this page", field="Sec-Fetch-Site")


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def _target(scope: Scope) -> bytes:
    """Return path and query exactly as the browser sent them."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string", b"")
    return path + (b"?" + query if query else b"")


def _of_replica(replica: Replica) -> dict[str, str]:
    assert replica.report
    return {"Authorization": f"Bearer {replica.report.key}"}


def _shown(answer: httpx.Response) -> Mapping[str, str]:
    """Return the response headers to forward. Raises BadUpstream for a redirect to another host."""
    found = {name: answer.headers[name] for name in _ANSWERED if name in answer.headers}
    to = found.get("location", "/")
    if not to.startswith("/") or to.startswith(("//", "/\\")):
        raise BadUpstream(f"the replica redirects to another host: {short(to, 80)}")
    return {"cache-control": "private, no-cache"} | found | HEADERS


async def _refuse_page(origin: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Reject a request from a service's page to the cluster."""
    error = errors.Forbidden(f"the page of a service, {short(origin, 80)}, cannot call the cluster", field="Origin")
    if scope["type"] == "http" and error_forms.covers(scope["path"]):
        await error_forms.build_error_response(error, scope["path"])(scope, receive, send)
    else:
        await _refuse(error, scope, receive, send)


async def _refuse(error: errors.ClusterError, scope: Scope, receive: Receive, send: Send) -> None:
    """Send an error as plain text, because people read it in a browser."""
    title = HTTPStatus(error.status).phrase
    answer = PlainTextResponse(f"{error.status} {title}\n\n{error.detail}\n", error.status, HEADERS)
    answer.headers["Cache-Control"] = "no-store"
    if error.status in (429, 503):
        answer.headers["Retry-After"] = "1"
    if scope["type"] == "http":
        await answer(scope, receive, send)
    else:
        await WebSocket(scope, receive, send).send_denial_response(answer)
