"""Export the audit log from Redis to AUDIT_FILE. Only the leader exports, but concurrent exports are safe.

Redis drops an entry only after the file contains it. If Redis has lost its last writes, the file is authoritative: the
log continues at the end of the file, with an entry that names the void entries.
"""

from __future__ import annotations

import logging
from pathlib import Path

from coordinator.audit.file import AuditFile, open_locked
from jobs.store.tenancy.audit_log import AuditLog, Log, Position

log = logging.getLogger(__name__)

#: Number of entries that Redis keeps if AUDIT_FILE is set.
#: Number of entries that Redis keeps if AUDIT_FILE is not set.
#: Number of surplus entries that are dropped together, because each drop adds one entry to the log.
KEPT_EXPORTED, KEPT, SLACK = 10_000, 100_000, 1000
#: Number of audit entries per write.
#: Maximum number of writes per export.
BATCH, BATCHES = 1000, 50

_GAP = (
    "AUDIT_FILE lacks entries of the audit log that redis no longer has. The AUDIT_FILE of another coordinator may"
    " contain them. Set the same AUDIT_FILE for all coordinators"
)


def export(audit_log: AuditLog, path: Path) -> int:
    """Append new entries to the file and return their number. Raise OSError or BrokenFile if that fails."""
    written = 0
    with open_locked(path) as file:
        for _ in range(BATCHES if file else 0):
            assert file
            count = _append(audit_log, file)
            written += count or 0
            if count is not None and count < BATCH:
                break
    return written


def _append(audit_log: AuditLog, file: AuditFile) -> int | None:
    """Append up to BATCH entries. Return their number, or None if the log in Redis did not continue the file."""
    end = file.end().position
    new = audit_log.read(end.seq, BATCH)
    if _is_discontinuous(new, end) and (void := _first_void(audit_log, file, new, end)):
        if audit_log.rebase(end, void, new.head):
            log.warning("redis lost entries of the audit log", extra={"first": void, "last": end.seq})
        return None
    gap = new.dropped.seq > end.seq
    if new.entries:
        if gap:
            log.warning(_GAP, extra={"first": end.seq + 1, "last": new.dropped.seq})
        file.append(new.dropped if gap else None, new.entries)
        end = Position(new.entries[-1].seq, new.entries[-1].hash)
    elif new.exported != end.seq:
        file.sync()  # a killed process may have written these lines without flushing them to disk
    if new.entries or new.exported != end.seq:
        audit_log.trim(KEPT_EXPORTED, exported=end.seq)
    return len(new.entries)


def _is_discontinuous(new: Log, end: Position) -> bool:
    """Return True if the log in Redis does not continue at the end of the file."""
    if new.head.seq <= end.seq:
        return new.head != end
    return new.dropped.seq <= end.seq and bool(new.entries) and not new.entries[0].follows(end)


def _first_void(audit_log: AuditLog, file: AuditFile, new: Log, end: Position) -> int | None:
    """Return the number of the file's first entry that Redis lacks or stores differently, or None."""
    kept = audit_log.up_to(end.seq).entries
    hashes = file.hashes(kept[0].seq) if kept else {}
    differing = (entry.seq for entry in kept if hashes.get(entry.seq) != entry.hash)
    return next(differing, new.head.seq + 1 if new.head.seq < end.seq else None)
