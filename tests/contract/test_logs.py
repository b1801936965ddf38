"""Tests programs' logs over HTTP: by range when a unit has finished, and live."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from jobs.store import Store, keys
from jobs.store.server import connection
from jobs.store.server.connection import CoordinatorRejects
from jobs.store.tenancy.tenants import Tenant
from jobs.store.work.live_output import FOLLOW_MS, MAX_BYTES, MOST_FOLLOWED
from jobs.worker.api.api_files import Stale
from tests.contract.api_transport import Served, serve
from tests.contract.fake_runner import Runner, running, submit, written

LOG = b"out 1\nerr 1\nout 2\n\xff\x00end"
STREAMS = [[6, 6]]
OUT, ERR = b"out 1\nout 2\n\xff\x00end", b"err 1\n"


@pytest.fixture
def served(any_redis_url: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr("coordinator.logs.live.OUTAGE_SECONDS", 60.0)  # a busy machine is no outage
    with serve(any_redis_url, store, artifact_url=f"file://{tmp_path}/store", cluster_token="t" * 32) as made:
        yield made


@pytest.fixture
def reader(served: Served) -> Iterator[httpx.Client]:
    """Return a user with read access."""
    with client(served, served.token("reader", "read")) as made:
        yield made


def client(served: Served, token: str) -> httpx.Client:
    return httpx.Client(base_url=str(served.place), headers={"Authorization": f"Bearer {token}"}, timeout=60)


def left(runner: Runner, tmp_path: Path, tree: dict[str, bytes], *units: int) -> None:
    runner.files("j").keep(written(tmp_path / f"left-{next(_numbers)}", tree), units)


_numbers = itertools.count()


def log(reader: httpx.Client, unit: int = 3, **asked: Any) -> tuple[bytes, int]:
    answer = reader.get(f"/api/jobs/j/logs/{unit}", params=asked)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    return answer.content, int(answer.headers["X-Log-Bytes"])


def why_not(reader: httpx.Client, unit: int = 3, status: int = 404, job: str = "j", **asked: Any) -> str:
    answer = reader.get(f"/api/jobs/{job}/logs/{unit}", params=asked)
    assert answer.status_code == status, answer.text
    return str(answer.json()["detail"])


# -- by range ---------------------------------------------------------------------------------------------------------


def test_a_log_is_read_by_range_and_by_stream(
    served: Served, store: Store, reader: httpx.Client, tmp_path: Path
) -> None:
    runner = running(served, store)
    left(runner, tmp_path, {"logs/3": LOG, "logs/3.streams": json.dumps(STREAMS).encode(), "logs/4": b"only out"}, 3, 4)
    assert log(reader) == (LOG, len(LOG))
    for stream, whole in (("all", LOG), ("stdout", OUT), ("stderr", ERR)):
        for start in range(len(whole) + 2):
            for limit in (1, 3, 100):
                found = log(reader, stream=stream, **{"from": start}, limit=limit)
                assert found == (whole[start : start + limit], len(whole)), (stream, start, limit)
    assert log(reader, 4, stream="stdout") == (b"only out", 8)
    assert log(reader, 4, stream="stderr") == (b"", 0)


def test_why_there_is_no_log_is_said(served: Served, store: Store, reader: httpx.Client, tmp_path: Path) -> None:
    assert why_not(reader, job="none").startswith("no job none")
    submit(store, "k", kind="sum", queue="any.normal")
    assert why_not(reader, job="k") == "jobs of kind sum do not run programs, so they have no logs"
    store.jobs.cancel("k")
    submit(store, total=10, kind="command")
    assert why_not(reader) == "unit 3 has not started"
    assert why_not(reader, 10) == "unit 10 does not exist; job j has units 0 to 9"
    runner = Runner(served)
    runner.takes("j", want=5)
    assert why_not(reader) == "unit 3 is still running; follow it at GET /api/jobs/j/logs/3/follow"
    assert why_not(reader, 7) == "unit 7 has not started"
    left(runner, tmp_path, {"outputs/3/a": b"1"}, 3)
    runner.api.leases.commit("j", "t", 4, b"{}", ms=1, worker="", device="runner")
    assert why_not(reader) == "unit 3 wrote nothing"
    assert why_not(reader, 2) == "unit 2 wrote nothing", "it never wrote anything at all"
    store.jobs.cancel("j")
    assert "was not started, because its job is cancel" in why_not(reader, 7)


def test_a_log_of_another_tenant_is_as_none(served: Served, store: Store, tmp_path: Path) -> None:
    store.tenants.put(Tenant(name="other"))
    left(running(served, store), tmp_path, {"logs/3": LOG}, 3)
    with client(served, served.token("o", "read", "submit", "run", tenant="other")) as other:
        assert why_not(other).startswith("no job j")
        assert other.get("/api/jobs/j/logs/3/follow").status_code == 404
    with client(served, served.token("w")) as worker:
        assert worker.get("/api/jobs/j/logs/3").status_code == 403
        assert worker.get("/api/jobs/j/logs/3/follow").status_code == 403


def test_a_list_of_streams_that_is_none_is_said(
    served: Served, store: Store, reader: httpx.Client, tmp_path: Path
) -> None:
    runner = running(served, store)
    bad = [b"{}", b"[1]", b"[[0,1000]]", b"[[5,3],[6,1]]", b"[[-1,2]]", b"[[0,0]]", b"not json", b"[" * 10_000]
    tree = {f"logs/{unit}": LOG for unit in range(len(bad))}
    tree |= {f"logs/{unit}.streams": text for unit, text in enumerate(bad)}
    left(runner, tmp_path, {**tree, "logs/99": LOG, "logs/99.streams": b" " * (5 << 20)}, *range(100))
    for unit in range(len(bad)):
        assert "request stream=all" in why_not(reader, unit, 409, stream="stderr")
        assert log(reader, unit)[0] == LOG
    assert "too often" in why_not(reader, 99, 413, stream="stdout")
    assert why_not(reader, 3, 422, limit=0) and why_not(reader, 3, 422, stream="stdin")


def test_a_log_that_changes_streams_at_every_byte_is_read_whole(
    served: Served, store: Store, reader: httpx.Client, tmp_path: Path
) -> None:
    size = 300_000
    rows = [[at, 1] for at in range(0, size, 2)]
    left(
        running(served, store),
        tmp_path,
        {
            "logs/3": b"eo" * (size // 2),
            "logs/3.streams": json.dumps(rows, separators=(",", ":")).encode(),
        },
        3,
    )
    for stream, letter in (("stdout", b"o"), ("stderr", b"e")):
        data = b""
        while len(data) < size // 2:
            data += log(reader, stream=stream, **{"from": len(data)})[0]
        assert data == letter * (size // 2)


def test_bytes_that_lie_far_apart_come_in_several_answers(
    served: Served, store: Store, reader: httpx.Client, tmp_path: Path
) -> None:
    size = 40 << 20
    rows = [[at, 2] for at in range(1000, size, 60_000)]
    with (tmp_path / "big").open("wb") as big:
        big.truncate(size)
    tree = {"logs/3": (tmp_path / "big").read_bytes(), "logs/3.streams": json.dumps(rows).encode()}
    left(running(served, store), tmp_path, tree, 3)
    read, total = log(reader, stream="stderr")
    assert 0 < len(read) < total == 2 * len(rows), "no answer reads more than 16 MiB"
    while len(read) < total:
        more = log(reader, stream="stderr", **{"from": len(read)})[0]
        assert more
        read += more
    assert read == bytes(total)


def test_a_log_whose_bytes_the_store_has_lost_is_said(
    served: Served, store: Store, reader: httpx.Client, tmp_path: Path
) -> None:
    left(running(served, store), tmp_path, {"logs/3": LOG}, 3)
    for path in (tmp_path / "store" / "default").rglob("*"):
        if path.is_file() and path.read_bytes() == LOG:
            path.unlink()
    assert "has lost the contents" in why_not(reader, status=409)


# -- of many units ----------------------------------------------------------------------------------------------------


def excerpts(reader: httpx.Client, **asked: Any) -> dict[str, Any]:
    answer = reader.get("/api/jobs/j/logs", params=asked)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_logs_of_all_units_are_searched_and_show_their_last_lines(
    served: Served, store: Store, reader: httpx.Client, tmp_path: Path
) -> None:
    runner = running(served, store)
    noise = b"step\n" * 20_000
    tree = {"logs/3": LOG, "logs/3.streams": json.dumps(STREAMS).encode(), "logs/4": noise + b"ERR last"}
    left(runner, tmp_path, tree, 3, 4, 5)
    found = excerpts(reader, search="err")
    out, err = {"stream": "stdout"}, {"stream": "stderr"}
    assert [(each["unit"], each["lines"]) for each in found["units"]] == [
        (3, [err | {"text": "err 1"}]),
        (4, [out | {"text": "ERR last"}]),
    ]
    assert (found["searched"], found["next"]) == (100, None)
    # Without a text, the answer contains the last lines, and counts earlier ones of the part that was read.
    [three, four] = excerpts(reader, lines=2)["units"]
    assert [line["text"] for line in three["lines"]] == ["out 2", "\ufffd\x00end"] and three["omitted"] == 2
    assert [line["text"] for line in four["lines"]] == ["step", "ERR last"] and four["omitted"] > 10_000
    assert [each["unit"] for each in excerpts(reader, stream="stderr")["units"]] == [3]
    assert excerpts(reader, state="dead")["units"] == [] and excerpts(reader, **{"from": 5})["units"] == []
    assert reader.get("/api/jobs/j/logs", params={"search": "x" * 201}).status_code == 422
    assert reader.get("/api/jobs/none/logs").status_code == 404


def test_a_search_of_many_logs_continues_where_a_request_ended(
    served: Served, store: Store, reader: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.logs.excerpts.MOST_UNITS", 4)
    monkeypatch.setattr("coordinator.logs.excerpts.MOST_LINES", 3)
    runner = running(served, store)
    left(runner, tmp_path, {f"logs/{unit}": b"a\na\n" for unit in range(10)}, *range(10))
    units, place, answers = [], 0, 0
    while place is not None:
        found = excerpts(reader, search="a", **{"from": place})
        units += [each["unit"] for each in found["units"]]
        assert len(found["units"]) <= 2, "no more lines than a response may have, but the last unit is whole"
        place, answers = found["next"], answers + 1
        assert answers < 60
    assert units == list(range(10))


# -- live -------------------------------------------------------------------------------------------------------------


class Follower:
    """Reads the events of one unit."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.iter_lines()

    def next(self) -> tuple[str, dict[str, Any]]:
        """Return the next event, ignoring pings."""
        name = ""
        for line in self._lines:
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                return name, json.loads(line[6:])
        return "closed", {}

    def bytes(self, size: int, start: int = 0) -> bytes:
        """Return a number of bytes of both streams from a position on, without dropped bytes."""
        data = b""
        while len(data) < size:
            name, row = self.next()
            assert (name, row.get("offset")) == ("output", start + len(data)), (name, row)
            data += base64.b64decode(row["data"])
        return data


@contextmanager
def following(reader: httpx.Client, unit: int = 3, **headers: str) -> Iterator[Follower]:
    with reader.stream("GET", f"/api/jobs/j/logs/{unit}/follow", headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        yield Follower(answer)


def asking(token: str) -> bytes:
    """Return the request of a follower that is only a socket."""
    head = f"Host: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    return f"GET /api/jobs/j/logs/3/follow HTTP/1.1\r\n{head}".encode()


def say(runner: Runner, text: bytes, offset: int = 0, unit: int = 3, attempt: int = 1, stream: str = "o") -> bool:
    return runner.files("j").output(unit, attempt, offset, [(stream, text)])


def test_what_a_unit_writes_is_heard_at_once_and_to_its_end(
    served: Served, store: Store, reader: httpx.Client, tmp_path: Path
) -> None:
    runner = running(served, store)
    assert not say(runner, b"nobody hears this")
    assert not store.client.exists(keys.output("j")), "nothing is kept for nobody"
    with following(reader) as follower:
        assert runner.files("j").output(3, 1, 0, [("o", b"one\n"), ("e", b"tw\xff\n")])
        run = hashlib.sha256(b"r/t").hexdigest()[:8]
        assert follower.next() == (
            "output",
            {
                "unit": 3,
                "attempt": 1,
                "run": run,
                "offset": 0,
                "stream": "stdout",
                "text": "one\n",
                "data": "b25lCg==",
            },
        )
        name, row = follower.next()
        assert (name, row["offset"], row["stream"], row["text"]) == ("output", 4, "stderr", "tw\ufffd\n")
        assert not say(runner, b"of another unit", unit=4)
        assert say(runner, b"three", 8)
        left(runner, tmp_path, {"logs/3": b"one\ntw\xff\nthree"}, 3)
        runner.api.leases.commit("j", "t", 4, b"{}", ms=1, worker="", device="runner")
        assert follower.next()[1]["text"] == "three"
        assert follower.next() == ("end", {"state": "done", "exit": 0, "bytes": 13})
        assert follower.next()[0] == "closed"
    with following(reader) as late:
        assert late.bytes(13) == b"one\ntw\xff\nthree", "for a minute it is heard again"
        assert late.next() == ("end", {"state": "done", "exit": 0, "bytes": 13})
    assert reader.get("/api/jobs/j/logs/3/follow", headers={"Last-Event-ID": "1-0"}).status_code == 204


def test_a_unit_that_has_not_started_is_waited_for(served: Served, store: Store, reader: httpx.Client) -> None:
    submit(store, kind="command")
    with following(reader) as follower:
        runner = Runner(served)
        runner.takes("j")
        assert say(runner, b"here")
        assert follower.bytes(4) == b"here"
        store.jobs.cancel("j")
        runner.api.leases.release("j", "t")
        assert follower.next() == ("end", {"state": "cancelled", "exit": None, "bytes": 0})


def test_a_job_that_is_deleted_ends_what_follows_it(served: Served, store: Store, reader: httpx.Client) -> None:
    submit(store, kind="command")
    with following(reader) as follower:
        store.jobs.cancel("j")
        store.jobs.delete("j")
        assert follower.next()[1]["state"] in ("cancelled", "deleted")


def test_a_beat_names_the_jobs_that_are_followed(served: Served, store: Store, reader: httpx.Client) -> None:
    running(served, store)
    jobs = frozenset({"j", "other"})
    now = lambda: store.clock.now() * 1000  # noqa: E731
    assert not store.live_output.followed(now())
    with following(reader):
        assert store.live_output.followed(now()) & jobs == {"j"}
        assert not store.live_output.followed(now() + FOLLOW_MS + 1), "it ends unless it is renewed"
    until = time.monotonic() + 60
    while store.live_output.followed(now()) and time.monotonic() < until:
        time.sleep(0.05)
    assert time.monotonic() < until, "who follows no more says so"


def test_an_attempt_begins_anew_and_an_earlier_one_is_not_heard(
    served: Served, store: Store, reader: httpx.Client
) -> None:
    runner = running(served, store)
    with following(reader) as follower:
        say(runner, b"first", 0)
        say(runner, b"second", 0, attempt=2)
        say(runner, b"late", 5, attempt=1)
        say(runner, b"more", 6, attempt=2)
        heard = [(row["attempt"], row["offset"], row["text"]) for _, row in (follower.next() for _ in range(3))]
        assert heard == [(1, 0, "first"), (2, 0, "second"), (2, 6, "more")]


def test_a_program_that_another_worker_starts_again_is_heard_from_its_beginning(
    served: Served, store: Store, reader: httpx.Client
) -> None:
    first = running(served, store)
    with following(reader) as follower:
        say(first, b"half of i", 0)
        assert follower.bytes(9)
        first.api.slots.leave("")
        assert first.api.leases.release("j", "t")
        second = Runner(served, "s")
        second.takes("j")
        with pytest.raises(Stale):
            say(first, b"t", 9)
        say(second, b"half of it", 0)
        name, row = follower.next()
        assert (name, row["offset"], row["text"], row["attempt"]) == ("output", 0, "half of it", 1)
        assert row["run"] == hashlib.sha256(b"s/t").hexdigest()[:8]


def test_a_runner_that_lies_about_the_offset_harms_nobody(served: Served, store: Store, reader: httpx.Client) -> None:
    runner = running(served, store)
    with following(reader) as follower:
        assert say(runner, b"abcdef", 0)
        assert say(runner, b"abcdefgh", 0), "sent again, and more"
        assert say(runner, b"xy", 2)
        assert say(runner, b"far", 2**50)
        assert say(runner, b"back", 8)
        events = [follower.next() for _ in range(4)]
    assert [(name, row.get("text"), row.get("offset", row.get("bytes"))) for name, row in events] == [
        ("output", "abcdef", 0),
        ("output", "gh", 6),
        ("dropped", None, 2**50 - 8),
        ("output", "far", 2**50),
    ]


def test_streams_that_alternate_at_every_byte_are_heard(served: Served, store: Store, reader: httpx.Client) -> None:
    runner = running(served, store)
    with following(reader) as follower:
        assert runner.files("j").output(3, 1, 0, [("oe"[number % 2], b"%d" % (number % 10)) for number in range(32768)])
        assert follower.bytes(32768) == (b"0123456789" * 3277)[:32768]
        assert runner.files("j").output(3, 1, 32768, [])


def test_what_is_no_output_is_refused(served: Served, store: Store, reader: httpx.Client) -> None:
    runner = running(served, store)
    call = runner.api.api.call
    good = {"lease": "t", "unit": 3, "attempt": 1, "offset": 0, "chunks": [["o", "YQ=="]]}
    assert call("jobs/j/output", good) == {"follow": False}
    for name, value in (
        ("unit", -1),
        ("unit", 2**53 + 1),
        ("attempt", 0),
        ("offset", -1),
        ("chunks", [["x", "YQ=="]]),
        ("chunks", [["o", "no base64"]]),
        ("chunks", [["o"]]),
        ("chunks", [["o", "YQ=="]] * 1001),
        ("lease", "other/t"),
        ("more", 1),
    ):
        with pytest.raises(CoordinatorRejects, match=r"\(422\)"):
            call("jobs/j/output", {**good, name: value})
    with pytest.raises(CoordinatorRejects, match=r"\(413\)"):
        say(runner, bytes(MAX_BYTES + 1))
    with pytest.raises(Stale):
        say(runner, b"of no unit of the lease", unit=100)
    stranger = Runner(served, "stranger")
    with following(reader), pytest.raises(Stale):
        say(stranger, b"I am not r")


def test_a_program_that_writes_for_ever_costs_256_kib_and_is_dropped(
    served: Served, store: Store, reader: httpx.Client
) -> None:
    runner = running(served, store)
    sent = 0
    with following(reader) as follower:
        for _ in range(60):  # 3.75 MiB
            assert say(runner, bytes(MAX_BYTES), sent)
            sent += MAX_BYTES
        kept = store.client.xrange(keys.output("j"))
        assert sum(len(fields[b"data"]) for _, fields in kept) <= 256 << 10
        assert 0 < store.client.pttl(keys.output("j")) <= 60_000
        until = time.monotonic() + 60
        dropped = seen = 0
        while seen + dropped < sent and time.monotonic() < until:
            time.sleep(0.2)
            say(runner, b".", sent)
            name, row = follower.next()
            seen, dropped = seen + len(row.get("text", "")), dropped + (row["bytes"] if name == "dropped" else 0)
        assert dropped > 0 and seen + dropped >= sent, "what is not heard is said"
        for number in range(3000):
            if number % 500 == 0:
                assert store.client.memory_usage(keys.output("j")) < 1 << 20
            store.live_output.add("j", "r/t", 3, 1, number, [("o", b"x")])


def test_a_follower_that_does_not_read_holds_up_nobody(served: Served, store: Store, reader: httpx.Client) -> None:
    runner = running(served, store)
    token = served.token("slow", "read")
    with socket.create_connection((served.place.host, served.place.port)) as stalled, following(reader) as follower:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.sendall(asking(token))
        live = served.app.state.coordinator.live
        until = time.monotonic() + 60
        while len(live) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        sent = 0
        for _ in range(100):
            store.client.delete(keys.outputs("j"), keys.output("j"))  # as if time went by
            assert say(runner, b"x" * 32768, sent)
            assert len(follower.bytes(32768, sent)) == 32768
            sent += 32768
        waiting = [one.buffered_bytes for channel in live.channels.values() for one in channel.listeners]
        assert max(waiting) <= 128 << 10 and len(waiting) == 2


def test_a_thousand_followers_hold_no_threads(served: Served, store: Store, reader: httpx.Client) -> None:
    runner = running(served, store)
    token = served.token("many", "read")
    live = served.app.state.coordinator.live
    threads = threading.active_count()  # those of servers of other tests too
    with ExitStack() as stack:
        several = [
            stack.enter_context(socket.create_connection((served.place.host, served.place.port), timeout=60))
            for _ in range(1000)
        ]
        for one in several:
            one.sendall(asking(token))
        until = time.monotonic() + 120
        while len(live) < 1000 and time.monotonic() < until:
            time.sleep(0.05)
        assert len(live) == 1000
        assert threading.active_count() - threads < 100, "the pool of the loop has 40"
        assert say(runner, b"to all of you")
        for one in several:
            data = b""
            while b"to all of you" not in data:
                data += one.recv(65536)
        assert reader.get("/api/jobs/j/logs/3").status_code == 404, "while they all go on"
        assert len(live) == 1000
    until = time.monotonic() + 60
    while (len(live) or live.channels) and time.monotonic() < until:
        time.sleep(0.05)
    assert not len(live) and not live.channels, "who is gone is forgotten"


def test_at_most_256_units_are_followed_at_once(served: Served, store: Store, reader: httpx.Client) -> None:
    submit(store, total=1000, kind="command")
    follow, leave = store.live_output.follow, store.live_output.leave
    for unit in range(500, 500 + MOST_FOLLOWED):
        assert follow("j", unit, "default")
    answer = reader.get("/api/jobs/j/logs/3/follow")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "15")
    assert answer.json()["detail"].startswith("256 units are being followed")
    until = follow("j", 500, "default")
    assert until, "one of them is renewed"
    leave("j", 500, "default", until - 1)
    assert not follow("j", 3, "default"), "somebody else has renewed it"
    leave("j", 500, "default", until)
    assert follow("j", 3, "default")
    store.client.zadd(keys.FOLLOWED, {f"default/j|{unit}": 1 for unit in range(500, 600)})
    assert follow("j", 4, "default"), "who does not renew makes room"


def test_no_tenant_keeps_others_from_following(served: Served, store: Store) -> None:
    follow = store.live_output.follow
    for unit in range(300):
        assert bool(follow("greedy", unit, "greedy")) == (unit < MOST_FOLLOWED)
    for unit in range(300):
        assert bool(follow("small", unit, "small")) == (unit < MOST_FOLLOWED // 2), unit
    assert not follow("greedy", 299, "greedy")
    assert follow("third", 0, "third")
    assert store.client.zcard(keys.FOLLOWED) == MOST_FOLLOWED


def test_a_reader_goes_on_where_it_was(served: Served, store: Store, reader: httpx.Client) -> None:
    runner = running(served, store)
    with following(reader) as first_of_all:
        say(runner, b"one", 0)
        say(runner, b"two", 3)
        [first, _] = [place.decode() for place, _ in store.client.xrange(keys.output("j"))]
        with following(reader, **{"Last-Event-ID": first}) as follower:
            assert follower.next()[1]["text"] == "two"
        with following(reader) as follower:
            assert follower.bytes(6) == b"onetwo", "who comes later hears what was said lately"
        say(runner, b"x" * 100, 6)
        assert first_of_all.bytes(106) == b"onetwo" + b"x" * 100, "what is under way would reach who comes next"
        store.client.delete(keys.output("j"))
        with following(reader) as follower:
            say(runner, b"later", 106)
            assert follower.next() == ("dropped", {"bytes": 106})


def test_a_token_that_is_revoked_hears_no_more(served: Served, store: Store) -> None:
    runner = running(served, store)
    token = served.token("gone", "read")
    with client(served, token) as gone, following(gone) as follower:
        say(runner, b"one", 0)
        assert follower.bytes(3)
        mine = next(row for row in store.tokens.all() if row.name == "gone")
        store.tokens.revoke(mine.id)
        until, at = time.monotonic() + 60, 3
        while time.monotonic() < until:
            time.sleep(0.3)
            say(runner, b".", at)
            at += 1
            if follower.next()[0] == "closed":
                break
        assert time.monotonic() < until


def test_redis_that_stops_while_somebody_follows_ends_the_stream_and_it_is_taken_up_again(
    served: Served, store: Store, reader: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = running(served, store)
    live = served.app.state.coordinator.live
    with following(reader) as follower:
        say(runner, b"one", 0)
        assert follower.bytes(3) == b"one"
        wait = live.store.live_output.wait

        def stopped(*_: Any, **__: Any) -> Any:
            raise connection.SilenceError("no answer")

        live.store.live_output.wait = stopped
        with monkeypatch.context() as impatient:
            impatient.setattr("coordinator.logs.live.OUTAGE_SECONDS", 1.0)
            assert follower.next()[0] == "closed", "its reader comes again, and is told why"
        live.store.live_output.wait = wait
    with following(reader) as follower:
        assert follower.bytes(3) == b"one"
        say(runner, b"two", 3)
        assert follower.next()[1]["text"] == "two"
