"""Make the answers about the audit log."""

from __future__ import annotations

from jobs.store.tenancy.audit_log import Log, Position
from threads_protocol.answers import audit as answers


def serialize_position(place: Position) -> answers.AuditPosition:
    """Return a place in the chain."""
    return {"seq": place.seq, "hash": place.hash}


def serialize_part(log: Log, before: Position) -> answers.AuditPart:
    """Return entries that follow `before`, with a first line that says so unless the log begins there."""
    anchor = [f'{{"after":{before.seq},"hash":"{before.hash}"}}'] if before.seq else []
    return {
        "lines": anchor + [entry.line.decode(errors="replace") for entry in log.entries],
        "head": serialize_position(log.head),
        "dropped": serialize_position(log.dropped),
        "exported": log.exported,
    }
