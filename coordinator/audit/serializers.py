"""Serialize the audit log."""

from __future__ import annotations

from jobs.store.tenancy.audit_log import Log, Position
from threads_protocol.answers import audit as answers


def serialize_position(position: Position) -> answers.AuditPosition:
    """Return a position in the hash chain."""
    return {"seq": position.seq, "hash": position.hash}


def serialize_part(log: Log, before: Position) -> answers.AuditPart:
    """Return a part of the audit log. Its first line names the previous entry, if there is one."""
    anchor = [f'{{"after":{before.seq},"hash":"{before.hash}"}}'] if before.seq else []
    return {
        "lines": anchor + [entry.line.decode(errors="replace") for entry in log.entries],
        "head": serialize_position(log.head),
        "dropped": serialize_position(log.dropped),
        "exported": log.exported,
    }
