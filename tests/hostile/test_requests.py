"""Tests all sorts of paths, queries, methods and headers: each is answered at once, and errors name the reason."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest

from tests.hostile import counts, exploring, wire
from tests.hostile.watching import Watch
from tests.integration.live import Live

JOB = "0123456789abcdef"
PATHS = (
    "/",
    "/health",
    "/ready",
    "/api",
    "/api/status",
    "/api/workers",
    "/api/workers/worker-0/drain",
    "/api/job-types",
    "/api/snapshot",
    "/api/history",
    "/api/stream",
    "/api/events",
    f"/api/jobs/{JOB}/events",
    "/api/submit",
    "/api/submit-batch",
    "/api/jobs",
    "/api/results",
    f"/api/jobs/{JOB}",
    f"/api/jobs/{JOB}/result",
    f"/api/jobs/{JOB}/trace.json",
    f"/api/jobs/{JOB}/columns.bin",
    f"/api/jobs/{JOB}/cancel",
    "/api/kinds/collatz/marks/verified",
    "/api/kinds/thread/marks/verified",
    "/api/openapi.json",
    "/api/docs",
    "/metrics",
    "/static/x.js",
)
METHODS = (
    "GET",
    "GET",
    "GET",
    "POST",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "PUT",
    "PATCH",
    "TRACE",
    "CONNECT",
    "BREW",
    "get",
    "G\u00e9T",
)
NAMES = (
    "wait_seconds",
    "partial",
    "state",
    "type",
    "cursor",
    "limit",
    "names",
    "seconds",
    "points",
    "spans",
    "topics",
    "replica",
    "cell",
    "max_events",
    "t0",
    "t1",
    "px",
    "",
    "wait_seconds[]",
    "\x00",
    "%00",
    "__proto__",
)
VALUES = (
    "",
    "0",
    "1",
    "-1",
    "1.5",
    "1e3",
    "1e999",
    "-1e999",
    "nan",
    "inf",
    "-inf",
    "NaN",
    "true",
    "false",
    "null",
    "None",
    "%00",
    "\u0661",
    "%D9%A1",
    "%ff%fe",
    "%ed%a0%80",
    "%",
    "%zz",
    "%2",
    "+",
    " ",
    "%20",
    "*",
    "**",
    "*" * 200,
    "a" * 3000,
    "..",
    "/",
    "9" * 400,
    "9" * 5000,
    "9007199254740993",
    "18446744073709551616",
    "-9223372036854775809",
    "0x10",
    "01",
    "1_0",
    "done",
    "queued",
    "collatz",
    "thread",
    "jobs",
    "job:" + JOB,
    "jobs,workers,fleet,nodes,queues,alerts",
    "'",
    '"',
    "<script>",
    "${x}",
    "{}",
    "[]",
    "a,b,c",
    ",",
    ",,,,",
    "units.*",
    "(?:",
    "\\",
    "\u202e",
    "a" * 64,
    "a" * 65,
)
SEGMENTS = (
    "",
    ".",
    "..",
    "%2e%2e",
    "%2f",
    "%5c",
    "%00",
    "%0d%0a",
    "%ff",
    "%ed%a0%80",
    "\u00e9",
    "a" * 64,
    "a" * 65,
    "a" * 4000,
    "*",
    ";",
    ";a=b",
    "%",
    "%zz",
    "..%2f..%2fetc%2fpasswd",
    "api",
    "jobs",
    "~",
    "'",
    "{job_id}",
    "events",
    "result",
    "trace.json",
    ".json",
    ".bin",
    "x.json.bin",
    "cancel",
    "collatz",
    "verified",
    "__class__",
    "-1",
    "0",
    "\u202e",
    "con",
    JOB,
)
#: Header values. ODD contains those that HTTP itself forbids.
HEADERS: dict[str, tuple[str, ...]] = {
    "Last-Event-ID": (
        "",
        "0-0",
        "0-1",
        "1-1",
        "x",
        "1",
        "1-",
        "-1",
        "1-1-1",
        "9" * 20 + "-" + "9" * 20,
        "18446744073709551615-0",
        "18446744073709551616-0",
        "99999999999999999999-99999999999999999999",
        "\u0661-\u0661",
        "$",
        "+",
        "-",
        "1-1 ",
        "9" * 4000,
    ),
    "Idempotency-Key": (
        "",
        "k",
        "a" * 200,
        "a" * 201,
        "a" * 8000,
        "\u00e9",
        "\u202e",
        "{}",
        "%00",
        "a:b",
        "question:1:x",
        "*",
    ),
    "Host": (
        "",
        "127.0.0.1",
        "localhost",
        "evil.example",
        "127.0.0.1:99999",
        "[::1]",
        "a" * 3000,
        "..",
        "@",
        "a b",
        "\u00e9",
    ),
    "Origin": (
        "",
        "null",
        "http://evil.example",
        "http://127.0.0.1",
        "file://",
        "https://",
        "\u00e9",
        "http://127.0.0.1.evil.example",
    ),
    "Sec-Fetch-Site": ("cross-site", "same-origin", "none", "x"),
    "Authorization": ("", "Bearer", "Bearer ", "Bearer \u00e9", "Basic eDp5", "Bearer " + "a" * 5000, "bearer x", "x"),
    "Accept": ("", "*/*", "text/event-stream", "image/png", "application/json;q=nan", "," * 500),
    "Accept-Encoding": ("gzip", "br", "identity;q=0", "*;q=0"),
    "Content-Type": (
        "",
        "application/json",
        "text/plain",
        "application/json; charset=utf-16",
        "x",
        ";",
        "multipart/form-data",
    ),
    "Content-Length": ("0", "00", "+0", "-0", "0, 0"),
    "Expect": ("100-continue", "x"),
    "Upgrade": ("websocket", "h2c"),
    "Range": ("bytes=0-1", "bytes=-"),
    "X-Forwarded-For": ("127.0.0.1", "\u00e9"),
    "X-HTTP-Method-Override": ("DELETE",),
    "Cookie": ("a=b", ";" * 500),
    "If-None-Match": ("*", '"x"'),
    "If-Modified-Since": ("x",),
    "Access-Control-Request-Method": ("POST",),
}


def path(draw: random.Random) -> str:
    """Return a route unchanged, or with a segment inserted, changed or removed."""
    found = draw.choice(PATHS)
    change = draw.randrange(8)
    parts = found.split("/")
    place = draw.randrange(1, len(parts)) if len(parts) > 1 else 0
    if change == 0:
        parts[place] = draw.choice(SEGMENTS)
    elif change == 1:
        parts.insert(place, draw.choice(SEGMENTS))
    elif change == 2:
        parts.append("")
    elif change == 3:
        parts[place] = parts[place].upper()
    return "/".join(parts).replace(" ", "%20") or "/"


def query(draw: random.Random) -> str:
    pairs = []
    for _ in range(draw.choice((0, 0, 1, 1, 2, 5))):
        value = draw.choice(VALUES)
        pairs.append(f"{draw.choice(NAMES)}={quote(value) if draw.random() < 0.5 else value}")
    text = draw.choice(("&", "&", ";", "&&")).join(pairs).replace(" ", "+").replace("\x00", "%00")
    # A wait that was asked for is no hang; those of a second or more are tried elsewhere.
    return f"?{text}" if pairs and "wait_seconds=1" not in text else ""


def headers(draw: random.Random) -> dict[str, str]:
    names = draw.sample(sorted(HEADERS), draw.choice((0, 0, 1, 2, 4)))
    return {name: draw.choice(HEADERS[name]) for name in names}


def test_requests_of_every_sort_are_answered(cluster: Live, watch: Watch, plan: exploring.Plan) -> None:
    tally = counts.tally("requests")
    for draw in plan.random(share=0.1):
        for _ in range(1500):
            method, where, more = draw.choice(METHODS), path(draw) + query(draw), headers(draw)
            body = draw.choice((None, None, None, b"", b"{}", b"x"))
            answer = wire.send(cluster.ports[0], wire.request(method, where, more, body))
            wire.note(tally, f"{method} {where[:300]} {more} {body!r}", answer, raw=True)
    cluster.post("/api/workers/worker-0/drain", {"on": False})
    tally.check()


def test_every_value_of_every_name_is_answered(cluster: Live, watch: Watch) -> None:
    """Each value is tried on the routes with that name, because a random mix can omit some."""
    tally = counts.tally("queries")
    routes = {
        "/api/jobs": ("state", "type", "cursor", "limit"),
        "/api/history": ("names", "seconds", "points"),
        "/api/stream": ("seconds", "spans"),
        f"/api/jobs/{JOB}/result": ("partial",),
        "/api/events": ("topics",),
        f"/api/jobs/{JOB}/trace.json": ("replica",),
        f"/api/jobs/{JOB}": ("nothing",),
    }
    for route, names in routes.items():
        for name in names:
            for value in VALUES:
                where = f"{route}?{name}={quote(value, safe='%')}"
                wire.note(tally, where[:300], wire.send(cluster.ports[0], wire.request("GET", where)), raw=True)
    tally.check()


#: Requests that are not HTTP, or at the limits of HTTP.
ODD: dict[str, bytes] = {
    "no version": b"GET /health\r\n\r\n",
    "HTTP/0.9": b"GET /health HTTP/0.9\r\n\r\n",
    "HTTP/1.0 without a host": b"GET /health HTTP/1.0\r\n\r\n",
    "HTTP/1.1 without a host": b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n",
    "HTTP/9.9": b"GET /health HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 400 + b"\r\n\r\n",
    "an absolute address": wire.request("GET", "http://evil.example/health"),
    "an asterisk": wire.request("OPTIONS", "*"),
    "a path that is long": wire.request("GET", "/" + "a" * 70_000),
    "a query that is long": wire.request("GET", "/api/jobs?type=" + "a" * 70_000),
    "a fragment": wire.request("GET", "/health#x"),
    "two hosts": b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
    "a header without a name": b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n: x\r\nConnection: close\r\n\r\n",
    "a header without a colon": b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nnonsense\r\nConnection: close\r\n\r\n",
    "a header that is folded": b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\r\n b\r\nConnection: close\r\n\r\n",
    "a zero byte in a header": b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\x00b\r\nConnection: close\r\n\r\n",
    "a name with a space": b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX : a\r\nConnection: close\r\n\r\n",
    "line feeds alone": b"GET /health HTTP/1.1\nHost: 127.0.0.1\nConnection: close\n\n",
    "a line break in a path": b"GET /health%0d%0aX:%20y HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    "a method that is long": b"A" * 9000 + b" / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    "a thousand headers": wire.request("GET", "/health", {f"X-{n}": "y" for n in range(1000)}),
    "a header of 60 KB": wire.request("GET", "/health", {"X": "y" * 60_000}),
}


@pytest.mark.parametrize("what", sorted(ODD))
def test_what_is_hardly_http_is_answered_or_closed(what: str, cluster: Live, watch: Watch) -> None:
    tally = counts.tally("hardly HTTP")
    wire.note(tally, what, wire.send(cluster.ports[0], ODD[what]), raw=True)
    tally.check()


#: The first value is within the limit of a name; the others are beyond.
STARS = [
    "*" * 8 + "X",
    "*" * 7 + "X*",
    "*e" * 8 + "!",
    ",".join(["*a*e*i*o*u*s*X"] * 60),
    "*" * 14 + "X",
    "*" * 300 + "X",
    "*a" * 60 + "!",
    "*," * 900 + "X",
]


@pytest.mark.alone
def test_patterns_of_stars_freeze_nobody(cluster: Live, watch: Watch) -> None:
    """Fifty are sent at once, while `watch` checks that the health endpoint answers."""
    tally = counts.tally("patterns of stars")

    def ask(number: int) -> None:
        where = f"/api/history?names={STARS[number % len(STARS)]}&seconds=3600"
        wire.note(tally, where[:200], wire.send(cluster.ports[0], wire.request("GET", where)))

    with ThreadPoolExecutor(50) as pool:
        list(pool.map(ask, range(50)))
    tally.check()


def test_stars_stand_for_anything(cluster: Live) -> None:
    names = cluster.get("/api/history?names=***jobs*.**don*")["series"]
    assert set(names) <= {"jobs.done"}
