"""Tests the cache of jobs' owners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coordinator.jobs.caches.owners import Owners


class Reads:
    """Jobs by tenant, and the recorded requests for them."""

    def __init__(self, **tenants: str) -> None:
        self.jobs, self.asked = tenants, list[list[str]]()

    def tenants(self, ids: Sequence[str]) -> list[str | None]:
        self.asked.append(list(ids))
        return [self.jobs.get(job_id) for job_id in ids]


def test_a_job_is_asked_for_once_and_a_missing_one_each_time() -> None:
    reads: Any = Reads(a="x", b="y")
    owners = Owners(reads)
    assert owners.of(["a", "b", "c"]) == ["x", "y", None]
    assert owners.of(["c", "b", "b", "a"]) == [None, "y", "y", "x"]
    reads.jobs["c"] = "z"
    assert owners.of(["c"]) == ["z"] and owners.of(["c", "a"]) == ["z", "x"]
    assert reads.asked == [["a", "b", "c"], ["c"], ["c"]]


def test_the_oldest_are_forgotten() -> None:
    reads: Any = Reads(**{f"j{number}": "x" for number in range(10)})
    owners = Owners(reads, kept=4)
    for number in range(10):
        assert owners.of([f"j{number}"]) == ["x"]
    assert owners.of(["j6", "j9"]) == ["x", "x"] and len(reads.asked) == 10
    assert owners.of(["j5"]) == ["x"] and len(reads.asked) == 11
