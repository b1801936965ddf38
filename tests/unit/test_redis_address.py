"""Tests REDIS_URL: valid addresses, and the errors for invalid ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.network import redis_address
from jobs.settings import Settings
from jobs.store.server import connection
from jobs.worker import lifecycle


def test_a_sentinel_address_is_taken_apart() -> None:
    place = redis_address.sentinels("redis+sentinel://:secret@a:1,b/main/2")
    assert place.hosts == (("a", 1), ("b", 26379))
    assert (place.service, place.database, place.user, place.password) == ("main", 2, None, "secret")
    assert redis_address.sentinels("redis+sentinel://worker:secret@a/main").user == "worker"
    assert redis_address.sentinels("redis+sentinel://a").user is None


@pytest.mark.parametrize(
    ("rest", "service", "database"),
    [
        ("", "mymaster", 0),
        ("/", "mymaster", 0),
        ("/main", "main", 0),
        ("/3", "mymaster", 3),
        ("/main/3", "main", 3),
        ("/3/main", "main", 3),
        ("/?service=main", "main", 0),
        ("/a%2Fb/1", "a/b", 1),
    ],
)
def test_service_and_database_may_change_places(rest: str, service: str, database: int) -> None:
    place = redis_address.sentinels(f"redis+sentinel://a{rest}")
    assert (place.service, place.database) == (service, database)


def test_sentinels_get_the_credentials_of_redis_unless_the_address_gives_others() -> None:
    asked = [
        redis_address.sentinels(f"redis+sentinel://worker:p%40ss@[::1]:7{more}")
        for more in (
            "",
            "/?sentinel_password=",
            "/?sentinel_user=me&sentinel_password=mine",
            "/?sentinel_password=mine",
        )
    ]
    assert {(place.user, place.password, place.hosts) for place in asked} == {("worker", "p@ss", (("::1", 7),))}
    assert [(place.sentinel_user, place.sentinel_password) for place in asked] == [
        ("worker", "p@ss"),
        (None, None),
        ("me", "mine"),
        (None, "mine"),
    ]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://hush@a", "must start with one of"),
        ("", "must start with one of"),
        ("redis+sentinel://", "not HOST:PORT"),
        ("redis+sentinel://:hush@", "not HOST:PORT"),
        ("redis+sentinel://:hush@a,,b/main", "not HOST:PORT"),
        ("redis+sentinel://:hush@a:b/main", "not HOST:PORT"),
        ("redis+sentinel://:hush@a:70000/main", "not HOST:PORT"),
        ("redis+sentinel://:hush@a:0/main", "not HOST:PORT"),
        ("redis+sentinel://:hush@a/main/other", "exactly one Sentinel master"),
        ("redis+sentinel://:hush@a/0/1", "exactly one Sentinel master"),
        ("redis+sentinel://:hush@a/main/0/more", "exactly one Sentinel master"),
        ("redis+sentinel://:hush@a/main?tls=1", "has the unknown option tls"),
        ("redis+sentinel://:hu℀sh@a/main", "is invalid .in a password"),
        ("redis+sentinel://:[hush@a/main", "is invalid"),
        ("redis://:hush/@a:1/0", "does not contain HOST:PORT/DATABASE"),
        ("redis://:[hush@a:1/0", "does not contain HOST:PORT/DATABASE"),
        ("redis://a:hush/0", "does not contain HOST:PORT/DATABASE"),
        ("redis://a/hush", "does not contain HOST:PORT/DATABASE"),
        ("rediss://:hush@/0", "does not contain HOST:PORT/DATABASE"),
    ],
)
def test_a_wrong_address_is_refused_with_the_way_out_and_without_its_password(url: str, why: str) -> None:
    with pytest.raises(redis_address.UnusableAddress, match=why) as refused:
        connection.connect(url)
    assert "write redis" in str(refused.value) and "hush" not in str(refused.value)
    assert lifecycle.refusal(Settings(redis_url=url, metrics_port=0)) == 2


def test_no_master_is_said_in_words() -> None:
    client = connection.connect("redis+sentinel://127.0.0.1:1/main", retries=0)
    with pytest.raises(connection.Unreachable) as error:
        client.ping()
    assert "no reachable Sentinel in REDIS_URL" in connection.reason(error.value)
    client.close()


def test_a_redis_without_an_address_is_said_in_words() -> None:
    stopped = connection.Unreachable[0]("Error -3 connecting to redis:6379. Temporary failure in name resolution.")
    assert connection.reason(stopped).endswith("cannot be resolved; is the Redis container running?")
    assert "redis:6379" not in connection.reason(stopped)
    closed = connection.Unreachable[0]("Connection closed by server.")
    assert "it closed the connection" in connection.reason(closed)


@pytest.mark.parametrize("command", ["FCALL", "FUNCTION"])
def test_a_redis_that_is_too_old_is_said_in_words(command: str) -> None:
    error = connection.error_of(f"ERR unknown command `{command}`, with args beginning with: `x`, ")
    assert isinstance(error, connection.Unreachable), "it is no fault of the program, and workers wait"
    words = "Redis is older than version 7 and has no functions. Upgrade to Redis or Valkey 7 or later."
    assert connection.reason(error) == connection.describe_for_log(error) == words


@pytest.mark.parametrize("url", ["redis://a", "redis://u:p%2Fw@[::1]:7/3", "rediss://:p@a.b:1/?db=2", "unix:///x?db=1"])
def test_addresses_of_one_server(url: str) -> None:
    connection.connect(url).close()


class Sentinel:
    """A fake sentinel that returns or raises a given response, after a given action."""

    def __init__(self, answer: object, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._answer = answer
        self._meanwhile = meanwhile

    def sentinel_masters(self) -> Any:
        self._meanwhile()
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def state(**changed: object) -> dict[str, object]:
    named = {"ip": "10.0.0.1", "port": 1, "is_master": True, "is_sdown": False, "is_odown": False}
    return {"main": named | {"num-other-sentinels": 2} | changed}


def test_whatever_a_sentinel_answers_the_next_one_is_asked_and_none_is_lost() -> None:
    client = connection.connect("redis+sentinel://127.0.0.1:1/main", retries=0)
    manager = client.connection_pool.sentinel_manager
    wrong: list[object] = [
        connection.ResponseError("unknown command 'SENTINEL'"),
        connection.RedisError("Protocol Error: H"),
        connection.SilenceError("late"),
        KeyError("flags"),
        {},
        {"main": {}},
        "garbage",
        state(is_sdown=True),
        state(is_master=False),
    ]
    # While one thread queries a sentinel, another thread reports a failed connection.
    right = Sentinel(state())
    sentinels = [*(Sentinel(answer, manager.doubt) for answer in wrong), right]
    manager.sentinels = sentinels
    assert manager.discover_master("main") == ("10.0.0.1", 1)
    assert manager.sentinels[0] is right and set(manager.sentinels) == set(sentinels)
    manager.doubt()
    assert manager.sentinels[-1] is right and set(manager.sentinels) == set(sentinels)
    client.close()


def test_the_address_is_described_where_settings_are() -> None:
    top = Path(__file__).resolve().parents[2]
    for name in ("jobs/settings.py", ".env.example"):
        assert "redis+sentinel://host:port,host:port/service/db" in (top / name).read_text()
