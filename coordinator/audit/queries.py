"""Read the audit log from Redis."""

from __future__ import annotations

from coordinator.audit import serializers
from jobs.store.tenancy.audit_log import START, AuditLog, Log, Position
from threads_protocol.answers import audit as answers


class AuditQueries:
    """Queries of the audit log."""

    def __init__(self, audit_log: AuditLog, file: str) -> None:
        self._audit_log = audit_log
        self._file = file

    def unexported_seconds(self) -> float:
        """Return the age in seconds of the oldest entry that is not in AUDIT_FILE, or 0 if AUDIT_FILE is not set."""
        return self._audit_log.unexported_seconds() if self._file else 0.0

    def part(self, after: int | None, limit: int) -> answers.AuditPart:
        """Return at most `limit` entries with numbers above `after`, or the newest entries if `after` is None."""
        if after is None:
            log = self._audit_log.newest(limit)
            after = log.entries[0].seq - 1 if log.entries else log.head.seq
        else:
            log = self._audit_log.read(after, limit)
        return serializers.serialize_part(log, self._before(after, log))

    def _before(self, after: int, log: Log) -> Position:
        """Return the position of the entry before the first entry in `log`."""
        if after <= log.dropped.seq:
            return log.dropped
        known = self._audit_log.hash_of(after)
        return Position(after, known) if known else START
