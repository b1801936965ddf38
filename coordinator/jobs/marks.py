"""Read a kind's marks, which are the ranges of numbers that its finished jobs have proved."""

from __future__ import annotations

from jobs import errors, marks
from jobs.kinds import registry
from jobs.store import Store
from threads_protocol.answers import jobs as answers
from threads_protocol.numbers import exact

#: Maximum number of ranges of a mark in one response.
_RANGES = 1000


def read_range(store: Store, kind: str, name: str) -> answers.Mark:
    """Return a mark: its gapless range from the origin, and its other ranges. Raise NotFound if the mark does not
    exist.
    """
    if kind not in registry.names():
        raise errors.NotFound(f"kind {kind} does not exist; see GET /api/job-types", field="kind")
    known = registry.definition(kind).mark_kinds
    if name not in known:
        have = ", ".join(known) or "none"
        raise errors.NotFound(f"{kind} has no mark {name}; its marks are {have}", field="mark")
    ranges = marks.merge_marks(store.marks.read(kind, name), known[name])
    reach = marks.find_proven_range(ranges, known[name])
    return {
        "type": kind,
        "mark": name,
        "summary": known[name].summary,
        "origin": exact(known[name].origin),
        "up_to": exact(reach.hi - 1) if reach else None,
        "ranges": [{"first": exact(mark.lo), "last": exact(mark.hi - 1)} for mark in ranges[:_RANGES]],
        "more_ranges": max(0, len(ranges) - _RANGES),
    }
