"""Tests all sorts of request bodies: each is answered or rejected, and the coordinator remains fast and small."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.hostile import bodies, counts, exploring, wire
from tests.hostile.watching import Watch
from tests.integration.live import Live


def accepted_jobs(answer: wire.Answer) -> list[str]:
    """Return the jobs that a mutated body may have submitted."""
    told = answer.json() if answer.status in (200, 202) and answer.body else {}
    answers = told.get("answers", [told])
    return [one["job_id"] for one in answers if "job_id" in one and "estimated_wait_seconds" in one]


def post(cluster: Live, tally: counts.Counts, what: str, route: str, body: bytes, **headers: str) -> None:
    answer = wire.send(cluster.ports[0], wire.posted(route, body, **headers))
    wire.note(tally, f"POST {route} {what}", answer)
    for job in accepted_jobs(answer):
        wire.send(cluster.ports[0], wire.posted(f"/api/jobs/{job}/cancel", b""))


@pytest.mark.parametrize("route", bodies.ROUTES)
def test_odd_bodies_are_answered(route: str, cluster: Live, watch: Watch) -> None:
    tally = counts.tally("odd bodies")
    for what, body in bodies.odd():
        headers = {"Content_Encoding": "gzip"} if what == "gzip" else {}
        post(cluster, tally, what, route, body, **headers)
    tally.check()


def test_mutated_bodies_are_answered(cluster: Live, watch: Watch, plan: exploring.Plan) -> None:
    tally = counts.tally("mutated bodies")
    for draw in plan.random(share=0.1):
        for _ in range(400):
            body = bodies.mutated(draw)
            post(cluster, tally, repr(body[:600]), draw.choice(bodies.ROUTES), body)
    tally.check()


@pytest.mark.parametrize("declared", ["text/plain", "", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_other_types_of_content_are_answered(declared: str, cluster: Live, watch: Watch) -> None:
    tally = counts.tally("types of content")
    for route, body in zip(bodies.ROUTES, bodies.VALID, strict=True):
        post(cluster, tally, f"as {declared!r}", route, body, Content_Type=declared)
    tally.check()


#: Requests with broken, incomplete or missing framing.
FRAMES: dict[str, tuple[dict[str, str], bytes]] = {
    "a chunk that is no number": ({"Transfer-Encoding": "chunked"}, b"zz\r\n{}\r\n0\r\n\r\n"),
    "a chunk of endless size": ({"Transfer-Encoding": "chunked"}, b"f" * 40 + b"\r\n{}\r\n0\r\n\r\n"),
    "a negative chunk": ({"Transfer-Encoding": "chunked"}, b"-2\r\n{}\r\n0\r\n\r\n"),
    "tiny chunks": ({"Transfer-Encoding": "chunked"}, b"1\r\n[\r\n" * 5000 + b"0\r\n\r\n"),
    "a trailer": ({"Transfer-Encoding": "chunked"}, b"2\r\n{}\r\n0\r\nX: y\r\n\r\n"),
    "both lengths": ({"Transfer-Encoding": "chunked", "Content-Length": "2"}, b"2\r\n{}\r\n0\r\n\r\n"),
    "a negative length": ({"Content-Length": "-1"}, b"{}"),
    "a length of letters": ({"Content-Length": "many"}, b"{}"),
    "a length beyond all": ({"Content-Length": "9" * 30}, b"{}"),
    "an encoding of its own": ({"Transfer-Encoding": "gzip, chunked"}, b"2\r\n{}\r\n0\r\n\r\n"),
    "less than it says": ({"Content-Length": "1"}, b"{}"),
}


@pytest.mark.parametrize("what", sorted(FRAMES))
def test_broken_framing_is_answered_or_closed(what: str, cluster: Live, watch: Watch) -> None:
    tally = counts.tally("framing")
    headers, body = FRAMES[what]
    declared = {"Content-Type": "application/json", **headers}
    wire.note(tally, what, wire.send(cluster.ports[0], wire.request("POST", "/api/submit", declared, body)), raw=True)
    tally.check()


def test_who_leaves_in_mid_body_leaves_nothing_in_the_log(cluster: Live, watch: Watch) -> None:
    tally = counts.tally("left in mid-body")
    for size in (0, 1, 10, 5000):
        wire.send(cluster.ports[0], wire.posted("/api/submit", b"[" * size, Content_Length="100000"), finish=False)
        tally.accept()
    assert wire.send(cluster.ports[0], wire.request("GET", "/health")).status == 200
    log = cluster.log("coordinator-0")
    assert "Traceback" not in log and "unexpected server error" not in log, log[-2000:]


@pytest.mark.alone
def test_bombs_hurt_nobody_else(cluster: Live, watch: Watch, plan: exploring.Plan) -> None:
    """Twenty are sent at once, while `watch` checks that the health endpoint answers."""
    tally = counts.tally("bombs")

    def throw(what: str) -> None:
        route, body = bodies.BOMBS[what]()
        post(cluster, tally, what, route, body)

    for seed in plan.rounds(share=0.1):
        names = list(bodies.BOMBS)
        random.Random(seed).shuffle(names)
        with ThreadPoolExecutor(20) as pool:
            list(pool.map(throw, names))
    tally.check()


@pytest.mark.alone
def test_bombs_of_a_worker_hurt_nobody_else(cluster: Live, watch: Watch, plan: exploring.Plan) -> None:
    """A worker with a token sends eight at once."""
    tally = counts.tally("bombs of a worker")
    token = cluster.remote("bomber")["WORKER_TOKEN"]

    def throw(what: str) -> None:
        call, body = bodies.WORKER_BOMBS[what]()
        post(cluster, tally, what, f"/api/worker/{call}", body, Authorization=f"Bearer {token}")

    for seed in plan.rounds(share=0.1):
        names = list(bodies.WORKER_BOMBS)
        random.Random(seed).shuffle(names)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(throw, names))
    tally.check()
