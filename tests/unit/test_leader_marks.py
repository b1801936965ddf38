"""Tests that the leader joins a mark's ranges only if the result can change."""

from __future__ import annotations

import pytest

from coordinator.background import leader as leader_module
from coordinator.background.leader import Leader
from jobs import marks
from jobs.kinds import registry
from jobs.models import Mark
from jobs.store import Store, keys
from jobs.store.server import connection
from jobs.store.work.marks import Marks
from tests.unit.test_marks import stored


class Counting(Marks):
    """Counts how often all ranges are read."""

    reads = 0

    def read(self, kind: str, name: str) -> list[Mark]:
        self.reads += 1
        return super().read(kind, name)


def test_ranges_that_do_not_touch_are_joined_once(any_redis_url: str) -> None:
    client = connection.connect(any_redis_url)
    store = Store(client)
    store.marks = counting = Counting(store.functions)
    leader, where = Leader(store), keys.mark("collatz", "verified")
    client.hset(where, mapping=dict.fromkeys((f"{10 * n}-{10 * n + 5}" for n in range(1000)), "null"))
    mark = registry.definition("collatz").mark_kinds["verified"]
    for _ in range(5):
        leader.merge_mark("collatz", "verified", mark)
    assert counting.reads == 1 and client.hlen(where) == 1000
    client.hset(where, mapping=dict.fromkeys((f"{10 * n + 5}-{10 * n + 10}" for n in range(300)), "null"))
    leader.merge_mark("collatz", "verified", mark)
    assert counting.reads == 2 and client.hlen(where) == 700
    client.close()


def test_a_broken_mark_does_not_stop_the_leader(any_redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_module, "PRUNE_EVERY", 10)
    client, pruned = connection.connect(any_redis_url), []
    store = Store(client)
    monkeypatch.setattr(store.usage, "prune", lambda: pruned.append(True))
    client.set(keys.mark("collatz", "verified"), "x")
    leader = Leader(store)
    for _ in range(10):
        leader.run_once()
    assert leader.is_leading and pruned
    client.close()


def test_a_range_that_cannot_be_read_hides_no_other() -> None:
    rows = {**stored([(0, 5)]), "x": "{}", "1-2": "{", "3-4-5": "null"}
    assert len(marks.parse_marks("seen", rows)) == 1
