"""Tests statistically that requests with the same start reach the same replica, unless it has more than its share."""

from __future__ import annotations

import random
from collections import Counter, deque
from typing import Any

import pytest

from coordinator.services.gateway import affinity
from coordinator.services.gateway.affinity import BOUND, MOST_BYTES
from engines import calls

NAMES = [f"v-{number:012x}-{number}" for number in range(10)]


def chat(*said: tuple[str, str]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": text} for role, text in said]}


def of(body: dict[str, Any], path: str = calls.CHAT, tenant: str = "a") -> bytes:
    return affinity.prefix(tenant, path, body)


def prefixes(count: int) -> list[bytes]:
    return [of({"prompt": f"prompt {number}"}, calls.COMPLETIONS) for number in range(count)]


def test_later_turns_of_a_conversation_have_the_prefix_of_its_first() -> None:
    first = [("system", "be brief"), ("user", "hello")]
    assert of(chat(*first)) == of(chat(*first, ("assistant", "hi"), ("user", "and now?")))
    assert of(chat(*first)) != of(chat(("system", "be long"), ("user", "hello")))
    assert of(chat(*first)) != of(chat(*first), tenant="b"), "tenants learn nothing of each other by it"
    long = "x" * MOST_BYTES
    assert of({"prompt": long + "a"}, calls.COMPLETIONS) == of({"prompt": long + "b"}, calls.COMPLETIONS)
    assert of({"prompt": [1, 2]}, calls.COMPLETIONS) != of({"prompt": [1, 3]}, calls.COMPLETIONS)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": None},
        {"messages": []},
        {"messages": "hello"},
        {"messages": 7},
        {"messages": {"role": "user"}},
    ],
)
def test_a_request_without_a_prompt_has_no_prefix(body: dict[str, Any]) -> None:
    assert of(body) == b"" and of(body, calls.COMPLETIONS) == b""
    assert of({"input": "x", "prompt": "x"}, calls.EMBEDDINGS) == b""


def test_a_prompt_of_anything_has_a_prefix_and_no_end_of_nesting_or_odd_text_breaks_it() -> None:
    deep: Any = "x"
    for _ in range(400):
        deep = [deep]
    for prompt in (deep, "\ud800", {"a": 1}, ["x"] * 10_000, -1.5):
        assert len(of({"prompt": prompt}, calls.COMPLETIONS)) == 16
    odd: list[list[Any]] = [[None], [[]], ["\ud800"], [{"role": ["user"]}] * 3]
    for messages in odd:
        assert len(of({"messages": messages})) == 16


def test_prefixes_are_spread_evenly_and_each_has_one_home() -> None:
    idle = [(name, 0) for name in NAMES]
    homes = [affinity.chosen(one, idle) for one in prefixes(10_000)]
    assert homes == [affinity.chosen(one, list(reversed(idle))) for one in prefixes(10_000)]
    counts = Counter(homes)
    # The expected number is 1,000 each, with a standard deviation of 30. The prompts are always the same.
    assert set(counts) == set(NAMES) and max(abs(count - 1000) for count in counts.values()) < 150


def test_where_a_replica_goes_its_prefixes_alone_move() -> None:
    idle = [(name, 0) for name in NAMES]
    fewer = idle[:-1]
    for one in prefixes(2000):
        before = affinity.chosen(one, idle)
        assert affinity.chosen(one, fewer) == before or before == NAMES[-1]


@pytest.mark.parametrize("hot", [0.0, 0.5, 1.0])
def test_no_replica_gets_more_than_its_part_for_its_prompts_and_most_find_their_home(hot: float) -> None:
    """At any time, 400 requests are active, and a part of all requests has the same prompt."""
    chance, loads = random.Random(7), Counter(dict.fromkeys(NAMES, 0))
    under_way, at_home = deque[str](), 0
    some = prefixes(500)
    for number in range(20_000):
        one = some[0] if chance.random() < hot else chance.choice(some)
        name = affinity.chosen(one, list(loads.items()))
        at_home += name is not None
        name = name or min(loads, key=lambda each: loads[each])
        loads[name] += 1
        under_way.append(name)
        if number >= 400:
            loads[under_way.popleft()] -= 1
        assert loads[name] <= BOUND * (loads.total() + 1) / len(NAMES) + 1
    assert at_home / 20_000 > {0.0: 0.9, 0.5: 0.4, 1.0: 0.05}[hot]
