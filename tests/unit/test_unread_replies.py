"""Tests that an unread reply is never used for another command, with and without sentinels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from jobs.store import Store
from jobs.store.server import connection


class Interrupted(Exception):
    """A signal arrived while a reply was awaited; RQ's handlers raise such errors."""


@pytest.fixture(params=["alone", "sentinels"])
def client(request: pytest.FixtureRequest, any_redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a client of one Redis, directly or through sentinels."""
    place, url = urlsplit(any_redis_url), any_redis_url
    if request.param == "sentinels":
        found = (place.hostname, place.port)
        monkeypatch.setattr(connection.SentinelServers, "discover_master", lambda _self, _name: found)
        url = f"redis+sentinel://127.0.0.1:1/main{place.path}"
    made = connection.connect(url, retries=0)
    yield made
    made.close()


@pytest.fixture
def interrupting(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that sends a command with a slow reply and is interrupted before the reply."""
    armed, read = list[bool](), connection.ReplyParser.read_response

    def interrupted(parser: Any, *given: Any, **more: Any) -> Any:
        if armed:
            armed.clear()
            raise Interrupted
        return read(parser, *given, **more)

    monkeypatch.setattr(connection.ReplyParser, "read_response", interrupted)

    def interrupt(client: Any) -> None:
        assert client.ping()  # it is connected: the next reply is that of the command
        armed.append(True)
        with pytest.raises(Interrupted):
            client.blpop(["nothing"], timeout=1)

    return interrupt


def test_the_next_command_has_its_own_reply(client: Any, interrupting: Any) -> None:
    interrupting(client)
    assert client.execute_command("ECHO", "mine") == b"mine"
    with client.pipeline(transaction=True) as pipe:
        assert pipe.set("a", 1).incr("a").get("a").execute() == [True, 2, b"2"]


def test_a_script_has_its_own_reply(client: Any, interrupting: Any) -> None:
    store = Store(client)
    names = store.artifacts.names("default")
    interrupting(client)
    assert store.artifacts.delete("default", "0" * 64) == ["missing"] and names == {}
