"""Marks of kinds as the API shows them: ranges that finished jobs proved."""

from __future__ import annotations

from jobs import errors, marks
from jobs.kinds import registry
from jobs.store import Store
from threads_protocol.answers import jobs as answers
from threads_protocol.numbers import exact

#: Ranges of a mark that one answer shows.
_RANGES = 1000


def read_range(store: Store, kind: str, name: str) -> answers.Mark:
    """Return how far a mark reaches without a hole, and the ranges beyond. NotFound naming those there are."""
    if kind not in registry.names():
        raise errors.NotFound(f"there is no kind {kind}; see GET /api/job-types", field="kind")
    known = registry.definition(kind).mark_kinds
    if name not in known:
        have = ", ".join(known) or "none"
        raise errors.NotFound(f"{kind} has no mark {name}; it has {have}", field="mark")
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
