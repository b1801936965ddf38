"""Marks: facts about ranges of integers that finished jobs proved. Adjacent ranges are merged.

The integers can have any size, so Lua never computes with them. When a job finishes, the Redis function stores the
job's range unchanged. Readers merge adjacent ranges, and so does the leader, to keep the list short. Both can merge at
the same time.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from jobs.kinds import registry
from jobs.models import Mark, MarkKind, Spec


def serialize_marks(kind: str, spec: Spec, result: dict[str, Any] | None) -> str:
    """Encode the marks of a finished job as JSON for the Redis functions."""
    left = [] if result is None else registry.definition(kind).marks(spec, result)
    return json.dumps([[f"{kind}:{mark.name}", *row] for mark in left for row in payloads_by_range([mark]).items()])


def payloads_by_range(marks: Iterable[Mark]) -> dict[str, str]:
    """Encode marks as JSON payloads, keyed by range (`lo-hi`), as Redis stores them."""
    return {f"{mark.lo}-{mark.hi}": json.dumps(mark.payload) for mark in marks}


def parse_marks(name: str, stored: Mapping[str, str]) -> list[Mark]:
    """Parse stored marks and return them in order. Unreadable marks are skipped, because they prove nothing."""
    readable = []
    for field, text in stored.items():
        with contextlib.suppress(ValueError, TypeError):
            lo, hi = map(int, field.split("-"))
            readable.append(Mark(name=name, lo=lo, hi=hi, payload=json.loads(text)))
    return sorted(readable, key=lambda mark: (mark.lo, mark.hi))


def merge_marks(marks: Iterable[Mark], kind: MarkKind) -> list[Mark]:
    """Merge marks whose ranges touch or overlap. Both the argument and the result are sorted."""
    apart: list[Mark] = []
    for mark in marks:
        if apart and mark.lo <= apart[-1].hi:
            last = apart.pop()
            payload = kind.join(last.payload, mark.payload)
            mark = Mark(name=mark.name, lo=last.lo, hi=max(last.hi, mark.hi), payload=payload)  # noqa: PLW2901
        apart.append(mark)
    return apart


def find_proven_range(marks: Iterable[Mark], kind: MarkKind) -> Mark | None:
    """Return the mark whose range contains `kind.origin`, or None if there is none."""
    return next((mark for mark in marks if mark.lo <= kind.origin < mark.hi), None)
