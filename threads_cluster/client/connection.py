"""HTTP connection to a cluster. Calls are retried during restarts, and API errors become exceptions."""

from __future__ import annotations

import json
import os
import random
import re
import socket
import ssl
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

import httpx

from threads_cluster.client import answers, bodies
from threads_cluster.client.contexts import Context
from threads_cluster.client.logins import STARTING, Credential, is_local, is_starting
from threads_cluster.client.suspension import sleep
from threads_cluster.errors import (
    ApiError,
    BadArgument,
    BrokenOff,
    ClientError,
    Misconfigured,
    NothingMore,
    TooSlow,
    Unauthorized,
    UnexpectedAnswer,
    Unreachable,
)
from threads_cluster.installed_version import installed_version
from threads_cluster.terminal import visible

#: Status codes of a proxy or a coordinator that is temporarily unavailable.
BUSY = frozenset({429, 502, 503, 504})
#: Maximum pause in seconds between two attempts of a call.
LONGEST_PAUSE = 2.0
#: Seconds of failing calls after which the user gets a notice.
NOTICE_SECONDS = 3.0
#: Read timeout in seconds for an open stream or download.
_QUIET_SECONDS = 60.0
_OCTETS = "application/octet-stream"
#: Maximum number of URLs in the cache.
_ADDRESSES = 64
#: Each thread that waits for a job uses a connection, so that only idle connections are limited.
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=32)
#: Errors of a transfer after which the client tries again.
_BROKEN = (httpx.TransportError, ApiError)
#: Status codes for which a cluster always sends problem details. A response without them is from another server.
FOREIGN = frozenset({404, 405, 501})
_INVALID = httpx.codes.UNPROCESSABLE_ENTITY
#: Pattern of the calls that end, pause or delete something of the cluster.
_ENDS = re.compile(r"DELETE (?!.*/attachments/).*|POST .*/(cancel|drain|pause|restart|scale|stop)")
#: Pattern of the paths of calls that submit or continue jobs.
_SUBMITS = re.compile(r"/api/(submit|submit-batch|workflows|(jobs|workflows)/[^/]+/(.+/)?retry|schedules/[^/]+/run)")


class Patience:
    """Retry policy with growing pauses. It raises an error after `seconds` without a successful call."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.succeeded()

    def succeeded(self) -> None:
        self._began = time.monotonic()
        self._since: float | None = None
        self._pause = 0.05
        self._noticed = False

    def notices(self) -> bool:
        """Return True if calls have failed for NOTICE_SECONDS. Returns True only once per outage."""
        due = not self._noticed and time.monotonic() - self._began >= NOTICE_SECONDS
        self._noticed = self._noticed or due
        return due

    def failed(self, error: Exception, pause: float = 0.0) -> None:
        """Sleep before the next attempt. Raise the error instead if the pause would exceed the limit."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        pause = max(pause, self._pause * random.uniform(0.5, 1.0))
        if now + pause - self._since > self.seconds:
            raise error
        sleep(pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)


def open_transport(trusted: ssl.SSLContext) -> httpx.BaseTransport:
    """Return a transport for the requests of any number of threads."""
    # trust_env is off, so that a proxy from the environment does not receive calls to this machine.
    return httpx.HTTPTransport(verify=trusted, trust_env=False, limits=LIMITS)


class Connection:
    """Connection to one cluster. Safe for threads; a process that was forked opens new sockets.

    `transports` opens a transport, and opens another one after a fork. Raises Misconfigured for an invalid address or
    token.
    """

    def __init__(
        self,
        cluster: Context,
        credential: Credential,
        timeout: float,
        transports: Callable[[ssl.SSLContext], httpx.BaseTransport] = open_transport,
    ) -> None:
        stated = address(cluster.url)
        self._credential = credential
        #: URL for messages, without user name and password.
        self.url = shown_address(cluster.url)
        if stated.userinfo and credential.token:
            raise _two_credentials(self.url, credential)
        #: Cluster of this connection. Errors name its context.
        self.cluster = replace(cluster, url=self.url)
        self.timeout = timeout
        #: Callback for an outage. It receives the error after calls have failed for NOTICE_SECONDS.
        self.notice: Callable[[ClientError], None] | None = None
        #: Callback for a late response. Another thread calls it with the remaining seconds of the call.
        self.silence: Callable[[float], None] | None = None
        #: Callback before the first request that ends, pauses or deletes something.
        self.before_end: Callable[[], None] | None = None
        #: True after the first response of any kind. Calls are retried only if the cluster has responded before.
        self.answered = False
        #: True after the first call that may have submitted a job, even if the response was lost.
        self.submitted = False
        headers = {
            "User-Agent": f"cluster-client/{installed_version()}".rstrip("/"),
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
        }
        if credential.token:
            headers["Authorization"] = f"Bearer {sendable(credential)}"
        self._trusted, self._transports = trust(cluster), transports
        self._transport = transports(self._trusted)
        self.http = httpx.Client(base_url=stated, headers=headers, transport=self._transport, trust_env=False)
        self._headers = dict(self.http.headers)
        self.has_user = bool(stated.userinfo)
        self._addresses: dict[tuple[str, str], httpx.URL] = {}
        self._streams: set[httpx.Response] = set()
        _connections.add(self)

    def close(self) -> None:
        """Close all connections. Other threads that read event streams notice it at once."""
        for answer in list(self._streams):
            network = answer.extensions.get("network_stream")
            if opened := network and network.get_extra_info("socket"):
                with suppress(OSError):  # The server has closed it
                    socket.socket.shutdown(opened, socket.SHUT_RDWR)
        self.http.close()

    def reopen(self) -> None:
        """Replace the sockets in a forked process, because the parent process continues to use them."""
        self._streams = set()
        if not self.http.is_closed:
            self._transport = self._transports(self._trusted)
            old = self.http
            self.http = httpx.Client(
                base_url=old.base_url, headers=old.headers, transport=self._transport, trust_env=False
            )

    def ask(self, method: str, path: str, shape: Any = None, *, patience: float, **how: Any) -> Any:
        """Send a request and return the JSON response, or None for an empty body.

        Arguments and errors are the same as for `ask_octets`. `shape` is the declaration that validates the response.
        None skips validation.
        """
        with self._naming():
            answer = self._parsed(self.ask_octets(method, path, patience=patience, **how))
            return answer if shape is None else answers.checked(shape, answer, self.url)

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Add the name of the context to errors, so that users notice requests to a wrong cluster.

        Errors about arguments are the same for every cluster.
        """
        try:
            yield
        except ClientError as error:
            about_arguments = isinstance(error, BadArgument) or getattr(error, "status", 0) == _INVALID
            if self.cluster.name and not about_arguments and not hasattr(error, "__notes__"):
                error.add_note(str(self.cluster))
            raise

    def _parsed(self, answer: bytes) -> Any:
        try:
            return bodies.parse(answer) if answer else None
        except bodies.BadBody as error:
            raise UnexpectedAnswer(self.url, str(error)) from None

    def ask_octets(
        self,
        method: str,
        path: str,
        *,
        patience: float,
        extra_seconds: float = 0.0,
        body: Any = None,
        octets: bytes | None = None,
        kind: str = _OCTETS,
        headers: Mapping[str, str] | None = None,
        **query: Any,
    ) -> bytes:
        """Send a request and return the body of the response. Use this method only for requests that can be repeated.

        `extra_seconds` extends the timeout for calls that wait on the server. `octets` is a binary request body with
        the content type `kind`.
        """
        enduring = Patience(patience)
        timeout = httpx.Timeout(self.timeout + extra_seconds, connect=min(self.timeout, 5.0))
        request: dict[str, Any] = {"params": present(query), "headers": dict(headers or {}), "timeout": timeout}
        # The header allows proxies to retry the request. The cluster uses the key in the body.
        request["headers"] |= {"Idempotency-Key": uuid.uuid4().hex} if method == "POST" else {}
        if octets is not None:
            request["content"] = octets
            request["headers"]["Content-Type"] = kind
        elif body is not None:
            request["content"] = encoded(body)
            request["headers"]["Content-Type"] = "application/json"
        self.submitted = self.submitted or (method == "POST" and bool(_SUBMITS.fullmatch(path)))
        if self.before_end and _ENDS.fullmatch(f"{method} {path}"):
            self.before_end()
            self.before_end = None
        with self._watched(extra_seconds, self.timeout - NOTICE_SECONDS + (patience if self.answered else 0.0)):
            while True:
                try:
                    with self._open(method, path, **request) as answer:
                        return self._read(answer, self.timeout + extra_seconds)
                except _BROKEN as error:
                    self.endure(error, enduring)

    @contextmanager
    def _watched(self, extra_seconds: float, left: float) -> Iterator[None]:
        """Call the callback `silence` if the enclosed call is late. `left` is the number of seconds until its
        timeout.
        """
        if self.silence is None:
            yield
            return
        timer = threading.Timer(NOTICE_SECONDS + extra_seconds, self.silence, (max(left, 0.0),))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    @contextmanager
    def stream(
        self, path: str, headers: Mapping[str, str], quiet_seconds: float = _QUIET_SECONDS
    ) -> Iterator[Iterator[bytes]]:
        """Yield the bytes of an event stream. After `quiet_seconds` of silence, the stream fails. Raises NothingMore on
        status 204.
        """
        timeout = httpx.Timeout(self.timeout, read=quiet_seconds)
        request: dict[str, Any] = {"headers": {"Accept-Encoding": "identity", **headers}, "timeout": timeout}
        with ExitStack() as opening:
            with self._watched(0.0, _QUIET_SECONDS - NOTICE_SECONDS):
                answer = opening.enter_context(self._open("GET", path, **request))
            if answer.status_code != httpx.codes.OK:
                self._read_problem(answer, bodies.read(answer, self.timeout))
            if answer.status_code == httpx.codes.NO_CONTENT:
                raise NothingMore(self.url)
            kind = answer.headers.get("Content-Type", "")
            if not kind.startswith("text/event-stream"):
                raise UnexpectedAnswer(self.url, f"the response is not an event stream but {kind or 'without a type'}")
            self.answered = True
            self._streams.add(answer)
            opening.callback(self._streams.discard, answer)
            yield _of_this_process(bodies.unpacked(answer))

    @contextmanager
    def download(self, path: str, start: int = 0) -> Iterator[Iterator[bytes]]:
        """Yield the bytes of a file, starting at the offset `start`. After a minute of silence, the download fails."""
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        with self._open(
            "GET", path, headers=headers, timeout=httpx.Timeout(self.timeout, read=_QUIET_SECONDS)
        ) as answer:
            wanted = httpx.codes.PARTIAL_CONTENT if start else httpx.codes.OK
            if answer.status_code != wanted:
                self._read_problem(answer, bodies.read(answer, self.timeout))
                raise UnexpectedAnswer(self.url, f"the server returned {status_line(answer)} for a range of a file")
            self.answered = True
            yield _of_this_process(bodies.unpacked(answer))

    @contextmanager
    def _open(self, method: str, path: str, **request: Any) -> Iterator[httpx.Response]:
        """Yield a response whose body is not read yet. Errors of httpx, except for transport errors, become client
        errors.
        """
        try:
            answer = self._begun(method, path, **request)
            try:
                with self._naming():
                    yield answer
            finally:
                answer.close()
        except bodies.BadBody as error:
            raise UnexpectedAnswer(self.url, str(error)) from None
        except (httpx.InvalidURL, httpx.DecodingError, UnicodeError) as error:  # The host name may be invalid
            raise Unreachable(self.url, str(error)) from error

    def _begun(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        timeout: httpx.Timeout,
        params: Mapping[str, Any] | None = None,
        content: bytes | None = None,
    ) -> httpx.Response:
        """Return a response whose body is not read yet. Skips httpx.Client if possible.

        The other work of httpx.Client, such as its cookie search, takes a third of the time of a short call.
        """
        if self.has_user or self.http.cookies or self.http.is_closed:
            made = self.http.build_request(
                method, path, params=params, headers=headers, content=content, timeout=timeout
            )
            return self.http.send(made, stream=True)
        merged = self._headers | {name.lower(): value for name, value in headers.items()}
        request = httpx.Request(
            method,
            self._address(path, params),
            headers=merged,
            content=content,
            extensions={"timeout": timeout.as_dict()},
        )
        answer = self._transport.handle_request(request)
        answer.request = request
        if "Set-Cookie" in answer.headers:  # A proxy with sticky sessions sets this header
            self.http.cookies.extract_cookies(answer)
        return answer

    def _address(self, path: str, params: Mapping[str, Any] | None) -> httpx.URL:
        """Return the complete URL for a path and a query. Recent URLs are cached, because building a URL is slow."""
        known = path, str(params)
        url = self._addresses.get(known)
        if url is None:
            if len(self._addresses) >= _ADDRESSES:
                self._addresses.clear()
            url = self._addresses[known] = self.http.build_request("GET", path, params=params).url
        return url

    def endure(self, error: httpx.TransportError | ApiError, enduring: Patience) -> None:
        """Sleep before the next attempt, or raise the error for the caller."""
        if isinstance(error, ApiError):
            worth_it = error.status == httpx.codes.TOO_MANY_REQUESTS or (self.answered and error.status in BUSY)
            seen: ClientError = error
        else:
            worth_it = self.answered
            seen = self._seen(error)
            seen.__cause__ = error
        if not worth_it:
            raise seen
        if self.notice and enduring.notices():
            self.notice(seen)
        enduring.failed(seen, error.retry_after if isinstance(error, ApiError) else 0.0)

    def _seen(self, error: httpx.TransportError) -> ClientError:
        """Convert a transport error into a client error for users."""
        if isinstance(error, httpx.ReadTimeout):
            return TooSlow(self.url)
        if isinstance(error, httpx.RemoteProtocolError) and self.answered:
            return BrokenOff(self.url)
        seen = Unreachable(self.url, reason(error))
        if self.cluster.name and not self.cluster.folder:
            seen.next = f"if the cluster has another address now: cluster login URL --name {self.cluster.name}"
        elif is_local(self.url):
            seen.next = "the local cluster may be restarting; see ./deploy-cluster.sh status"
        elif is_starting(self.url):
            seen.next = STARTING
        return seen

    def _read(self, answer: httpx.Response, seconds: float) -> bytes:
        body = bodies.read(answer, seconds)
        self._read_problem(answer, body)
        return body

    def _read_problem(self, answer: httpx.Response, body: bytes) -> None:
        if answer.status_code not in BUSY or has_details(answer):
            self.answered = True
        if answer.is_success:
            return
        if answer.status_code < httpx.codes.BAD_REQUEST:
            raise UnexpectedAnswer(self.url, elsewhere(answer))
        details = problem(answer, body)
        if answer.status_code in FOREIGN and details is None:
            raise UnexpectedAnswer(self.url, f"the server returned {status_line(answer)}")
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            raise Unauthorized(details or {}, self._credential.name, self._credential.next)
        after = answer.headers.get("Retry-After", "")
        seconds = float(after) if re.fullmatch("[0-9]{1,9}", after) else 0.0
        raise ApiError(answer.status_code, details or {"title": status_line(answer)}, seconds)


#: Open connections of this process.
_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def _reopen_all() -> None:
    for connection in _connections:
        connection.reopen()


if hasattr(os, "register_at_fork"):  # Windows cannot fork
    os.register_at_fork(after_in_child=_reopen_all)


def _of_this_process(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a response. After a fork, raises ReadError in the child, so that it opens its own stream."""
    process = os.getpid()
    for chunk in chunks:
        yield chunk
        if os.getpid() != process:
            raise httpx.ReadError("the process was forked")


def address(url: str) -> httpx.URL:
    """Parse the address of a cluster. The default scheme is http. Raises Misconfigured if the address is invalid."""
    text = url if "://" in url or url.endswith(":") else f"http://{url}"
    try:
        parsed = httpx.URL(text)
        parsed.host.encode("idna")
    except (httpx.InvalidURL, ValueError) as error:
        raise _no_address(text, str(error)) from None
    plain = parsed.scheme in ("http", "https") and not parsed.query and not parsed.fragment
    if not plain or not parsed.host or not 0 < (parsed.port or 80) < 65536:
        raise _no_address(text, "the address must have the form http://host:port")
    return parsed


def shown_address(url: str) -> str:
    """Return the address of a cluster without user name and password.

    Raises Misconfigured if the address is invalid.
    """
    return str(address(url).copy_with(userinfo=b"")).rstrip("/")


def _no_address(text: str, reason: str) -> Misconfigured:
    shown = re.sub("//[^/]*@", "//...@", visible(text, 100))
    error = Misconfigured(f"{shown} is not an address of a cluster: {reason[:1].lower()}{reason[1:]}")
    error.next = "set the address with --url or CLUSTER_URL, for example http://127.0.0.1:3000"
    return error


def _two_credentials(url: str, credential: Credential) -> Misconfigured:
    """Return the error for an address with a user name if there is a token. A request cannot contain both."""
    error = Misconfigured(f"the address {url} contains a user name or password, which would replace {credential.name}")
    error.next = "remove the user name and password from the address"
    return error


def sendable(credential: Credential) -> str:
    """Return the token of a credential. Raises Misconfigured if an HTTP header cannot contain the token.

    The message does not contain the token.
    """
    wrong = re.search(r"[^\x21-\x7e]", credential.token)
    if wrong is None:
        return credential.token
    what = "white space" if wrong[0].isspace() else "a character that is not ASCII"
    raise Misconfigured(f"{credential.name} cannot be sent: its character {wrong.start() + 1} is {what}")


def encoded(body: Any) -> bytes:
    """Encode a request body as JSON. Raises BadArgument for values that JSON does not support, such as NaN."""
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError:
        raise BadArgument("the job contains text that is not valid Unicode") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise BadArgument(f"the job cannot be sent as JSON: {error}") from None


def elsewhere(answer: httpx.Response) -> str:
    """Describe a redirect. The client never follows redirects, because the token is only for the configured address."""
    target = visible(answer.headers.get("Location", ""), 200)
    return f"the server returned {answer.status_code}{f', a redirect to {target}' if target else ''}"


def trust(cluster: Context) -> ssl.SSLContext:
    """Return the certificate authorities of a cluster: its own, or those of the system.

    For http, return an empty store, because loading takes 30 ms. Raises Misconfigured if the cluster's file is missing.
    """
    if not cluster.url.startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        return ssl.create_default_context(cafile=cluster.authority or None)
    except OSError as error:
        unusable = Misconfigured(f"the certificate authority {cluster.authority} cannot be read: {error.strerror}")
        unusable.next = "join the cluster again, or delete its context; see cluster context list"
        raise unusable from None


def present(query: Mapping[str, Any]) -> dict[str, Any]:
    """Return the query parameters that are set."""
    return {name: value for name, value in query.items() if value not in (None, "")}


def has_details(answer: httpx.Response) -> bool:
    """Return True for a response with problem details. Clusters send them, but most proxies do not."""
    kind: str = answer.headers.get("Content-Type", "")
    return kind.partition(";")[0].strip().lower() == "application/problem+json"


def problem(answer: httpx.Response, body: bytes) -> dict[str, Any] | None:
    """Return the problem details of a response, or None if the response has none."""
    try:
        details = bodies.parse(body)
    except bodies.BadBody:
        return None
    return details if isinstance(details, dict) else None


def status_line(answer: httpx.Response) -> str:
    """Return the status line of a response, such as 404 Not Found."""
    return f"{answer.status_code} {answer.reason_phrase}".strip()


def reason(error: Exception) -> str:
    """Describe a transport error in a few words for users."""
    if isinstance(error, httpx.ConnectTimeout | httpx.ReadTimeout):
        return "it takes too long to answer"
    text = visible(re.sub(r"^\[Errno -?[0-9]+\] ", "", str(error)), 200)
    return f"{text[:1].lower()}{text[1:]}" or type(error).__name__
