"""Marks: facts about ranges of integers that finished jobs leave for good, joined where they touch.

Integers of any size, so Lua never computes with them: a function stores each job's range as it is, in the moment in
which the job is done. Joining is done by whoever reads, and by the leader to keep the list short; they can do so at
the same time.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from jobs.kinds import registry
from jobs.models import Mark, MarkKind, Spec


def left_by(kind: str, spec: Spec, result: dict[str, Any] | None) -> str:
    """Return what a job leaves, as FINISH and DONE1 take it."""
    left = [] if result is None else registry.definition(kind).marks(spec, result)
    return json.dumps([[f"{kind}:{mark.name}", *row] for mark in left for row in rows([mark]).items()])


def rows(marks: Iterable[Mark]) -> dict[str, str]:
    """Return payload by range, as stored."""
    return {f"{mark.lo}-{mark.hi}": json.dumps(mark.payload) for mark in marks}


def parsed(name: str, stored: Mapping[str, str]) -> list[Mark]:
    """Return stored marks in order. What cannot be read is left out; it is no fact about any number."""
    readable = []
    for field, text in stored.items():
        with contextlib.suppress(ValueError, TypeError):
            lo, hi = map(int, field.split("-"))
            readable.append(Mark(name=name, lo=lo, hi=hi, payload=json.loads(text)))
    return sorted(readable, key=lambda mark: (mark.lo, mark.hi))


def joined(marks: Iterable[Mark], kind: MarkKind) -> list[Mark]:
    """Join ranges that touch or overlap. `marks` are in order, and so is what is returned."""
    apart: list[Mark] = []
    for mark in marks:
        if apart and mark.lo <= apart[-1].hi:
            last = apart.pop()
            payload = kind.join(last.payload, mark.payload)
            mark = Mark(name=mark.name, lo=last.lo, hi=max(last.hi, mark.hi), payload=payload)  # noqa: PLW2901
        apart.append(mark)
    return apart


def from_origin(marks: Iterable[Mark], kind: MarkKind) -> Mark | None:
    """Return the range that reaches from the origin without a hole."""
    return next((mark for mark in marks if mark.lo <= kind.origin < mark.hi), None)
