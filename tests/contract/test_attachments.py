"""Tests shells next to programs, through the functions and over HTTP: byte positions, owners, limits and ends."""

from __future__ import annotations

import base64
import random
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import httpx
import pytest

from coordinator.access.credentials import FRESH_SECONDS
from jobs.store import Store, keys
from jobs.store.attachments import OF_A_TENANT, OF_A_UNIT, OF_ALL, Chunk, Read, Side
from jobs.store.server import connection
from jobs.store.tenancy.tenants import Tenant
from jobs.store.work.leases import Grant
from jobs.worker.api.api_attachments import ApiAttachments
from tests import fetch
from tests.contract.api_transport import Served, serve
from tests.contract.fake_runner import OFFER, Runner, running, submit
from tests.contract.lease_model import CLOCK, Bench
from tests.integration.live import until

LEASE, OWNER = "w/t", "owner"


def leased(bench: Bench, job: str = "j", **more: Any) -> None:
    submit(bench.store, job, kind="command", **more)
    bench.store.slots.next("w", ["runner.normal"], offer=OFFER)
    assert isinstance(bench.store.leases.lease(job, LEASE, want=100, worker="w", lane="w/0"), Grant)


def ask(bench: Bench, name: str = "a", job: str = "j", unit: int = 3, tenant: str = "default") -> str:
    return bench.store.attachments.ask(
        name, tenant=tenant, job=job, unit=unit, owner=OWNER, about={"command": None, "terminal": None}
    )


def begun(bench: Bench, name: str = "a") -> None:
    leased(bench)
    assert ask(bench, name) == "ok"
    assert bench.store.attachments.take(name, "j", LEASE, 3) == {"command": None, "terminal": None}


def read(bench: Bench, side: Side = "out", after: int = 0, who: str = "", name: str = "a") -> Read:
    found = bench.store.attachments.read(name, side, who or (OWNER if side == "out" else LEASE), after)
    assert found is not None
    return found


def write(bench: Bench, offset: int, data: bytes, side: Side = "out", name: str = "a", **more: Any) -> tuple[str, int]:
    who, stream = (LEASE, "o") if side == "out" else (OWNER, "i")
    done = bench.store.attachments.write(name, side, who, offset, Chunk(stream, data), **more)
    assert done is not None
    return done


def logged(bench: Bench) -> list[tuple[str, str, str]]:
    import json

    rows = [json.loads(entry.line) for entry in bench.store.audit_log.newest(100).entries]
    return [(row["action"], row["subject"], row["outcome"]) for row in rows if "tach" in row["action"]]


# -- bytes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["in", "out"])
def test_whatever_is_repeated_or_lost_each_byte_comes_once_and_in_order(bench: Bench, side: Side) -> None:
    """Reader and writer lose responses at random, and continue from what they know."""
    begun(bench)
    chance, whole = random.Random(7), random.Random(8).randbytes(300_000)
    sent = known = 0
    got = bytearray()
    while len(got) < len(whole):
        start = max(0, sent - chance.choice([0, 0, 0, 500]))
        state, upto = write(bench, start, whole[start : start + chance.randrange(1, 9000)], side)
        assert state == "running" and upto >= sent
        sent = upto if chance.random() < 0.7 else sent
        if chance.random() < 0.5:
            found = read(bench, side, known)
            assert found.upto == known + sum(len(chunk.data) for chunk in found.chunks)
            if chance.random() < 0.7:
                got += b"".join(chunk.data for chunk in found.chunks)
                known = found.upto
        assert bench.client.xlen(keys.attachment_input("a")) <= 256
    assert got == whole


def test_a_writer_waits_for_its_reader_and_a_gap_is_seen(bench: Bench) -> None:
    begun(bench)
    for side, room in (("out", 128 << 10), ("in", 32 << 10)):
        data = bytes(200_000)
        assert write(bench, 0, data, side) == ("running", room)  # type: ignore[arg-type]
        assert write(bench, room, b"more", side) == ("running", room)  # type: ignore[arg-type]
        assert write(bench, room + 1, b"gap", side) == ("running", room)  # type: ignore[arg-type]
        assert read(bench, side, 1000).upto == room  # type: ignore[arg-type]
        assert write(bench, room, bytes(5000), side) == ("running", room + 1000)  # type: ignore[arg-type]
    for count in range(400):
        done = write(bench, (128 << 10) + 1000 + count, b"x")
    assert done[1] < (128 << 10) + 1400
    assert bench.client.memory_usage(keys.attachment_output("a")) < 256 << 10


def test_streams_the_end_of_input_and_sizes_come_along(bench: Bench) -> None:
    begun(bench)
    store = bench.store.attachments
    for offset, chunk in enumerate([Chunk("o", b"a"), Chunk("e", b"b"), Chunk("o", b"\0")]):
        store.write("a", "out", LEASE, offset, chunk)
    assert read(bench).chunks == (Chunk("o", b"a"), Chunk("e", b"b"), Chunk("o", b"\0"))
    assert write(bench, 0, b"ls", "in", size="24 80") == ("running", 2)
    assert not read(bench, "in").closed and read(bench, "in").size == "24 80"
    write(bench, 2, b"", "in", closed=True)
    found = read(bench, "in", 2)
    assert found.closed and found.size == "24 80" and not found.chunks


# -- whose it is ------------------------------------------------------------------------------------------------------


def test_only_its_principal_and_its_lease_read_write_or_end_it(bench: Bench) -> None:
    begun(bench)
    store = bench.store.attachments
    for who in ("", "x", LEASE, "w", "w/", "v/t"):
        assert store.read("a", "out", who, 0) is None and store.write("a", "in", who, 0, Chunk("i", b"x")) is None
    for who in ("", "x", OWNER, "w/", "v/t"):
        assert store.read("a", "in", who, 0) is None and store.write("a", "out", who, 0, Chunk("o", b"x")) is None
    for who in ("", "x", "v/t"):
        assert not store.end("a", who, None, "left")
    assert store.read("b", "out", OWNER, 0) is None and read(bench).state == "running"
    assert bench.store.attachments.ask("a", tenant="default", job="j", unit=3, owner="another", about={}) == "other"


def test_only_a_lease_of_its_unit_begins_it_and_one_alone(bench: Bench) -> None:
    leased(bench)
    ask(bench)
    store = bench.store.attachments
    assert store.asked({"j", "k"}) == [("j", 3, "a")] and store.asked({"k"}) == []
    assert store.take("a", "j", "w/other", 3) is None
    assert store.take("a", "j", LEASE, 4) is None and store.take("a", "k", LEASE, 3) is None
    assert store.take("a", "j", LEASE, 3) == store.take("a", "j", LEASE, 3) is not None
    bench.store.leases.lease("j", "w/t2", want=100, worker="w", lane="w/1")
    assert store.take("a", "j", "w/t2", 3) is None
    assert [row[:2] for row in logged(bench)] == [("attach", "j/3")]


def test_there_are_only_so_many(bench: Bench) -> None:
    leased(bench, total=1000)
    assert [ask(bench, f"a{number}") for number in range(OF_A_UNIT + 1)] == ["ok"] * OF_A_UNIT + ["unit"]
    assert ask(bench, "a0") == "ok", "asked again"
    mine = [ask(bench, f"b{number}", unit=10 + number) for number in range(OF_A_TENANT)]
    assert mine == ["ok"] * (OF_A_TENANT - OF_A_UNIT) + ["tenant"] * OF_A_UNIT
    others = [ask(bench, f"c{number}", unit=number, tenant=f"t{number // 10}") for number in range(OF_ALL)]
    assert others == ["ok"] * (OF_ALL - OF_A_TENANT) + ["all"] * OF_A_TENANT
    bench.store.attachments.end("a0", OWNER, None, "left")
    assert ask(bench, "d") == "ok"


# -- ends -------------------------------------------------------------------------------------------------------------


def test_an_principal_who_is_silent_for_30_s_ends_it_and_the_log_says_so(bench: Bench) -> None:
    begun(bench)
    for _ in range(10):
        bench.advance(4_000)
        bench.store.leases.heartbeat("j", LEASE, 0)
        assert read(bench, "in").state == "running" and read(bench).state == "running"
    for _ in range(4):
        bench.advance(8_000)
        bench.store.leases.heartbeat("j", LEASE, 0)
        bench.store.attachments.sweep()
    assert read(bench, "in").state == "ended"
    assert logged(bench) == [("attach", "j/3", "on w"), ("detach", "j/3", "72 s, silent")]
    assert bench.client.zcard(keys.ATTACHMENTS) == 0


def test_a_runner_that_is_silent_or_loses_its_lease_ends_it(bench: Bench) -> None:
    begun(bench)
    for _ in range(4):
        bench.advance(3_900)
        bench.store.leases.heartbeat("j", LEASE, 0)
        state = read(bench)
    assert (state.state, state.reason) == ("ended", "lost")
    assert write(bench, 0, b"x")[0] == "ended" and read(bench, "in").state == "ended"
    assert ask(bench, "b") == "ok" and bench.store.attachments.take("b", "j", LEASE, 3)
    bench.store.leases.release("j", LEASE)
    assert read(bench, name="b").state == "running", "its last words may come"
    found = read(bench, "in", name="b")
    assert (found.state, found.reason) == ("ended", "lease")


def test_an_absence_of_all_ends_nothing_at_once(bench: Bench) -> None:
    """After the absence, the user can send a request before the runner does."""
    begun(bench)
    bench.advance(20_000)
    assert read(bench).state == "running"
    assert read(bench, "in").state == "running"


def test_an_end_is_kept_for_a_while_and_logged_once(bench: Bench) -> None:
    begun(bench)
    write(bench, 0, b"last words")
    store = bench.store.attachments
    bench.advance(2_500)
    assert store.end("a", LEASE, 3, "") and store.end("a", LEASE, 4, "again") and store.end("a", OWNER, None, "left")
    found = read(bench)
    assert (found.state, found.exit, found.reason, found.chunks) == ("ended", 3, "", (Chunk("o", b"last words"),))
    assert logged(bench) == [("attach", "j/3", "on w"), ("detach", "j/3", "2 s, exit 3")]
    assert ask(bench, "b") == "ok" and store.end("b", OWNER, None, "left")
    assert len(logged(bench)) == 2, "it was never begun"
    assert 0 < bench.client.ttl(keys.attachment("a")) <= 60


def test_the_end_is_logged_however_long_everybody_was_away(bench: Bench) -> None:
    """Redis forgets keys with a time to live, but the start is in the log."""
    begun(bench)
    write(bench, 0, b"ls", "in")
    assert bench.client.pttl(keys.attachment("a")) > 86_400_000
    assert ask(bench, "b") == "ok" and bench.client.pttl(keys.attachment("b")) <= 90_000
    bench.advance(3_600_000)
    bench.store.attachments.sweep()
    assert logged(bench)[-1] == ("detach", "j/3", "3600 s, silent")
    assert 0 < bench.client.ttl(keys.attachment("a")) <= 60


def test_what_is_broken_in_redis_stops_nobody(bench: Bench) -> None:
    begun(bench)
    bench.client.set(keys.attachment("b"), "text")
    bench.client.zadd(keys.ATTACHMENTS, {"nonsense": 1, "default/j|x|y": 2, "default/j|3|b": 3, b"\xff|4|c": 4})
    assert [one.id for one in bench.store.attachments.asked({"j"})] in (["a"], ["b", "a"])
    bench.store.attachments.sweep()
    assert ask(bench, "c") == "ok" and read(bench).state == "running"
    bench.client.set(keys.ATTACHMENT_WAKES, "text")
    assert write(bench, 0, b"x") == ("running", 1)


# -- over HTTP --------------------------------------------------------------------------------------------------------


@pytest.fixture
def served(any_redis_url: str, store: Store) -> Iterator[Served]:
    with serve(any_redis_url, store, cluster_token="t" * 32) as made:
        yield made


class Principal:
    """A user with a token who requests shells next to units of a job."""

    def __init__(self, served: Served, *scopes: str, name: str = "u", tenant: str = "default", job: str = "j") -> None:
        token = served.token(name, *scopes, tenant=tenant)
        self.http = fetch.client(
            base_url=f"http://127.0.0.1:{served.place.port}/api/jobs/{job}/attachments/",
            headers={"Authorization": f"Bearer {token}"},
            timeout=60,
        )
        self.id = secrets.token_hex(16)

    def ask(self, unit: int = 3, name: str = "", **more: Any) -> httpx.Response:
        return self.http.put(name or self.id, json={"unit": unit, **more})

    def write(self, offset: int, data: bytes = b"", **more: Any) -> httpx.Response:
        body = {"offset": offset, "data": base64.b64encode(data).decode(), **more}
        return self.http.post(f"{self.id}/input", json=body)

    def read(self, after: int = 0, wait: float = 0) -> Any:
        return self.http.get(f"{self.id}/output", params={"after": after, "wait_seconds": wait})

    def shown(self, after: int = 0, wait: float = 0) -> bytes:
        return b"".join(base64.b64decode(text) for _, text in self.read(after, wait).json()["chunks"])


@pytest.fixture
def principal(served: Served) -> Iterator[Principal]:
    with closing((made := Principal(served, "run", "read")).http):
        yield made


def test_a_shell_from_its_question_to_its_end(served: Served, store: Store, principal: Principal) -> None:
    runner = running(served, store)
    calls, place = ApiAttachments(runner.api.api), (principal.id, "j", runner.lease)
    assert principal.ask(terminal={"rows": 24, "columns": 80, "name": "vt100"}).json()["unit_state"] == "running"
    assert store.attachments.asked({"j"}) == [("j", 3, principal.id)]
    assert principal.read().json()["state"] == "asked"
    about = calls.take(*place, 3)
    assert about == {"command": None, "terminal": {"rows": 24, "columns": 80, "name": "vt100"}}
    assert principal.read().json() | {"chunks": []} == {
        "state": "running",
        "exit": None,
        "reason": "",
        "worker": "r",
        "unit_state": "",
        "upto": 0,
        "chunks": [],
    }
    assert principal.write(0, b"ls\r", rows=50, columns=100).json() == {"state": "running", "upto": 3}
    typed = calls.read(*place, 0)
    assert (typed.data, typed.upto, typed.size, typed.over) == (b"ls\r", 3, "50 100", False)
    assert calls.write(*place, 0, "o", b"file\r\n") == 6
    assert principal.shown() == b"file\r\n" and principal.read(6).json()["chunks"] == []
    calls.end(*place, 7, "")
    found = principal.read(6).json()
    assert (found["state"], found["exit"]) == ("ended", 7)
    assert principal.write(3, b"x").json()["state"] == "ended" and calls.read(*place, 3).over
    assert calls.write(*place, 6, "o", b"more") is None


def test_who_waits_is_answered_at_once(
    served: Served, store: Store, principal: Principal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.attachments.wakeups.POLL_SECONDS", 60.0)
    runner = running(served, store)
    calls, place = ApiAttachments(runner.api.api), (principal.id, "j", runner.lease)
    principal.ask()
    calls.take(*place, 3)

    def within(what: Any, then: Any) -> Any:
        """Return the response to a request that waits for twenty seconds, when the other side has done its part."""
        found: list[Any] = []
        waiting = threading.Thread(target=lambda: found.append(what()))
        waiting.start()
        time.sleep(0.3)
        assert not found, "there was nothing to wait for"
        began = time.monotonic()
        then()
        waiting.join(60)
        assert found and time.monotonic() - began < 15, "it was looked at because time had passed"
        return found[0]

    assert within(lambda: principal.shown(0, 20), lambda: calls.write(*place, 0, "o", b"x")) == b"x"
    assert within(lambda: calls.read(*place, 0, wait_seconds=20), lambda: principal.write(0, b"y")).data == b"y"
    resize = lambda: principal.write(1, rows=9, columns=9)  # noqa: E731
    assert within(lambda: calls.read(*place, 1, wait_seconds=10), resize).size == "9 9"
    closed = lambda: principal.write(1, closed=True)  # noqa: E731
    assert within(lambda: calls.read(*place, 1, size="9 9", wait_seconds=10), closed).closed
    upto = 1
    while (more := calls.write(*place, upto, "o", bytes(16384))) == upto + 16384:
        upto = more
    assert more is not None and more > upto
    done = within(lambda: calls.write(*place, more, "o", b"z", wait_seconds=10), lambda: principal.read(1000))
    assert done == more + 1
    ended = within(
        lambda: calls.read(*place, 1, size="9 9", closed=True, wait_seconds=10),
        lambda: principal.http.delete(principal.id),
    )
    assert ended.over


def test_rights(served: Served, store: Store, principal: Principal) -> None:
    store.tenants.put(Tenant(name="other"))
    running(served, store)
    assert principal.ask().status_code == 200
    for scopes, tenant, status in (
        (("read", "submit"), "default", 403),
        (("operate",), "default", 403),
        (("run", "read"), "other", 404),
        (("run", "operate"), "other", 403),
        (("admin",), "other", 403),
        (("worker",), "default", 403),
    ):
        foreign = Principal(served, *scopes, name="-".join(scopes), tenant=tenant)
        with closing(foreign.http):
            assert foreign.ask().status_code == status, (scopes, tenant)
            foreign.id = principal.id
            assert foreign.read().status_code in (403, 404)
            assert foreign.write(0, b"x").status_code in (403, 404)
            assert foreign.http.delete(principal.id).status_code in (403, 404)
    colleague = Principal(served, "run", name="colleague")
    with closing(colleague.http):
        assert colleague.ask(name=principal.id).status_code == 409
        colleague.id = principal.id
        assert colleague.read().status_code == 404 and colleague.write(0, b"x").status_code == 404
        assert colleague.http.delete(principal.id).status_code == 404
    assert fetch.put(str(principal.http.base_url) + principal.id, json={"unit": 3}).status_code == 401
    assert principal.read().json()["state"] == "asked"


def test_another_worker_begins_reads_and_ends_nothing(served: Served, store: Store, principal: Principal) -> None:
    runner = running(served, store)
    thief = ApiAttachments(Runner(served, "thief").api.api)
    principal.ask()
    with pytest.raises(connection.CoordinatorRejects):
        thief.take(principal.id, "j", runner.lease, 3)
    ApiAttachments(runner.api.api).take(principal.id, "j", runner.lease, 3)
    principal.write(0, b"secret")
    assert thief.read(principal.id, "j", runner.lease, 0).data == b""
    assert thief.write(principal.id, "j", runner.lease, 0, "o", b"lies") is None
    thief.end(principal.id, "j", runner.lease, 0, "")
    assert principal.read().json()["state"] == "running" and principal.shown() == b""


def test_what_cannot_be_asked_for_is_said(served: Served, store: Store, principal: Principal) -> None:
    def why(answer: httpx.Response, status: int) -> str:
        assert answer.status_code == status, answer.text
        return str(answer.json()["detail"])

    submit(store, "k", kind="sum", queue="any.normal")
    for job, unit, status, words in (
        ("none", 0, 404, "no job none"),
        ("k", 0, 404, "jobs of kind sum do not run programs"),
    ):
        stranger = Principal(served, "run", name=job, job=job)
        with closing(stranger.http):
            assert words in why(stranger.ask(unit), status)
    store.jobs.cancel("k")
    submit(store, total=10, kind="command")
    assert why(principal.ask(10), 404) == "unit 10 does not exist; job j has units 0 to 9"
    assert principal.ask(9).json()["unit_state"] == "waiting"
    terminal = {"rows": 24, "columns": 80}
    for body, field in (
        ({"unit": -1}, "unit"),
        ({"unit": "3"}, "unit"),
        ({}, "unit"),
        ({"unit": 0, "more": 1}, "more"),
        ({"unit": 0, "command": []}, "command"),
        ({"unit": 0, "command": [""]}, "command"),
        ({"unit": 0, "command": ["a\0b"]}, "command"),
        ({"unit": 0, "command": ["x"] * 1001}, "command"),
        ({"unit": 0, "command": ["x" * 40_000]}, "command"),
        ({"unit": 0, "terminal": {}}, "terminal"),
        ({"unit": 0, "terminal": terminal | {"rows": 0}}, "terminal"),
        ({"unit": 0, "terminal": terminal | {"name": "a b"}}, "terminal"),
    ):
        answer = principal.http.put(secrets.token_hex(16), json=body)
        assert field in why(answer, 422), body
    assert why(principal.ask(name="A" * 32), 422)
    for data, status in (("no base64", 422), (base64.b64encode(bytes(16385)).decode(), 413)):
        assert "data" in why(principal.http.post(f"{principal.id}/input", json={"offset": 0, "data": data}), status)
    assert "leaves a gap; 0 bytes have been received" in why(principal.write(5, b"x"), 422)
    store.jobs.cancel("j")
    assert "finished, because its job is cancelled" in why(principal.ask(0, name=secrets.token_hex(16)), 409)
    found = principal.read().json()
    assert (found["state"], found["reason"]) == ("ended", "program")


def test_a_third_shell_beside_a_unit_is_refused_until_one_ends(
    served: Served, store: Store, principal: Principal
) -> None:
    running(served, store)
    names = [secrets.token_hex(16) for _ in range(3)]
    assert [principal.ask(name=name).status_code for name in names] == [200, 200, 429]
    assert principal.http.delete(names[0]).status_code == 204
    assert principal.ask(name=names[2]).status_code == 200
    assert principal.http.delete(names[0]).status_code == 204, "again"


def test_beats_of_a_runner_tell_it_of_its_own_alone(served: Served, store: Store, principal: Principal) -> None:
    from jobs.store.work.lease_store import Pulse
    from tests.contract.test_worker_api import ROW

    def row() -> dict[str, Any]:
        return {**ROW, "device": "runner"}

    runner = running(served, store)
    principal.ask()
    pulse = Pulse(worker="r", born=store.fleet.birth(), row=row, leases=(("j", runner.lease, 0),))
    assert runner.api.pulse(pulse).attach == (("j", 3, principal.id),)
    other = Runner(served, "other").api
    assert other.pulse(Pulse(worker="other", born=store.fleet.birth(), row=row)).attach == ()


def test_silence_of_redis_is_said_and_nothing_is_lost(
    any_redis_url: str, served: Served, store: Store, principal: Principal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.access.credentials.FRESH_SECONDS", 60.0)  # else it waits for Redis before it asks
    runner = running(served, store)
    calls, place = ApiAttachments(runner.api.api), (principal.id, "j", runner.lease)
    principal.ask()
    calls.take(*place, 3)
    calls.write(*place, 0, "o", b"before")
    impatient = connection.connect(any_redis_url, retries=0, timeout=0.5)
    served.app.state.coordinator.cluster.store = Store(impatient)
    store.client.execute_command("CLIENT", "PAUSE", 5000, "ALL")
    answer = principal.read(0, 1)
    assert answer.status_code == 503 and answer.headers["Retry-After"]
    until(lambda: principal.read().status_code == 200, every=0.2)
    served.app.state.coordinator.cluster.store = store
    assert calls.write(*place, 6, "o", b"after") == 11
    assert principal.shown() == b"beforeafter"
    impatient.close()


def test_a_thousand_shells_asked_for_at_once_are_refused_and_others_served(served: Served, store: Store) -> None:
    """Many tokens of one tenant ask side by side, for as many units as there are. No time goes by meanwhile."""
    running(served, store)
    store.client.set("test:clock", round(store.clock.now() * 1000))
    served.app.state.coordinator.cluster.store = Store(store.client, clock=CLOCK)
    principals = [Principal(served, "run", "read", name=f"u{number}") for number in range(8)]
    found: list[list[int]] = [[] for _ in principals]

    def many(number: int) -> None:
        for count in range(125):
            found[number].append(principals[number].ask(unit=count % 100, name=secrets.token_hex(16)).status_code)

    threads = [threading.Thread(target=many, args=(number,)) for number in range(len(principals))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    codes = [code for several in found for code in several]
    assert (codes.count(200), codes.count(429)) == (OF_A_TENANT, 1000 - OF_A_TENANT)
    assert store.client.zcard(keys.ATTACHMENTS) == OF_A_TENANT
    assert len(list(store.client.scan_iter(keys.attachment("*")))) == OF_A_TENANT
    store.tenants.put(Tenant(name="other"))
    submit(store, "k", kind="command", tenant="other")
    stranger = Principal(served, "run", name="stranger", tenant="other", job="k")
    assert stranger.ask().status_code == 200
    for one in (*principals, stranger):
        one.http.close()


def test_calls_that_wait_are_bounded_and_those_of_principals_who_went_end(
    served: Served, store: Store, principal: Principal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.attachments.wakeups.MOST_WAITING", 3)
    running(served, store)
    principal.ask()
    wakes = served.app.state.coordinator.wakes
    head = f"Host: localhost\r\nAuthorization: {principal.http.headers['Authorization']}\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(3):
            gone = stack.enter_context(socket.create_connection((served.place.host, served.place.port), timeout=60))
            gone.sendall(
                f"GET /api/jobs/j/attachments/{principal.id}/output?wait_seconds=20 HTTP/1.1\r\n{head}".encode()
            )
        until(lambda: wakes.count == 3)
        assert principal.read(0, 1).status_code == 429
    until(lambda: wakes.count == 0)
    assert principal.read(0, 0).status_code == 200


def test_who_asks_for_one_shell_again_and_again_keeps_no_other_from_answers(
    served: Served, store: Store, principal: Principal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.attachments.wakeups.MOST_OF_ONE", 3)
    runner = running(served, store)
    principal.ask()
    assert ApiAttachments(runner.api.api).take(principal.id, "j", runner.lease, 3)
    other = Principal(served, "run", name="other")
    other.ask(unit=4)
    codes: list[int] = []

    def one() -> None:
        with httpx.Client(base_url=principal.http.base_url, headers=principal.http.headers, timeout=60) as client:
            codes.append(client.get(f"{principal.id}/output", params={"wait_seconds": 20}).status_code)

    threads = [threading.Thread(target=one) for _ in range(10)]
    for thread in threads:
        thread.start()
    assert other.read(0, 0.1).status_code == 200
    until(lambda: len(codes) >= 7)
    assert codes == [429] * 7
    assert store.attachments.end(principal.id, f"r/{runner.lease}", 0, "")
    for thread in threads:
        thread.join(60)
    assert sorted(codes) == [200] * 3 + [429] * 7
    assert principal.read(0, 0).status_code == 200
    other.http.close()


def test_a_token_that_is_revoked_while_it_waits_hears_nothing(
    served: Served, store: Store, principal: Principal
) -> None:
    runner = running(served, store)
    calls, place = ApiAttachments(runner.api.api), (principal.id, "j", runner.lease)
    principal.ask()
    calls.take(*place, 3)
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(principal.read(0, 20).status_code))
    waiting.start()
    until(lambda: served.app.state.coordinator.wakes.count == 1)
    [token] = [row.id for row in store.tokens.all() if row.name == "u"]
    assert store.tokens.revoke(token)
    time.sleep(1.1 * FRESH_SECONDS)
    calls.write(*place, 0, "o", b"secret")
    waiting.join(60)
    assert found == [401]
