"""One keep-alive HTTP connection to a cluster: asks, comes back after a restart, turns problems into errors."""

from __future__ import annotations

import json
import random
import re
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx

from threads_cluster.client import answers, bodies
from threads_cluster.client.logins import STARTING, Credential, is_local, is_starting
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
from threads_cluster.terminal import visible

#: Answers of a proxy or a coordinator that say "not now".
BUSY = frozenset({429, 502, 503, 504})
#: Seconds between two attempts at most.
LONGEST_PAUSE = 2.0
#: Calls that have not worked for this many seconds are worth a word to whoever waits.
NOTICE_SECONDS = 3.0
#: Seconds of silence that break an open answer.
_QUIET_SECONDS = 60.0
_OCTETS = "application/octet-stream"
#: Addresses that are kept.
_ADDRESSES = 64
#: What a body or a stream can fail with on its way; worth another attempt.
_BROKEN = (httpx.TransportError, ApiError)
#: Statuses that a cluster never answers without problem details; another server does.
FOREIGN = frozenset({404, 405, 501})
#: Calls after which a job goes on, or more of them.
_SUBMITS = re.compile(r"/api/(submit|submit-batch|workflows|(jobs|workflows)/[^/]+/(.+/)?retry|schedules/[^/]+/run)")


class Patience:
    """Counts how long nothing has worked; pauses a little longer each time, gives up after `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.succeeded()

    def succeeded(self) -> None:
        self._began = time.monotonic()
        self._since: float | None = None
        self._pause = 0.05
        self._noticed = False

    def notices(self) -> bool:
        """Whether nothing has worked for NOTICE_SECONDS; true once, until something succeeds."""
        due = not self._noticed and time.monotonic() - self._began >= NOTICE_SECONDS
        self._noticed = self._noticed or due
        return due

    def failed(self, error: Exception, pause: float = 0.0) -> None:
        """Pauses; raises the error instead when the pause would pass the limit."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        pause = max(pause, self._pause * random.uniform(0.5, 1.0))
        if now + pause - self._since > self.seconds:
            raise error
        time.sleep(pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)


class Connection:
    """Not for several threads at once. Misconfigured when no request could be made with this address or token."""

    def __init__(
        self, url: str, credential: Credential, timeout: float, transport: httpx.BaseTransport | None = None
    ) -> None:
        stated = address(url)
        self._credential = credential
        #: For people: without a name and password that it may hold.
        self.url = shown_address(url)
        self.timeout = timeout
        #: Is given the error once when calls that are repeated have not worked for NOTICE_SECONDS.
        self.notice: Callable[[ClientError], None] | None = None
        #: Is given for how many seconds a call goes on at most, NOTICE_SECONDS after its answer could have come; from
        #: another thread.
        self.silence: Callable[[float], None] | None = None
        #: Set by the first answer, a problem such as "Redis is away" included: only a cluster that has answered is
        #: worth waiting for.
        self.answered = False
        #: Set by the first call that may have submitted something, with or without an answer.
        self.submitted = False
        headers = {"User-Agent": "cluster-client", "Accept": "application/json", "Accept-Encoding": "gzip"}
        if credential.token:
            headers["Authorization"] = f"Bearer {sendable(credential)}"
        # trust_env off: a proxy set for the internet must not catch calls to this machine.
        self._transport = transport or httpx.HTTPTransport(verify=trust(self.url), trust_env=False)
        self.http = httpx.Client(base_url=stated, headers=headers, transport=self._transport, trust_env=False)
        self._headers = dict(self.http.headers)
        self.has_user = bool(stated.userinfo)
        self._addresses: dict[tuple[str, str], httpx.URL] = {}

    def ask(self, method: str, path: str, shape: Any = None, *, patience: float, **how: Any) -> Any:
        """Return the JSON answer, None when there is no body; arguments and errors as those of `ask_octets`.

        `shape`: the declaration that the answer must have; None: any.
        """
        answer = self._parsed(self.ask_octets(method, path, patience=patience, **how))
        return answer if shape is None else answers.checked(shape, answer, self.url)

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
        """Return the answer as it is. Only for what may be sent twice.

        `extra_seconds` is what the answer may take longer because it waits for something. `octets`: the body, as it is,
        of this `kind`.
        """
        enduring = Patience(patience)
        timeout = httpx.Timeout(self.timeout + extra_seconds, connect=min(self.timeout, 5.0))
        request: dict[str, Any] = {"params": present(query), "headers": dict(headers or {}), "timeout": timeout}
        # Tells proxies that they may send it again too; a key in the body is the one that counts.
        request["headers"] |= {"Idempotency-Key": uuid.uuid4().hex} if method == "POST" else {}
        if octets is not None:
            request["content"] = octets
            request["headers"]["Content-Type"] = kind
        elif body is not None:
            request["content"] = encoded(body)
            request["headers"]["Content-Type"] = "application/json"
        self.submitted = self.submitted or (method == "POST" and bool(_SUBMITS.fullmatch(path)))
        with self._watched(extra_seconds, self.timeout - NOTICE_SECONDS + (patience if self.answered else 0.0)):
            while True:
                try:
                    with self._open(method, path, **request) as answer:
                        return self._read(answer, self.timeout + extra_seconds)
                except _BROKEN as error:
                    self.endure(error, enduring)

    @contextmanager
    def _watched(self, extra_seconds: float, left: float) -> Iterator[None]:
        """Tell `silence` when what is within takes too long, and `left`: a call that hangs looks like work."""
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
    def stream(self, path: str, headers: Mapping[str, str]) -> Iterator[Iterator[bytes]]:
        """The bytes of an open answer of events; silence of a minute breaks it. NothingMore where none come (204)."""
        timeout = httpx.Timeout(self.timeout, read=_QUIET_SECONDS)
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
                raise UnexpectedAnswer(self.url, f"the answer is no stream of events but {kind or 'of no type'}")
            self.answered = True
            yield bodies.unpacked(answer)

    @contextmanager
    def download(self, path: str, start: int = 0) -> Iterator[Iterator[bytes]]:
        """The bytes of a file from `start` on; silence of a minute breaks it."""
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        with self._open(
            "GET", path, headers=headers, timeout=httpx.Timeout(self.timeout, read=_QUIET_SECONDS)
        ) as answer:
            wanted = httpx.codes.PARTIAL_CONTENT if start else httpx.codes.OK
            if answer.status_code != wanted:
                self._read_problem(answer, bodies.read(answer, self.timeout))
                raise UnexpectedAnswer(self.url, f"it says {status_line(answer)} to a part of a file")
            self.answered = True
            yield bodies.unpacked(answer)

    @contextmanager
    def _open(self, method: str, path: str, **request: Any) -> Iterator[httpx.Response]:
        """An answer whose body is not read yet. What httpx has no transport error for becomes an error of ours."""
        try:
            answer = self._begun(method, path, **request)
            try:
                yield answer
            finally:
                answer.close()
        except bodies.BadBody as error:
            raise UnexpectedAnswer(self.url, str(error)) from None
        except (httpx.InvalidURL, httpx.DecodingError, UnicodeError) as error:  # also a name that DNS cannot hold
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
        """An answer whose body is not read yet, of the transport itself where httpx would add nothing to the request.

        What else httpx does for each, such as to look through cookies, takes a third of a short call.
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
        if "Set-Cookie" in answer.headers:  # of a proxy that keeps a client at one coordinator
            self.http.cookies.extract_cookies(answer)
        return answer

    def _address(self, path: str, params: Mapping[str, Any] | None) -> httpx.URL:
        """The whole address of a path and its query; those of the last calls are kept, since making one takes long."""
        known = path, str(params)
        if known not in self._addresses:
            if len(self._addresses) >= _ADDRESSES:
                self._addresses.clear()
            self._addresses[known] = self.http.build_request("GET", path, params=params).url
        return self._addresses[known]

    def endure(self, error: httpx.TransportError | ApiError, enduring: Patience) -> None:
        """Pauses before the next attempt, or raises what the caller shall see."""
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
        """Return what people are told of a call without an answer."""
        if isinstance(error, httpx.ReadTimeout):
            return TooSlow(self.url)
        if isinstance(error, httpx.RemoteProtocolError) and self.answered:
            return BrokenOff(self.url)
        seen = Unreachable(self.url, reason(error))
        if is_local(self.url):
            seen.next = "it should run here, and may just be starting again; see ./deploy-cluster.sh status"
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
            raise UnexpectedAnswer(self.url, f"it says {status_line(answer)}")
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            raise Unauthorized(details or {}, self._credential.name, self._credential.next)
        after = answer.headers.get("Retry-After", "")
        seconds = float(after) if re.fullmatch("[0-9]{1,9}", after) else 0.0
        raise ApiError(answer.status_code, details or {"title": status_line(answer)}, seconds)


def address(url: str) -> httpx.URL:
    """The address of a cluster, http:// unless it says otherwise. Misconfigured when it is none."""
    text = url if "://" in url or url.endswith(":") else f"http://{url}"
    try:
        parsed = httpx.URL(text)
        parsed.host.encode("idna")
    except (httpx.InvalidURL, ValueError) as error:
        raise _no_address(text, str(error)) from None
    plain = parsed.scheme in ("http", "https") and not parsed.query and not parsed.fragment
    if not plain or not parsed.host or not 0 < (parsed.port or 80) < 65536:
        raise _no_address(text, "it has the form http://host:port")
    return parsed


def shown_address(url: str) -> str:
    """The address of a cluster without a name and password that it may hold. Misconfigured when it is none."""
    return str(address(url).copy_with(userinfo=b"")).rstrip("/")


def _no_address(text: str, reason: str) -> Misconfigured:
    shown = re.sub("//[^/]*@", "//...@", visible(text, 100))
    error = Misconfigured(f"{shown} is no address of a cluster: {reason[:1].lower()}{reason[1:]}")
    error.next = "say where the cluster is with --url or CLUSTER_URL, such as http://127.0.0.1:3000"
    return error


def sendable(credential: Credential) -> str:
    """The token. Misconfigured, without a part of it in the message, when no header can hold it."""
    wrong = re.search(r"[^\x21-\x7e]", credential.token)
    if wrong is None:
        return credential.token
    what = "white space" if wrong[0].isspace() else "a character that is not ASCII"
    raise Misconfigured(f"{credential.name} cannot be sent: its character {wrong.start() + 1} is {what}")


def encoded(body: Any) -> bytes:
    """The body as JSON. BadArgument for what JSON cannot hold: NaN, half characters, objects of other types."""
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError:
        raise BadArgument("the job holds text that is not valid Unicode") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise BadArgument(f"the job cannot be sent as JSON: {error}") from None


def elsewhere(answer: httpx.Response) -> str:
    """Describe a redirect. It is never followed: the token is for the stated address alone."""
    target = visible(answer.headers.get("Location", ""), 200)
    return f"it answers {answer.status_code}{f' and sends to {target}' if target else ''}"


def trust(url: str) -> ssl.SSLContext:
    """The system's certificates for https; an empty store else, since loading one takes 30 ms."""
    return ssl.create_default_context() if url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def present(query: Mapping[str, Any]) -> dict[str, Any]:
    """Without the parameters that were not given."""
    return {name: value for name, value in query.items() if value not in (None, "")}


def has_details(answer: httpx.Response) -> bool:
    """Return True for problem details by their type: a cluster sends them, a proxy before none at all does not."""
    kind: str = answer.headers.get("Content-Type", "")
    return kind.partition(";")[0].strip().lower() == "application/problem+json"


def problem(answer: httpx.Response, body: bytes) -> dict[str, Any] | None:
    """Return the problem details; None for an answer that has none, such as a proxy's page."""
    try:
        details = bodies.parse(body)
    except bodies.BadBody:
        return None
    return details if isinstance(details, dict) else None


def status_line(answer: httpx.Response) -> str:
    """Return the status as people know it, as 404 Not Found."""
    return f"{answer.status_code} {answer.reason_phrase}".strip()


def reason(error: Exception) -> str:
    """In few words why nothing came back."""
    if isinstance(error, httpx.ConnectTimeout | httpx.ReadTimeout):
        return "it takes too long to answer"
    text = visible(re.sub(r"^\[Errno -?[0-9]+\] ", "", str(error)), 200)
    return f"{text[:1].lower()}{text[1:]}" or type(error).__name__
