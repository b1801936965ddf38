"""Redis holds what nobody wrote: whatever a key is turned into, the API answers.

A job that is sound is accepted, unless the spoiled key is an index of jobs: the refusal then names it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.hostile import counts, exploring, wire
from tests.integration.live import Live, running

JUNK = (
    b"",
    b"x",
    b"-1",
    b"1e400",
    b"9" * 400,
    b"\xff\xfe",
    b"{",
    b"null",
    b"[]",
    b"nan",
    b"1:2",
    b"\x00",
    b"cpu.normal",
)
READS = (
    "/ready",
    "/api/status",
    "/api/workers",
    "/api/snapshot",
    "/api/history",
    "/api/stream",
    "/api/jobs?limit=20",
    "/api/jobs?state=queued",
    "/api/kinds/collatz/marks/verified",
)

#: Error message of a rejected job because an index in Redis cannot be read.
BROKEN = re.compile(rb"the key (\S+) in redis is broken, so no jobs are accepted")


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start a cluster without a worker, so that queued jobs remain."""
    with running(tmp_path_factory.mktemp("spoiled"), workers=0) as live:
        yield live


def spoil(client: Any, draw: random.Random) -> str:
    """Replace one key of the cluster by another value, and return its name."""
    name = draw.choice(sorted(client.scan_iter("ct:*")))
    junk, fields = draw.choice(JUNK), client.hkeys(name) if client.type(name) == b"hash" else []
    # One transaction, because the leader could write the key between two commands.
    anew = client.pipeline().delete(name)
    changes: list[Callable[[], Any]] = [
        lambda: client.set(name, junk),
        lambda: anew.rpush(name, junk, b"y").execute(),
        lambda: anew.hset(name, junk, junk).execute(),
        lambda: anew.zadd(name, {junk: draw.choice((0, -1e300, float("inf")))}).execute(),
        lambda: anew.xadd(name, {junk: junk}).execute(),
        lambda: client.delete(name),
    ]
    if fields:
        field = draw.choice(fields)
        changes += [lambda: client.hset(name, field, junk), lambda: client.hdel(name, field)] * 4
    number = draw.randrange(len(changes))
    changes[number]()
    return f"{name!r} change {number} to {junk!r}"


def blames(answer: wire.Answer, spoiled: str) -> bool:
    """Return True if a change was rejected because of a key that the test has changed. The operator must rebuild it."""
    broken = BROKEN.search(answer.body) if answer.status == 503 else None
    return broken is not None and repr(broken[1]) in spoiled


def test_spoiled_keys_stop_no_answers(spoiled: Live, plan: exploring.Plan) -> None:
    tally = counts.tally("spoiled keys of Redis")
    body = b'{"type": "collatz", "parameters": {"start_number": 27, "number_count": 1}}'
    port, client = spoiled.ports[0], spoiled.redis()
    for draw in plan.random(share=0.1):
        for _ in range(40):
            client.flushdb()
            job = spoiled.submit("collatz", {"start_number": 1, "number_count": 10**9})
            what = " and ".join(spoil(client, draw) for _ in range(draw.choice((1, 1, 3))))
            for path in (*READS, f"/api/jobs/{job}", f"/api/jobs/{job}/result"):
                wire.note(tally, f"{what}: GET {path}", wire.send(port, wire.request("GET", path)))
            for path in ("/api/submit", f"/api/jobs/{job}/cancel", f"/api/jobs/{job}/retry"):
                answer = wire.send(port, wire.posted(path, body))
                if blames(answer, what):
                    tally.refuse("a broken index")
                else:
                    wire.note(tally, f"{what}: POST {path}", answer)
    tally.check()


def test_a_job_without_one_of_its_fields_stops_no_answers(spoiled: Live) -> None:
    tally = counts.tally("lost fields of a job")
    port, client = spoiled.ports[0], spoiled.redis()
    client.flushdb()  # another test has spoiled keys
    job = spoiled.submit("collatz", {"start_number": 1, "number_count": 10**9})
    fields = client.hgetall(f"ct:job:{job}")
    for field, value in fields.items():
        client.hdel(f"ct:job:{job}", field)
        for path in ("/api/jobs?limit=20", "/api/snapshot", f"/api/jobs/{job}"):
            wire.note(tally, f"without {field!r}: GET {path}", wire.send(port, wire.request("GET", path)))
        client.hset(f"ct:job:{job}", field, value)
    tally.check()
