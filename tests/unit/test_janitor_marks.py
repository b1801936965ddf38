"""The leader joins a mark's ranges when that may change something, and not again and again."""

from __future__ import annotations

from coordinator.leader import Janitor
from jobs.kinds import registry
from jobs.store import bells, leases
from jobs.store.leases import Leases
from tests.unit.test_marks import stored


class Counting(Leases):
    """Counts how often all ranges are read."""

    reads = 0

    def marks(self, name: str) -> dict[str, str]:
        self.reads += 1
        return super().marks(name)


def test_ranges_that_do_not_touch_are_joined_once(any_redis_url: str) -> None:
    client = bells.connect(any_redis_url)
    book = Counting(client)
    janitor, where = Janitor(book), f"{leases.PREFIX}mark:collatz:verified"
    kind = registry.marking("collatz")
    assert kind is not None
    client.hset(where, mapping=dict.fromkeys((f"{10 * n}-{10 * n + 5}" for n in range(1000)), "null"))
    mark = kind.MARKS["verified"]
    for _ in range(5):
        janitor._join("collatz:verified", "verified", mark)
    assert book.reads == 1 and client.hlen(where) == 1000
    client.hset(where, mapping=dict.fromkeys((f"{10 * n + 5}-{10 * n + 10}" for n in range(300)), "null"))
    janitor._join("collatz:verified", "verified", mark)
    assert book.reads == 2 and client.hlen(where) == 700
    client.close()


def test_a_range_that_cannot_be_read_hides_no_other() -> None:
    from jobs.store import marks

    rows = {**stored([(0, 5)]), "x": "{}", "1-2": "{", "3-4-5": "null"}
    assert len(marks.read("seen", rows)) == 1
