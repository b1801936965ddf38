"""Tests how a job finishes: parts are folded, and the result is derived, stored, and checked again after new parts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jobs.partial_reader import GatheredPartials
from jobs.worker import execution
from jobs.worker.execution import Derived


class Results:
    """Parts that arrive one after another: each `gather` returns one more than the previous `fold` had."""

    def __init__(self, *parts: bytes) -> None:
        self.coming = list(parts)
        self.accumulator: bytes | None = None
        self.calls: list[str] = []

    def gather(self, job: str, limit: int) -> GatheredPartials:
        self.calls.append("gather")
        self.parts = tuple(self.coming[:1])
        return GatheredPartials(accumulator=self.accumulator, parts=self.parts, done=1, spec=b"{}")

    def fold(self, job: str, gathered: GatheredPartials, accumulator: bytes) -> bool:
        self.calls.append("fold")
        del self.coming[: len(gathered.parts)]
        self.accumulator = accumulator
        return True

    def finish(self, job: str, gathered: GatheredPartials, result: bytes, marks: str) -> bool:
        self.calls.append("finish")
        return not self.coming and (gathered.accumulator, gathered.parts) == (self.accumulator, ())


def derive(kind: str, spec: Any, gathered: GatheredPartials) -> Derived:
    folded = (gathered.accumulator or b"") + b"".join(gathered.parts)
    return Derived(folded=folded, result=b"of " + folded, marks="[]")


@pytest.mark.parametrize(
    ("parts", "calls"),
    [
        ((b"a",), ["gather", "fold", "finish"]),
        ((b"a", b"b"), ["gather", "fold", "finish", "gather", "fold", "finish"]),
    ],
)
def test_what_was_folded_is_finished_without_another_look(parts: tuple[bytes, ...], calls: list[str]) -> None:
    results = Results(*parts)
    store: Any = SimpleNamespace(results=results)
    assert execution.finish(store, "j", "k", {}, derive)
    assert results.calls == calls and results.accumulator == b"".join(parts)


def test_a_job_that_somebody_else_has_finished_is_left_alone() -> None:
    results = Results()
    assert not execution.finish(SimpleNamespace(results=results), "j", "k", {}, derive)
    assert results.calls == ["gather"]
