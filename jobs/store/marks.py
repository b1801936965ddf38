"""Marks: facts about ranges of integers that finished jobs leave for good, joined where they touch.

Integers of any size, so Lua never computes with them: a script stores each job's range as it is, in the moment in
which the job is done. Joining is done by whoever reads, and by the janitor to keep the list short; both may do it at
any time.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from jobs.kinds import registry
from jobs.models import Mark, MarkKind, Spec


def where(kind: str, name: str) -> str:
    return f"{kind}:{name}"


def left_by(kind: str, spec: Spec, result: dict[str, Any] | None) -> str:
    """What a job leaves, for FINISH and DONE1."""
    definition = registry.marking(kind)
    found = [] if definition is None or result is None else definition.marks(spec, result)
    return json.dumps([[where(kind, mark.name), *row] for mark in found for row in rows([mark]).items()])


def rows(marks: Iterable[Mark]) -> dict[str, str]:
    """Payload by range, as stored."""
    return {f"{mark.lo}-{mark.hi}": json.dumps(mark.payload) for mark in marks}


def read(name: str, stored: Mapping[str, str]) -> list[Mark]:
    """As stored, in order. What cannot be read is left out; it is no fact about any number."""
    found = []
    for field, text in stored.items():
        with contextlib.suppress(ValueError, TypeError):
            lo, hi = map(int, field.split("-"))
            found.append(Mark(name=name, lo=lo, hi=hi, payload=json.loads(text)))
    return sorted(found, key=lambda mark: (mark.lo, mark.hi))


def joined(marks: Iterable[Mark], kind: MarkKind) -> list[Mark]:
    """Ranges that neither touch nor overlap, in order. `marks` are in order."""
    found: list[Mark] = []
    for mark in marks:
        if found and mark.lo <= found[-1].hi:
            last = found.pop()
            payload = kind.join(last.payload, mark.payload)
            mark = Mark(name=mark.name, lo=last.lo, hi=max(last.hi, mark.hi), payload=payload)  # noqa: PLW2901
        found.append(mark)
    return found


def from_origin(marks: Iterable[Mark], kind: MarkKind) -> Mark | None:
    """The range that reaches from the origin without a hole."""
    return next((mark for mark in marks if mark.lo <= kind.origin < mark.hi), None)
