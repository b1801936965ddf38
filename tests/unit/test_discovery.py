"""Tests mDNS announcements on loopback: their times, their reception, and the effects of false ones."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

import pytest
from zeroconf import ServiceInfo, Zeroconf
from zeroconf.asyncio import AsyncZeroconf

from coordinator.hosts import announcements
from jobs import VERSION
from jobs.settings import Settings
from tests.integration.live import until
from tests.ports import free_port
from threads_cluster.cli import discovery
from threads_cluster.cli import main as cli

LOOPBACK = ("127.0.0.1",)
TOKEN = "a-long-secret-of-the-tests"


def settings(**more: Any) -> Settings:
    return Settings(**{"bind": "0.0.0.0", "cluster_token": TOKEN, "coordinator_port": free_port(), **more})


@contextmanager
def announced(of: Settings) -> Iterator[None]:
    """Announce a coordinator on a loop in a separate thread while the context is open."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    stop = asyncio.run_coroutine_threadsafe(announcements.begin(of, LOOPBACK), loop).result(60)

    async def end() -> None:
        await stop()

    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


def heard(port: int) -> dict[str, Any] | None:
    """Return the announcements for one port, because others on this machine can announce themselves too."""
    return next((row for row in discovery.clusters(0.5, LOOPBACK) if row["port"] == port), None)


def test_what_is_announced_is_heard_until_it_ends() -> None:
    of = settings()
    with announced(of):
        row = until(lambda: heard(of.coordinator_port), 60)
        assert row["name"].endswith(f"-{of.coordinator_port}")
        assert {name: row[name] for name in ("url", "version", "token_needed", "addresses")} == {
            "url": f"http://127.0.0.1:{of.coordinator_port}",
            "version": VERSION,
            "token_needed": True,
            "addresses": ["127.0.0.1"],
        }
    until(lambda: heard(of.coordinator_port) is None, 60)


def test_two_of_one_machine_are_two_and_tls_is_said() -> None:
    one, other = settings(), settings(tls_certificate="there", tls_key="too")
    with announced(one), announced(other):
        assert until(lambda: heard(one.coordinator_port), 60)["url"].startswith("http://")
        assert until(lambda: heard(other.coordinator_port), 60)["url"].startswith("https://")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, True),
        ({"bind": "192.0.2.7"}, True),
        ({"bind": "::"}, True),
        ({"bind": "127.0.0.1"}, False),
        ({"bind": "::1"}, False),
        ({"bind": "localhost"}, False),
        ({"discoverable": "false"}, False),
        ({"published": "0.0.0.0"}, False),
        ({"published": "loopback"}, False),
    ],
)
def test_what_others_cannot_reach_is_not_announced(
    given: dict[str, str], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = settings(**given)
    begun: list[Settings] = []

    async def note(which: Settings, _interfaces: object) -> None:
        begun.append(which)

    async def go() -> None:
        stop = await announcements.begin(of)
        await asyncio.sleep(0)
        await stop()

    monkeypatch.setattr(announcements, "announce", note)
    asyncio.run(go())
    assert announcements.is_enabled(of) is wanted and begun == [of] * wanted


def test_nothing_that_is_announced_is_secret() -> None:
    of = settings(secrets_key="k" * 32, metrics_token="m" * 32, redis_url="redis://:password@127.0.0.1:6379/0")
    info = announcements.service_info(of, LOOPBACK)
    assert {name.decode() for name in info.properties} == {"version", "tls", "token"}
    assert [value for value in info.properties.values() if value not in (VERSION.encode(), b"0", b"1")] == []
    whole = repr(info)
    assert not [secret for secret in (TOKEN, "k" * 32, "m" * 32, "password") if secret in whole]


def test_addresses_are_those_where_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    assert announcements.list_addresses("192.0.2.7", ()) == ["192.0.2.7"]
    found = announcements.list_addresses("0.0.0.0", ())
    assert not [address for address in found if address.startswith("127.") or ":" in address]


def test_without_the_package_nothing_is_announced_and_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "zeroconf", None)
    caplog.set_level(logging.DEBUG)
    assert asyncio.run(announcements.begin(settings())) is announcements.do_nothing
    assert "requirements/discovery.txt" in caplog.text
    code, _, err = ran(capsys)
    assert code == 2 and "zeroconf is not installed" in err and "discovery]" in err


def test_a_network_that_takes_no_part_stops_no_coordinator(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(**_places: object) -> None:
        raise OSError(19, "No such device")

    async def go() -> None:
        stop = await announcements.begin(settings(bind="192.0.2.7"))
        await asyncio.sleep(0)
        await stop()

    monkeypatch.setattr("zeroconf.asyncio.AsyncZeroconf", fails)
    asyncio.run(go())
    assert "not announced by mDNS: [Errno 19] No such device" in caplog.text


def test_an_announcement_that_cannot_say_farewell_in_time_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    close = AsyncZeroconf.async_close

    async def closes(responder: AsyncZeroconf) -> None:
        await close(responder)
        closed.append(True)

    monkeypatch.setattr(announcements, "FAREWELL_SECONDS", 0.0)
    monkeypatch.setattr(AsyncZeroconf, "async_close", closes)
    of = settings()
    with announced(of):
        until(lambda: heard(of.coordinator_port), 60)
    assert closed == [True]


def test_a_liar_is_shown_without_what_a_terminal_obeys() -> None:
    port = free_port()
    facts = {"version": b"\x1b[2J" + b"9" * 150, "tls": b"2", "token": b"\xff", "more": None}
    info = ServiceInfo(
        discovery.TYPE,
        f"evil \u202e-{port}.{discovery.TYPE}",
        port=port,
        properties=facts,
        server="evil.local.",
        parsed_addresses=["127.0.0.1"],
    )
    network = Zeroconf(interfaces=list(LOOPBACK))
    try:
        network.register_service(info)
        row = until(lambda: heard(port), 60)
    finally:
        network.close()
    whole = json.dumps(row, ensure_ascii=False)
    assert whole.isprintable() and len(row["version"]) < 100
    assert row["url"] == f"http://127.0.0.1:{port}" and row["token_needed"] is True


def test_a_name_that_is_none_is_left_out() -> None:
    network = Zeroconf(interfaces=list(LOOPBACK))
    try:
        for name in (f"evil\x1b[31m.{discovery.TYPE}", f"{'x' * 64}.{discovery.TYPE}", "", "x"):
            assert discovery.read_announcement(network, name, time.monotonic() + 60) is None
    finally:
        network.close()


def test_names_without_anything_behind_them_take_two_seconds_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name is waited for only as long as time remains."""
    waited: list[float] = []
    now = [100.0]

    class Nothing:
        """An announcement without further details."""

        def __init__(self, _type: str, _name: str) -> None: ...

        def load_from_cache(self, _network: object) -> bool:
            return False

        def request(self, _network: object, milliseconds: float, _how: object) -> bool:
            waited.append(milliseconds / 1000)
            now[0] += milliseconds / 1000
            return False

    monkeypatch.setattr("threads_cluster.cli.discovery.time.monotonic", lambda: now[0])
    monkeypatch.setattr("zeroconf.ServiceInfo", Nothing)
    found = [discovery.read_announcement(None, f"n{number}.{discovery.TYPE}", 102.0) for number in range(200)]
    assert found == [None] * 200 and sum(waited) == pytest.approx(2.0) and len(waited) == 4


class Change(Enum):
    Added = 1
    Removed = 2


def test_a_flood_of_names_is_bounded() -> None:
    known = discovery.Listener()
    for number in range(10_000):
        known.change(name=f"n{number}", state_change=Change.Added)
    assert len(known.names) == 200
    known.change(name="n0", state_change=Change.Removed)
    known.change(name="never there", state_change=Change.Removed)
    assert len(known.names) == 199


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["discover", *words])
    shown = capsys.readouterr()
    return int(ended.value.code or 0), shown.out, shown.err


@pytest.fixture
def fixed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def fix(*rows: dict[str, Any]) -> None:
        monkeypatch.setattr(discovery, "clusters", lambda _seconds: list(rows))

    return fix


def test_the_command_lists_what_was_heard_and_says_what_to_type(
    fixed: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    fixed()
    code, out, err = ran(capsys, "--seconds", "0.5")
    assert (code, out) == (0, "") and err.startswith(
        "No cluster announced itself within 0.5 s. A cluster announces itself only if BIND"
    )
    row = {
        "url": "https://192.0.2.7:3443",
        "name": "attic-3443",
        "version": "0.1.0",
        "token_needed": True,
        "addresses": ["192.0.2.7"],
        "port": 3443,
    }
    fixed(row)
    code, out, err = ran(capsys)
    assert code == 0 and out.splitlines()[1].split() == [
        "https://192.0.2.7:3443",
        "attic-3443",
        "0.1.0",
        "needed",
        "192.0.2.7",
    ]
    assert err.endswith("cluster login https://192.0.2.7:3443\n")
    assert json.loads(ran(capsys, "--json")[1]) == row
    assert ran(capsys, "--seconds", "61")[0] == ran(capsys, "--seconds", "nan")[0] == 2
