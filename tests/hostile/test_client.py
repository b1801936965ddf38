"""Hostile servers and arguments for the client: one line, the right exit code, no traceback, never the token.

HOSTILE_CLIENT_ANSWERS says how many random answers are tried; HOSTILE_CLIENT_SEED replays them.
"""

from __future__ import annotations

import copy
import gzip
import io
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest

from tests.unit.cluster_fake import KIND, USAGE, complete, job
from threads_cluster import errors, settings
from threads_cluster.cli import main as cli
from threads_cluster.cli import options, show, tables
from threads_cluster.client import api
from threads_cluster.client.api import Cluster
from threads_protocol.answers import fleet

TOP = Path(__file__).resolve().parents[2]
TOKEN = "t0ken-that-nobody-may-see"
ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\nerror: forged\u202e\u2028\x7f"
OUTCOMES = {0, 1, 2, 3}

Behaviour: TypeAlias = Callable[[socket.socket, bytes], None]

COMMANDS = [
    ["status"],
    ["status", "--json"],
    ["version"],
    ["jobs"],
    ["jobs", "--json"],
    ["job", "j1"],
    ["watch", "j1"],
    ["watch", "j1", "--json"],
    ["result", "j1"],
    ["result", "j1", "--csv"],
    ["result", "j1", "--json"],
    ["result", "j1", "--trace", "/dev/null"],
    ["workers"],
    ["kinds"],
    ["verified"],
    ["mark", "sums", "summed"],
    ["ask", "j1", "trace"],
    ["cancel", "j1"],
    ["retry", "j1", "--json"],
    ["delete", "j1"],
    ["drain", "desk"],
    ["submit", "collatz", "--start-number", "1", "--number-count", "9"],
    ["submit", "collatz", "--start-number", "1", "--number-count", "9", "--wait"],
]


# -- servers --------------------------------------------------------------------------------------------------------


@dataclass
class Server:
    """Answers each request on loopback with raw bytes, as its behavior determines."""

    behaviour: Behaviour
    asked: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                talk, _ = self.listener.accept()
                threading.Thread(target=self._answer, args=(talk,), daemon=True).start()

    def _answer(self, talk: socket.socket) -> None:
        talk.settimeout(20)
        with talk, suppress(OSError):
            request = talk.recv(65536)
            self.asked.append(request)
            self.behaviour(talk, request)


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[Server]:
    server = Server(behaviour)
    try:
        yield server
    finally:
        server.listener.close()


def http(body: bytes, *headers: str, status: str = "200 OK", length: int | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}", "Connection: close"]
    return "\r\n".join([*lines, *headers, "", ""]).encode("latin-1") + body


def says(*pieces: bytes, pause: float = 0.0) -> Behaviour:
    def answer(talk: socket.socket, request: bytes) -> None:
        for piece in pieces:
            talk.sendall(piece)
            time.sleep(pause)

    return answer


def always(body: Any, *headers: str, status: str = "200 OK") -> Behaviour:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return says(http(raw, "Content-Type: application/json", *headers, status=status))


def without_end(head: bytes, piece: bytes, pause: float) -> Behaviour:
    def answer(talk: socket.socket, request: bytes) -> None:
        talk.sendall(head)
        while True:
            talk.sendall(piece)
            time.sleep(pause)

    return answer


def reset(talk: socket.socket, request: bytes) -> None:
    talk.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")


OPEN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
BOMB = gzip.compress(bytes(300 << 20), 1)
NUMBERS = job("done", rate="?", seconds="?", progress="?", eta_seconds="?")
#: Responses that are invalid for every command.
SERVERS: dict[str, Behaviour] = {
    "an empty object": always({}),
    "an empty list": always([]),
    "null": always(None),
    "a number": always(7),
    "a text": always("status"),
    "nothing": always(b""),
    "204": says(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"),
    "a page": says(http(b"<html><body>Welcome to nginx!</body></html>", "Content-Type: text/html")),
    "half of its JSON": always(b'{"job_id": "j1", "sta'),
    "no UTF-8": always(b'{"job_id": "\xff\xfe"}'),
    "JSON nested 100,000 deep": always(b'{"a":' + b"[" * 100_000),
    "an integer of a million digits": always(b'{"version":' + b"1" * 10**6 + b"}"),
    "NaN": always(json.dumps(NUMBERS).replace('"?"', "NaN").encode()),
    "Infinity": always(json.dumps(NUMBERS).replace('"?"', "-Infinity").encode()),
    "1e999": always(json.dumps(NUMBERS).replace('"?"', "1e999").encode()),
    "a job of lists": always({name: [] for name in job("done")}),
    "a job of objects": always({name: {"x": {}} for name in job("done")}),
    "lists of wrong things": always({"jobs": [7], "workers": [None], "kinds": ["x"], "answers": 0}),
    "terminal escapes for a version": always({"version": [ESCAPE], "job_id": ESCAPE, "state": ESCAPE, "mark": ESCAPE}),
    "an id that is a path": always({"job_id": "../../x", "status": "queued", "state": "running"}),
    "500 and a page": says(http(b"<h1>oops</h1>" * 1000, "Content-Type: text/html", status="500 Oops")),
    "500 and escapes": always(
        {"title": ESCAPE, "detail": ESCAPE * 1000, "next": ESCAPE, "field": [ESCAPE]}, status="500 X"
    ),
    "503 with a strange Retry-After": always({}, "Retry-After: \xb2", status="503 Later"),
    "503 for a century": always({}, "Retry-After: 3153600000", status="503 Later"),
    "999": always({}, status="999 What"),
    "a redirect to itself": always(b"", "Location: /api/elsewhere", status="307 Temporary Redirect"),
    "a redirect to nowhere": always(b"", status="302 Found"),
    "a redirect with escapes": always(b"", "Location: http://x/\xc2\x9b31m", status="301 Moved"),
    "a reset": reset,
    "a closed connection": says(),
    "half of the body": says(http(b'{"version": "1"}', length=1000)),
    "more than it announced": says(http(b'{"version": "1"}', length=5)),
    "a negative length": says(http(b"{}", length=-5)),
    "two lengths": says(http(b"{}", "Content-Length: 7")),
    "no HTTP": says(b"SSH-2.0-OpenSSH_9.2\r\n\x1b[2J\r\n"),
    "a status line of escapes": says(b"HTTP/1.1 200 \x1b[2J\r\n\r\n{}"),
    "headers without end": without_end(b"HTTP/1.1 200 OK\r\n", b"X-Y: " + b"z" * 9000 + b"\r\n", 0),
    "a header of 1 MB": says(b"HTTP/1.1 200 OK\r\nX-Y: " + b"z" * 10**6),
    "silence": says(pause=3),
    "a body that drips": without_end(OPEN, b" ", 0.02),
    "a body without end": without_end(OPEN, b" " * 65536, 0),
    "a gzip bomb": says(http(BOMB, "Content-Encoding: gzip", "Content-Type: application/json")),
    "a bomb in a bomb": says(http(gzip.compress(BOMB), "Content-Encoding: gzip, gzip")),
    "gzip that is none": says(http(b"{}", "Content-Encoding: gzip")),
    "deflate that nobody asked for": says(http(b"{}", "Content-Encoding: deflate")),
    "an unknown charset": says(http(b"\xff{}", "Content-Type: application/json; charset=rot13")),
    "events that are no JSON": says(STREAM + b"data: <html>\n\n"),
    "events of other types": says(STREAM + b'data: [1]\n\ndata: {"state": ["done"]}\n\n'),
    "events of broken UTF-8": says(STREAM + b"data: \xff\xfe\xc3\n\n"),
    "garbage for events": says(STREAM + random.Random(1).randbytes(100_000)),
    "an event without end": without_end(STREAM, b"data: " + b"x" * 65536, 0),
    "an event of endless lines": without_end(STREAM, b"data: x\n" * 8192, 0),
    "events that end at once": says(STREAM),
    "the same event again and again": says(STREAM + b'id: 1\ndata: {"state": "running"}\n\n'),
}
#: Responses that take a long time.
SLOW = {name for name in SERVERS if "drips" in name or "bomb" in name or "end" in name or name == "silence"}


@dataclass
class Ran:
    code: int
    out: str
    err: str
    seconds: float


def judged(ran: Ran, codes: set[int], what: object) -> None:
    """Check the properties of every run: the exit code, one error with one hint, and no terminal control characters."""
    told = f"{what}: code {ran.code}\n{ran.out[:1000]}\n{ran.err[:3000]}"
    assert ran.code in codes, told
    lines = ran.err.splitlines()
    assert sum(line.startswith("error: ") for line in lines) == (ran.code in (2, 3, 4)), told
    assert sum(line.startswith("next: ") for line in lines) <= 1, told
    assert "Traceback" not in ran.err and TOKEN not in ran.out + ran.err, told
    assert all(len(line) < 6000 for line in lines), told
    assert all(line.isprintable() for line in (ran.out + ran.err).split("\n")), told


def answering(found: Any) -> httpx.MockTransport:
    """Return a behavior that sends the same response to every request."""
    return httpx.MockTransport(lambda request: httpx.Response(200, json=found))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Ran]]:
    """Run a command in this process, with a client that has a short timeout."""
    monkeypatch.setenv("CLUSTER_TOKEN", TOKEN)
    original = api.Cluster

    monkeypatch.setattr("threads_cluster.client.bodies.LARGEST", 4 << 20, raising=False)

    def go(
        url: str | None, arguments: list[str], transport: httpx.BaseTransport | None = None, timeout: float = 0.4
    ) -> Ran:
        settings.load.cache_clear()
        hasty = partial(original, timeout=timeout, patience=0.2, wait_patience=0.2, transport=transport)
        monkeypatch.setattr(api, "Cluster", hasty)
        began = time.monotonic()
        with pytest.raises(SystemExit) as ended:
            cli.main([*(["--url", url] if url else []), *arguments])
        out, err = capsys.readouterr()
        return Ran(int(ended.value.code or 0), out, err, time.monotonic() - began)

    yield go
    settings.load.cache_clear()


@pytest.mark.parametrize("name", SERVERS)
def test_a_hostile_server_is_one_line_and_exit_code_3(name: str, run: Callable[..., Ran]) -> None:
    with serving(SERVERS[name]) as server:
        for arguments in COMMANDS[:: 4 if name in SLOW else 1]:
            # Deleting does not read the body of a successful response. Other responses have the shape of their type.
            codes = {0, 3} if arguments[0] in ("delete", "ask") else {3}
            judged(run(server.url, arguments), codes, (name, arguments))


def test_memory_stays_bounded_under_bodies_without_end() -> None:
    """A process limited to 1 GiB reports the error."""
    for behaviour in (SERVERS["a body without end"], SERVERS["a gzip bomb"], SERVERS["a bomb in a bomb"]):
        with serving(behaviour) as server:
            limit = partial(resource.setrlimit, resource.RLIMIT_DATA, (1 << 30, 1 << 30))
            ran = process(["status"], url=server.url, preexec_fn=limit)
            judged(ran, {3}, "a body without end")


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
def test_the_token_follows_no_redirect(status: str, run: Callable[..., Ran]) -> None:
    with serving(always({"version": "1"})) as other:
        with serving(always(b"", f"Location: {other.url}/api/status", status=status)) as server:
            for arguments in (["status"], ["cancel", "j1"], ["watch", "j1", "--json"], ["delete", "j1"]):
                ran = run(server.url, arguments, timeout=60)
                judged(ran, {3}, (status, arguments))
                assert other.url in ran.err
        assert TOKEN.encode() in server.asked[0]
        assert other.asked == []


# -- answers that are nearly right ----------------------------------------------------------------------------------

RESULT = {
    "count": 1000,
    "mean": 1.25,
    "huge": "7" * 1000,
    "delay": {"histogram": [[n, n * n] for n in range(30)]},
    "records": {"delay": [{"n": 27, "value": 111}], "path": []},
    "list": list(range(20)),
    "metrics": {"speed": {"mean": 1.5, "ci": [1, 2]}, "time": {"mean": 2.0, "ci": [1, 3]}},
    "cells": [{"cores": 8, "metrics": {"a": {"mean": 1.0}}}, {"cores": 16, "metrics": {"a": {"mean": 2.0}}}],
}
SUMS = {**KIND, "type": "collatz"}
ANSWERS: dict[tuple[str, str], Any] = {
    ("GET", "/api/status"): complete(
        fleet.Status,
        version="1.2",
        cluster_size=3,
        lanes=8,
        jobs={"running": 1, "queued": 2},
        workers=complete(fleet.WorkerCounts, live=2, ready=2, cpu={"busy": 2}),
        queues={"cpu.normal": 2},
        oldest_wait_seconds=61.0,
        units_per_second={"collatz": 2.5e9},
    ),
    ("GET", "/api/jobs"): {"jobs": [job("running"), job("done"), job("failed")], "cursor": None},
    ("GET", "/api/jobs/j1"): job(
        "done", usage=USAGE | {"workers": {"desk": {"device": "cpu", "units": 2, "leases": 1, "seconds": 3.0}}}
    ),
    ("GET", "/api/jobs/j1/result"): {
        "job_id": "j1",
        "type": "sums",
        "partial": True,
        "units": 10,
        "total": 20,
        "result": RESULT,
    },
    ("GET", "/api/jobs/j1/trace.json"): {"traceEvents": [{"name": "a"}], "otherData": {}},
    ("GET", "/api/workers"): {
        "workers": [
            complete(
                fleet.Worker,
                id="desk",
                device="cpu",
                state="busy",
                lanes=2,
                job="j1",
                host="h",
                cpu_ratio=0.5,
                seen_seconds_ago=0.4,
                memory_used_bytes=3 * 2**30,
                draining=True,
            )
        ]
    },
    ("GET", "/api/job-types"): {"kinds": [SUMS]},
    ("GET", "/api/kinds/collatz/marks/verified"): {
        "type": "collatz",
        "mark": "verified",
        "summary": "Reach 1.",
        "origin": 1,
        "up_to": "99999999999999999999",
        "more_ranges": 0,
        "ranges": [{"first": 1, "last": 5}, {"first": "100000000000000000001", "last": "100000000000000000009"}],
    },
    ("POST", "/api/jobs/j1/cancel"): job("cancelled"),
    ("POST", "/api/workers/desk/drain"): {"id": "desk", "draining": True},
    ("POST", "/api/submit"): {"job_id": "j1", "status": "queued", "estimated_wait_seconds": 2.0, "notes": ["a note"]},
}
ASKING = [
    ["status"],
    ["version"],
    ["jobs"],
    ["job", "j1"],
    ["watch", "j1"],
    ["result", "j1"],
    ["result", "j1", "--csv"],
    ["result", "j1", "--table", "cells"],
    ["result", "j1", "--trace", "/dev/null"],
    ["workers"],
    ["kinds"],
    ["verified"],
    ["mark", "collatz", "verified"],
    ["ask", "j1", "trace", "replica=0"],
    ["ask", "j1", "trace", "--csv"],
    ["cancel", "j1"],
    ["drain", "desk"],
    ["submit", "collatz", "--start", "1", "--cores", "1,2"],
    ["submit", "collatz", "--start", "1", "--wait"],
    ["submit", "collatz", "--help"],
]
ODD: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2**53,
    10**30,
    -(10**400),
    1e308,
    -1e-300,
    0.5,
    "",
    ESCAPE,
    "\ud800",
    "9" * 5000,
    "-5",
    "NaN",
    "\U0001f980",
    "x" * 100_000,
    [],
    [[]],
    [None],
    {},
    {"": None},
    {"a": {"b": {}}},
    [1, "a", None],
    [[1], [2, 3]],
    "done",
    "running",
    "2026-01-02T03:04:05",
    "0001-01-01T00:00:00+23:59",
    "[/bold]",
    "%s {0}",
    {"$ref": "#/nowhere"},
    {"$ref": "#"},
    "array",
    "object",
    ["integer", "null"],
    [{ESCAPE: 1}],
    "../x",
]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every (holder, key) in a JSON value."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in ((value, key), *places(value[key]))]


def twisted(answer: Any, dice: random.Random) -> Any:
    """Return the response with one to three entries removed, replaced or renamed."""
    found = copy.deepcopy(answer)
    for _ in range(dice.randint(1, 3)):
        holder, key = dice.choice(places(found) or [([None], 0)])
        how = dice.random()
        if how < 0.2:
            del holder[key]
        elif how < 0.3 and isinstance(holder, dict):
            holder[dice.choice([ESCAPE, "", "a" * 10_000, "\udfff", "--help", "wait"])] = holder.pop(key)
        else:
            holder[key] = copy.deepcopy(dice.choice(ODD))
    return found


def test_random_answers_are_shown_or_refused(run: Callable[..., Ran]) -> None:
    seed = int(os.environ.get("HOSTILE_CLIENT_SEED", "1"))
    count = int(os.environ.get("HOSTILE_CLIENT_ANSWERS", "400"))
    dice = random.Random(seed)
    outcomes: dict[int, int] = {}
    for number in range(count):
        arguments = dice.choice(ASKING)

        def answer(request: httpx.Request) -> httpx.Response:
            found = ANSWERS.get((request.method, request.url.path), {})
            return httpx.Response(
                200, content=json.dumps(twisted(found, dice) if dice.random() < 0.8 else found).encode()
            )

        ran = run("http://cluster.test", arguments, httpx.MockTransport(answer))
        judged(ran, OUTCOMES, (seed, number, arguments))
        outcomes[ran.code] = outcomes.get(ran.code, 0) + 1
    print(f"client: {count} random answers, seed {seed}, by exit code: {dict(sorted(outcomes.items()))}")
    assert outcomes[0] > count / 10 and outcomes[3] > count / 10


def test_right_answers_are_shown(run: Callable[..., Ran]) -> None:
    """Check that unchanged responses are accepted."""

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=ANSWERS[request.method, request.url.path])

    for arguments in ASKING:
        assert run("http://cluster.test", arguments, httpx.MockTransport(answer)).code in (0, 1), arguments


def test_escapes_of_a_server_are_shown_as_text(run: Callable[..., Ran]) -> None:
    """Every text of every response is tried, on both streams and in help."""

    def poisoned(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: value[name] if name in ("job_id", "type", "state", "cursor") else poisoned(value[name])
                for name in value
            }
        if isinstance(value, list):
            return [poisoned(item) for item in value]
        return ESCAPE if isinstance(value, str) and not value[:1].isdigit() and not value.startswith("#/") else value

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=poisoned(ANSWERS[request.method, request.url.path]))

    shown = 0
    for arguments in ASKING:
        ran = run("http://cluster.test", arguments, httpx.MockTransport(answer))
        judged(ran, {0, 1, 2, 3}, arguments)
        shown += "\\x1b" in ran.out + ran.err
    assert shown >= 6


def test_a_schema_that_branches_for_ever_ends() -> None:
    branches = {f"b{n}": {"anyOf": [{"$ref": f"#/$defs/b{n + 1}"}] * 2} for n in range(60)} | {
        "b60": {"type": "integer"}
    }
    schema = {"$defs": branches, "properties": {"a": {"$ref": "#/$defs/b0"}}}
    with pytest.raises(ValueError, match="too many alternatives"):
        options.flags(schema)


def test_rows_without_common_names_make_no_table() -> None:
    rows = [{f"c{number}": 1} for number in range(20_000)]
    assert list(tables.find({"rows": rows})) == []
    show.result({"job_id": "j1", "result": {"rows": rows[:100]}})


# -- the library ----------------------------------------------------------------------------------------------------

CALLS: dict[str, Callable[[Cluster], object]] = {
    "submit": lambda cluster: cluster.submit("sums"),
    "run": lambda cluster: cluster.run("sums"),
    "submit_batch": lambda cluster: cluster.submit_batch([{"type": "sums"}]),
    "results": lambda cluster: cluster.results(["a", "b"]),
    "job": lambda cluster: cluster.job("j1"),
    "wait": lambda cluster: cluster.wait("j1"),
    "result": lambda cluster: cluster.result("j1"),
    "events": lambda cluster: list(cluster.events("j1")),
    "jobs": lambda cluster: list(cluster.jobs()),
    "workers": lambda cluster: cluster.workers(),
    "kinds": lambda cluster: cluster.kinds(),
}


@pytest.mark.parametrize(
    "name", ["an empty object", "an empty list", "null", "a page", "NaN", "a gzip bomb", "a reset"]
)
def test_the_library_raises_errors_of_its_own_kinds(name: str) -> None:
    for call in CALLS.values():
        with (
            serving(SERVERS[name]) as server,
            Cluster(server.url, TOKEN, 0.4, patience=0, wait_patience=0) as cluster,
            pytest.raises(errors.ClientError) as seen,
        ):
            call(cluster)
        assert str(seen.value).isprintable() and TOKEN not in str(seen.value)


BAD_CALLS: dict[str, Callable[[], object]] = {
    "an empty id": lambda: nowhere().job(""),
    "an id of dots": lambda: nowhere().delete(".."),
    "an empty key": lambda: nowhere().submit("sums", idempotency_key=""),
    "NaN": lambda: nowhere().submit("sums", {"x": float("nan")}),
    "an object": lambda: nowhere().submit("sums", {"x": object()}),
    "half a character": lambda: nowhere().submit("sums", {"x": "\ud800"}),
    "an integer of a million digits": lambda: nowhere().submit("sums", {"x": 10**1_000_000}),
    "a list in itself": lambda: nowhere().submit("sums", {"x": cyclic()}),
    "an address that is none": lambda: Cluster("http://[::1"),
    "a token that is none": lambda: Cluster("http://cluster.test", f"{TOKEN}\n"),
}


def nowhere() -> Cluster:
    return Cluster("http://127.0.0.1:9", "", 0.4)


def cyclic() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_arguments_are_errors_of_their_own_kind(name: str) -> None:
    with pytest.raises((errors.BadArgument, errors.Misconfigured)) as seen:
        BAD_CALLS[name]()
    assert str(seen.value).isprintable() and TOKEN not in str(seen.value)


def test_a_list_of_jobs_without_end_ends() -> None:
    numbers = iter(range(10**9, 0, -1))
    for page in (lambda: {"jobs": [], "cursor": "7"}, lambda: {"jobs": [], "cursor": str(next(numbers))}):
        transport = httpx.MockTransport(lambda request, page=page: httpx.Response(200, json=page()))
        with (
            Cluster("http://cluster.test", "", transport=transport) as cluster,
            pytest.raises(errors.UnexpectedAnswer, match="never ends"),
        ):
            list(cluster.jobs(limit=5))


def test_a_server_that_does_not_wait_is_not_asked_without_pause() -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json=job("running"))

    transport = httpx.MockTransport(answer)
    with Cluster("http://cluster.test", "", transport=transport) as cluster, pytest.raises(errors.TimedOut):
        cluster.wait("j1", timeout=1.0)
    assert len(asked) <= 12


# -- arguments ------------------------------------------------------------------------------------------------------


def sound(talk: socket.socket, request: bytes) -> None:
    """Return a cluster with only one job, which runs forever."""
    method, path = request.decode("latin-1").split(" ")[:2]
    path = path.partition("?")[0]
    if (method, path) == ("GET", "/api/jobs/j1"):
        time.sleep(0.2)
        found = job("running")
    else:
        found = ANSWERS.get((method, path), {})
    always(found or {"title": "There is no such thing", "detail": path}, status="200 OK" if found else "404 Not Found")(
        talk, request
    )


def environment(url: str, **more: str) -> dict[str, str]:
    return {**os.environ, "CLUSTER_URL": url, "CLUSTER_TOKEN": TOKEN, "PYTHONPATH": str(TOP), **more}


def process(arguments: list[str], *, url: str, more: dict[str, str] | None = None, **how: Any) -> Ran:
    """Run the command as a separate process."""
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL} | how
    command = [sys.executable, "-W", "error", "-m", "threads_cluster", *arguments]
    began = time.monotonic()
    ended: Any = subprocess.run(command, env=environment(url, **more or {}), cwd=TOP, timeout=60, **how)
    out, err = ((text or b"").decode(errors="surrogateescape") for text in (ended.stdout, ended.stderr))
    return Ran(ended.returncode, out, err, time.monotonic() - began)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Server]:
    with serving(sound) as server:
        yield server


SUBMIT = ["submit", "collatz", "--start", "1"]
#: Arguments, variables, exit code, and the expected message.
ARGUMENTS: list[tuple[list[str], dict[str, str], int, str]] = [
    (["status"], {"CLUSTER_URL": "http://[::1"}, 2, "not an address of a cluster"),
    (["status"], {"CLUSTER_URL": "http://"}, 2, "not an address of a cluster"),
    (["status"], {"CLUSTER_URL": "ftp://somewhere"}, 2, "not an address of a cluster"),
    (["status"], {"CLUSTER_URL": "http://somewhere:port"}, 2, "not an address of a cluster"),
    (["status"], {"CLUSTER_URL": f"http://me:{TOKEN}@[::1"}, 2, "not an address of a cluster"),
    (["status"], {"CLUSTER_URL": f"http://me:{TOKEN}@127.0.0.1:1"}, 2, "would replace CLUSTER_TOKEN"),
    (["status"], {"CLUSTER_URL": "http://127.0.0.1:99999"}, 2, "not an address of a cluster"),
    (["status"], {"CLUSTER_URL": "http://x\x1b[2J"}, 2, "not an address of a cluster"),
    (["status"], {"CLUSTER_URL": "http://" + "a" * 300}, 2, "not an address of a cluster"),
    (["status"], {"CLUSTER_URL": "http://xn--/"}, 2, "not an address of a cluster"),
    (["status"], {"CLUSTER_URL": "http://127.0.0.1:1/?token=1"}, 2, "not an address of a cluster"),
    (["--url", "", "status"], {}, 2, "--url must not be empty"),
    (["status"], {"CLUSTER_TOKEN": f"{TOKEN}é"}, 2, "CLUSTER_TOKEN cannot be sent"),
    (["status"], {"CLUSTER_TOKEN": f"{TOKEN}\n"}, 2, "CLUSTER_TOKEN cannot be sent"),
    (["status"], {"CLUSTER_TOKEN": f"a\r\nX-Y: {TOKEN}"}, 2, "CLUSTER_TOKEN cannot be sent"),
    (["submit", "collatz", "--help"], {"CLUSTER_TOKEN": f"{TOKEN}\n"}, 0, ""),
    (["--context", "nowhere", "status"], {}, 2, "no context has the name nowhere"),
    (["--context", "\x1b[2J", "status"], {}, 2, "no context has the name \\x1b[2J"),
    (["watch", ""], {}, 2, "the id is empty"),
    (["job", ".."], {}, 2, "the id cannot be '..'"),
    (["delete", ""], {}, 2, "the id is empty"),
    (["drain", ""], {}, 2, "the id is empty"),
    (["job", "../../status"], {}, 2, "/api/jobs/..%2F..%2Fstatus"),
    (["job", "a/b?c#d"], {}, 2, "/api/jobs/a%2Fb%3Fc%23d"),
    (["job", "\x1b[2J\n"], {}, 2, "/api/jobs/%1B%5B2J%0A"),
    (["job", os.fsdecode(b"\xff")], {}, 2, "/api/jobs/%FF"),
    ([*SUBMIT, "--cores", "1,,2"], {}, 2, "'--cores': item 2 is empty"),
    ([*SUBMIT, "--cores", "1,2,"], {}, 2, "'--cores': item 3 is empty"),
    ([*SUBMIT, "--policies", ","], {}, 2, "'--policies': item 1 is empty"),
    ([*SUBMIT, "--idempotency-key", ""], {}, 2, "--idempotency-key: must not be empty"),
    ([*SUBMIT, "--idempotency-key", os.fsdecode(b"\xff")], {}, 2, "not valid Unicode"),
    ([*SUBMIT, "--law", "[" * 100_000], {}, 2, "'--law'"),
    ([*SUBMIT, "--law", '{"mean": NaN}'], {}, 2, "NaN"),
    ([*SUBMIT, "--parameters", "/dev/zero"], {}, 2, "the file has over 16 MiB"),
    ([*SUBMIT, "--parameters", "/"], {}, 2, "cannot read /"),
    ([*SUBMIT, "--parameters", "/nowhere\x1b[2J"], {}, 2, "cannot read /nowhere\\x1b"),
    (["submit", "collatz", "--start", "9^9^9"], {}, 2, "'--start'"),
    (["result", "j1", "--trace", "/nowhere/at/all"], {}, 2, "/nowhere/at/all"),
    (["result", "j1", "--trace", "/dev/full"], {}, 4, "No space left on device"),
    (["jobs", "--limit", "0"], {}, 2, "'--limit'"),
    (["jobs", "--limit", "many"], {}, 2, "'--limit'"),
    (["statsu"], {}, 2, "No such command 'statsu'"),
    (["\x1b[2J"], {}, 2, "No such command"),
    (["job"], {}, 2, "Missing argument 'JOB'"),
]


@pytest.mark.parametrize("number", range(len(ARGUMENTS)), ids=lambda number: ascii(ARGUMENTS[number][:2])[:80])
def test_hostile_arguments_are_one_line_and_their_exit_code(
    number: int, cluster: Server, run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, variables, code, told = ARGUMENTS[number]
    for name, value in {"CLUSTER_URL": cluster.url, **variables}.items():
        monkeypatch.setenv(name, value)
    ran = run(None, arguments, timeout=60)
    judged(ran, {code}, arguments)
    assert told in ran.err


@pytest.mark.parametrize("arguments", [["status"], ["status", "--json"], ["--help"], ["result", "j1", "--csv"], SUBMIT])
def test_a_full_disk_is_exit_code_4(arguments: list[str], cluster: Server) -> None:
    with Path("/dev/full").open("w") as full:
        ran = process(arguments, url=cluster.url, stdout=full)
    judged(ran, {4}, arguments)
    assert "cannot write the output: No space left on device" in ran.err


@pytest.mark.parametrize("arguments", [["status"], ["--help"]])
def test_a_closed_stdout_is_exit_code_4(arguments: list[str], cluster: Server) -> None:
    ran = process(arguments, url=cluster.url, preexec_fn=partial(os.close, 1))
    judged(ran, {4}, arguments)


def test_nowhere_to_complain_changes_no_exit_code(cluster: Server) -> None:
    with Path("/dev/full").open("w") as full:
        assert process(["job", "x"], url=cluster.url, stderr=full).code == 2
    ran = process(["job", "x"], url=cluster.url, preexec_fn=partial(os.close, 2))
    assert (ran.code, ran.out) == (2, "")


def test_a_closed_stdin_is_said(cluster: Server) -> None:
    ran = process([*SUBMIT, "--parameters", "-"], url=cluster.url, stdin=None, preexec_fn=partial(os.close, 0))
    judged(ran, {2}, "closed stdin")
    assert "stdin is closed" in ran.err
    assert process(["status"], url=cluster.url, stdin=None, preexec_fn=partial(os.close, 0)).code == 0


@pytest.mark.parametrize(
    "arguments", [["jobs"], ["--help"], ["result", "j1", "--json"], ["submit", "collatz", "--help"]]
)
def test_a_reader_that_goes_away_ends_the_command_quietly(arguments: list[str], cluster: Server) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ran = process(arguments, url=cluster.url, stdout=writing)
    os.close(writing)
    assert (ran.code, ran.err) == (141, "")


def test_head_gets_its_line_and_nobody_complains(cluster: Server) -> None:
    script = f"{sys.executable} -W error -m threads_cluster jobs | head -1; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(
        ["bash", "-c", script], env=environment(cluster.url), cwd=TOP, capture_output=True, text=True
    )
    assert ended.returncode in (0, 141)  # as quick as head is
    assert (len(ended.stdout.splitlines()), ended.stderr) == (1, "")


@pytest.mark.parametrize("arguments", [["status"], ["watch", "j1"], ["watch", "j1", "--json"], [*SUBMIT, "--wait"]])
def test_ctrl_c_is_exit_code_130(arguments: list[str]) -> None:
    begun = threading.Event()

    def slow(talk: socket.socket, request: bytes) -> None:
        path = request.split(b" ")[1].decode().partition("?")[0]
        if path in ("/api/submit", "/api/job-types"):
            always(ANSWERS[request.split(b" ")[0].decode(), path])(talk, request)
        else:
            begun.set()
            time.sleep(10)

    with serving(slow) as server:
        command = [sys.executable, "-W", "error", "-m", "threads_cluster", *arguments]
        running = subprocess.Popen(
            command, env=environment(server.url), cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert begun.wait(60)
        running.send_signal(signal.SIGINT)
        out, err = (text.decode() for text in running.communicate(timeout=60))
    assert (running.returncode, out) == (130, "")
    assert "Traceback" not in err and err.splitlines()[-1].isprintable()
    assert ("interrupted" if arguments == ["status"] else "keep") in err


def test_a_fault_of_the_command_names_its_place_and_no_more(
    run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise KeyError(TOKEN)

    monkeypatch.setattr(show, "status", fails)
    ran = run("http://cluster.test", ["status"], answering(ANSWERS["GET", "/api/status"]))
    assert (ran.code, ran.out) == (70, "")
    assert ran.err.startswith("error: internal error of this command: KeyError at ") and TOKEN not in ran.err


def test_an_ascii_terminal_takes_any_text(run: Callable[..., Ran]) -> None:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding="ascii") as narrow, redirect_stdout(narrow):
        run("http://cluster.test", ["version"], answering({"version": "\U0001f980"}))
        assert raw.getvalue() == b"\\U0001f980\n"
