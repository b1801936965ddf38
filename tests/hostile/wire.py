"""Sends a request as raw bytes over its own socket, and judges the response."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.hostile.counts import Counts

#: Seconds after which an unanswered request counts as hanging.
PATIENCE = 60.0
#: Maximum number of characters in an error's detail.
MOST_DETAIL = 1000
#: Statuses of errors about one field of a request.
_ABOUT_A_FIELD = {400, 409, 413, 415, 422}
_MOST_READ = 64 << 20


@dataclass(frozen=True)
class Answer:
    """A response. Status 0: the connection was closed without a response; -1: nothing arrived in time."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float

    def json(self) -> Any:
        return json.loads(self.body)


def request(
    method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None, host: str = "127.0.0.1"
) -> bytes:
    """Return the bytes of a request without escaping or checks."""
    rows = {"Host": host, "Connection": "close", **(headers or {})}
    if body is not None and not {"Content-Length", "Transfer-Encoding"} & rows.keys():
        rows["Content-Length"] = str(len(body))
    head = "".join(f"{name}: {value}\r\n" for name, value in rows.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("utf-8", "surrogateescape") + (body or b"")


def posted(path: str, body: bytes, **headers: str) -> bytes:
    """Return a request with a JSON body and further headers, in whose names underscores stand for hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return request("POST", path, {"Content-Type": "application/json", **named}, body)


def send(port: int, data: bytes, finish: bool = True) -> Answer:
    """Return what comes back. Of server-sent events only the head is read. `finish`: stays until the answer."""
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as stream:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may be answered before it is read
            stream.sendall(data)
        if not finish:
            return Answer(0, {}, b"", 0.0)
        status, headers, body = _read(stream, data[:5] == b"HEAD ")
    return Answer(status, headers, body, time.monotonic() - started)


def _read(stream: socket.socket, head: bool) -> tuple[int, Mapping[str, str], bytes]:
    response = http.client.HTTPResponse(stream, method="HEAD" if head else "GET")
    with contextlib.closing(response):
        try:
            response.begin()
            headers = {name.lower(): value for name, value in response.getheaders()}
            streams = headers.get("content-type", "").startswith("text/event-stream")
            return response.status, headers, b"" if streams else response.read(_MOST_READ)
        except TimeoutError:
            return -1, {}, b""
        except (http.client.HTTPException, ConnectionError):
            return 0, {}, b""


def complaint(answer: Answer, raw: bool = False) -> str:
    """Say what is wrong with an answer to whatever was sent; empty when nothing is. `raw`: it may have been no HTTP."""
    if answer.status <= 0:
        return "" if raw and answer.status == 0 else "nothing came in time" if answer.status else "no answer"
    if answer.status >= 500 or 300 <= answer.status < 400:
        return f"answered {answer.status}: {answer.body[:300]!r}"
    if answer.status < 400 or (raw and answer.headers.get("content-type", "").startswith("text/plain")):
        return ""
    return _problem_complaint(answer) if answer.body else ""


def _problem_complaint(answer: Answer) -> str:
    if answer.headers.get("content-type") != "application/problem+json":
        return f"{answer.status} is no problem+json: {answer.body[:300]!r}"
    told = answer.json()
    if told["status"] != answer.status or not 0 < len(told["detail"]) <= MOST_DETAIL:
        return f"{answer.status} tells status {told['status']} and {len(told['detail'])} characters"
    if answer.status in _ABOUT_A_FIELD and not told.get("field"):
        return f"{answer.status} names no field: {told['detail'][:300]}"
    return ""


def note(tally: Counts, what: str, answer: Answer, raw: bool = False) -> None:
    """Count a response."""
    wrong = complaint(answer, raw)
    if wrong:
        tally.wrong(f"{what}: {wrong}")
    elif 200 <= answer.status < 400:
        tally.accept()
    else:
        tally.refuse(answer.status or "closed")
