"""Rows of the audit log as they are sent; a test compares them with the schemas."""

from __future__ import annotations

from typing import TypedDict

from jobs.store.audit_log import Log, Position


class AuditPositionRow(TypedDict):
    seq: int
    hash: str


class AuditPartRow(TypedDict):
    lines: list[str]
    head: AuditPositionRow
    dropped: AuditPositionRow
    exported: int


def position(place: Position) -> AuditPositionRow:
    """Return a place in the chain."""
    return {"seq": place.seq, "hash": place.hash}


def part(log: Log, before: Position) -> AuditPartRow:
    """Return entries that follow `before`, with a first line that says so unless the log begins there."""
    anchor = [f'{{"after":{before.seq},"hash":"{before.hash}"}}'] if before.seq else []
    return {
        "lines": anchor + [entry.line.decode(errors="replace") for entry in log.entries],
        "head": position(log.head),
        "dropped": position(log.dropped),
        "exported": log.exported,
    }
