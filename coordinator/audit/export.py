"""Export of the audit log from Redis to AUDIT_FILE. Only the leader exports; two at once do no harm.

An entry is dropped from Redis only after the file holds it. When Redis has lost its last writes and the file has not,
the file is right about the past: the log goes on from the file's end, with an entry that names what is void.
"""

from __future__ import annotations

import logging
from pathlib import Path

from coordinator.audit.file import AuditFile, opened
from jobs.store.tenancy.audit_log import AuditLog, Log, Position

log = logging.getLogger(__name__)

#: Entries that Redis keeps: of those in the file, for quick answers, and without a file. Without one, they are dropped
#: by the thousand, so that entries that say so stay few.
KEPT_EXPORTED, KEPT, SLACK = 10_000, 100_000, 1000
#: Entries written at once, and how often a round writes at most.
BATCH, BATCHES = 1000, 50

_GAP = (
    "AUDIT_FILE lacks entries of the audit log that redis no longer keeps; if another coordinator has another"
    " AUDIT_FILE, they are there: give all of them the same"
)


def export(audit_log: AuditLog, path: Path) -> int:
    """Append new entries to the file and return how many. OSError or BrokenFile when the file cannot be written."""
    written = 0
    with opened(path) as file:
        for _ in range(BATCHES if file else 0):
            assert file
            count = _append(audit_log, file)
            written += count or 0
            if count is not None and count < BATCH:
                break
    return written


def _append(audit_log: AuditLog, file: AuditFile) -> int | None:
    """Append at most BATCH entries; None: the log first had to go on from the file's end."""
    end = file.end().position
    new = audit_log.read(end.seq, BATCH)
    if _has_forgotten(new, end) and (void := _first_void(audit_log, file, new, end)):
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
        file.keep()  # whoever wrote the last lines may have been killed before they were on disk
    if new.entries or new.exported != end.seq:
        audit_log.trim(KEPT_EXPORTED, exported=end.seq)
    return len(new.entries)


def _has_forgotten(new: Log, end: Position) -> bool:
    """Return True when the log does not go on from the end of the file."""
    if new.head.seq <= end.seq:
        return new.head != end
    return new.dropped.seq <= end.seq and bool(new.entries) and not new.entries[0].follows(end)


def _first_void(audit_log: AuditLog, file: AuditFile, new: Log, end: Position) -> int | None:
    """Return the first entry of the file that Redis does not have, or has another one for; None: it has them all."""
    kept = audit_log.up_to(end.seq).entries
    hashes = file.hashes(kept[0].seq) if kept else {}
    differing = (entry.seq for entry in kept if hashes.get(entry.seq) != entry.hash)
    return next(differing, new.head.seq + 1 if new.head.seq < end.seq else None)
