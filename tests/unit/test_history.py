"""Tests the hour of samples in Redis: limited size, requested intervals, and completeness with two leaders."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.telemetry import history
from coordinator.telemetry.recorder import Speeds
from jobs import errors
from jobs.store import Store, keys
from jobs.store.server import connection

#: Measurements of 8 nodes with a GPU each.
GPU_FIGURES = ("utilization", "memory", "memory_total", "temperature", "power", "clock")


@pytest.fixture
def client(any_redis_url: str) -> connection.Client:
    return connection.connect(any_redis_url)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch, client: connection.Client) -> Callable[[int, int, str, int], dict[str, Any]]:
    """Return the history at a time: (now, seconds, names, points)."""

    def show(now: int, seconds: int, names: str = "*", points: int = 1000) -> Any:
        _, blocks = history.read(Store(client), seconds)
        return history.fill_bins(now, blocks, history.patterns(names), seconds, points)

    return show


def test_samples_come_back_second_by_second(client: connection.Client, at: Any) -> None:
    for second in range(150):
        history.append(Store(client), 1000 + second, {"a": second, **({"b": 1} if second % 2 else {})})
    assert client.llen(keys.HISTORY_NOW) == 30 and client.llen(keys.HISTORY) == 2
    shown = at(1149, 120)
    assert shown["times"] == list(range(1030, 1150)) and shown["step_seconds"] == 1
    assert shown["series"]["a"]["mean"] == list(range(30, 150))
    assert shown["series"]["b"]["max"] == [1 if second % 2 else None for second in range(30, 150)]
    assert shown["names"] == ["a", "b"]


def test_it_is_read_in_a_full_redis(client: connection.Client, at: Any) -> None:
    history.append(Store(client), 1000, {"a": 1})
    client.config_set("maxmemory", 1)
    try:
        assert at(1000, 10)["series"]["a"]["max"][-1] == 1
    finally:
        client.config_set("maxmemory", 0)


def test_bins_hold_least_mean_and_greatest_and_stay_in_place(client: connection.Client, at: Any) -> None:
    rng = random.Random(3)
    values = {second: rng.randrange(1000) for second in range(5000, 5300) if not 5100 <= second < 5130}
    for second, value in values.items():
        history.append(Store(client), second, {"x": value})
    for now in (5299, 5295):
        shown = at(now, 240, "x", 30)
        assert shown["step_seconds"] == 8 and all(moment % 8 == 0 for moment in shown["times"])
        for place, moment in enumerate(shown["times"]):
            within = [values[second] for second in range(moment, moment + 8) if second in values]
            low, mean, high = (shown["series"]["x"][what][place] for what in ("min", "mean", "max"))
            if within:
                assert (low, high) == (min(within), max(within))
                assert mean == pytest.approx(sum(within) / len(within), rel=1e-5)
            else:
                assert (low, mean, high) == (None, None, None)


def test_names_are_chosen_with_stars(client: connection.Client, at: Any) -> None:
    history.append(Store(client), 100, {"host.a.b.cpu": 1, "host.c.cpu": 2, "hostXc.cpu": 3, "jobs.done": 4})
    assert list(at(100, 10, "host.*.cpu")["series"]) == ["host.a.b.cpu", "host.c.cpu"]
    assert list(at(100, 10, "jobs.done,host.c.*")["series"]) == ["host.c.cpu", "jobs.done"]
    assert at(100, 10, "")["series"] == {}


@pytest.mark.timeout(100)
@pytest.mark.parametrize(
    "names", ["*" * history.MAX_STARS + "X", "*a" * history.MAX_STARS + "X", "a*" * history.MAX_STARS]
)
def test_stars_cost_no_more_than_the_name_is_long(names: str) -> None:
    figures = [f"node.{'a' * 2000}.{number}" for number in range(50)]
    blocks = [history.Block(times=[100], columns={name: [1.0] for name in figures})]
    assert history.fill_bins(100, blocks, history.patterns(names), 10, 10)["series"] == {}


@given(st.text("ab*", max_size=9), st.text("ab", max_size=9))
def test_a_pattern_matches_what_its_stars_can_stand_for(pattern: str, name: str) -> None:
    def fits(pattern: str, name: str) -> bool:
        if not pattern.startswith("*"):
            return pattern[:1] == name[:1] and (not pattern or fits(pattern[1:], name[1:]))
        return any(fits(pattern[1:], name[skipped:]) for skipped in range(len(name) + 1))

    assert history.Pattern(tuple(pattern.split("*"))).matches(name) == fits(pattern, name)


@pytest.mark.parametrize(
    ("names", "words"), [("*" * 9, "8 stars"), (",".join(["jobs.done"] * 65), "64 names"), ("a," * 65, "got 65")]
)
def test_names_and_their_stars_are_bounded(names: str, words: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=words) as refused:
        history.patterns(names)
    assert refused.value.field == "names"


def test_an_hour_of_a_big_cluster_takes_little(client: connection.Client, at: Any) -> None:
    """The cluster has 8 nodes with a GPU each, and all measurements change all the time."""
    rng = random.Random(1)
    for second in range(3 * 3600 // 2):
        sample: dict[str, float] = {f"queue.{n}": rng.randrange(100) for n in range(12)}
        sample |= {f"jobs.{n}": rng.randrange(10) for n in range(8)} | {"units.collatz": rng.randrange(10**9)}
        for node in range(8):
            sample |= {f"host.n{node}.{name}": round(rng.random(), 4) for name in ("cpu", "memory", "receive", "send")}
            sample |= {f"gpu.GPU-{node}.{name}": round(rng.random(), 3) for name in GPU_FIGURES}
        client.rpush(keys.HISTORY_NOW, f"[{second},{str(sample).replace(chr(39), chr(34))}]")
        if second % 60 == 59:
            assert history.fold(Store(client))
    used = client.memory_usage(keys.HISTORY, samples=0) + (client.memory_usage(keys.HISTORY_NOW, samples=0) or 0)
    assert client.llen(keys.HISTORY) == history.MOST_BLOCKS
    assert used < 2.5e6, used
    shown = at(5399, 3600, "queue.1", 1000)
    assert None not in shown["series"]["queue.1"]["mean"]


def test_two_leaders_fold_once(client: connection.Client, at: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for second in range(60):
        client.rpush(keys.HISTORY_NOW, f'[{second},{{"x":{second}}}]')
    packing = history.pack

    def meanwhile(samples: Any) -> bytes:
        monkeypatch.setattr(history, "pack", packing)
        assert history.fold(Store(client)), "the other leader"
        return packing(samples)

    monkeypatch.setattr(history, "pack", meanwhile)
    assert not history.fold(Store(client))
    assert client.llen(keys.HISTORY) == 1 and client.llen(keys.HISTORY_NOW) == 0
    assert at(59, 60, "x")["series"]["x"]["mean"] == list(range(60))


def test_a_speed_is_not_made_up() -> None:
    speeds = Speeds()
    assert speeds.rate("x", 100, 10.0) is None
    assert speeds.rate("x", 150, 12.0) == 25
    assert speeds.rate("x", 20, 13.0) is None, "the counter began anew"
    assert speeds.rate("x", 40, 14.0) == 20
    assert speeds.rate("x", 90, 30.0) is None, "nobody looked for long"


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"t": [1], "s": 7}', '{"t": [1, 2], "s": {"x": [1]}}', '{"t": [1e400], "s": {}}']
)
def test_what_is_no_block_is_refused_as_such(text: str) -> None:
    for stored in (text.encode(), zlib.compress(text.encode())):
        with pytest.raises(ValueError, match=r"not a block|differ"):
            history.unpack(stored)
