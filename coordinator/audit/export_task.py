"""Periodic task that records denied requests, and exports or trims the audit log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from coordinator.audit import export
from coordinator.audit.denials import SECONDS, Denials
from coordinator.audit.file import BrokenFile
from jobs import errors
from jobs.store.tenancy.audit_log import AuditLog

log = logging.getLogger(__name__)

_RETRIED = "Redis keeps the entries. Check the free space of the disk and the permissions of the folder"
_OTHER_FILE = (
    "this coordinator is the leader and has no AUDIT_FILE, but another one exported the log up to entry %d. Set the"
    " same AUDIT_FILE for all coordinators; otherwise that file will lack the entries that Redis drops"
)


class AuditExportTask:
    """Records denied requests once a minute on each coordinator. The leader also exports or trims the audit log."""

    def __init__(self, audit_log: AuditLog, denials: Denials, leads: Callable[[], bool], file: str) -> None:
        self._audit_log = audit_log
        self._denials = denials
        self._leads = leads
        self._file = Path(file) if file else None
        self._minute_ends = time.monotonic() + SECONDS
        self._has_checked_exports = False

    def run_once(self) -> None:
        """Record the denied requests of past minutes. If this is the leader, export or trim the audit log.

        Raise Unavailable if AUDIT_FILE cannot be written.
        """
        if time.monotonic() >= self._minute_ends:
            self._minute_ends = time.monotonic() + SECONDS
            self.write_denials()
        if not self._leads():
            return
        if self._file:
            self._export(self._file)
        else:
            self._check_exports()
            self._audit_log.trim(export.KEPT, slack=export.SLACK)

    def _export(self, file: Path) -> None:
        try:
            export.export(self._audit_log, file)
        except OSError as error:
            reason = error.strerror or error
            raise errors.Unavailable(f"AUDIT_FILE {file} cannot be written ({reason}); {_RETRIED}") from error
        except BrokenFile as error:
            raise errors.Unavailable(f"AUDIT_FILE cannot be written, so Redis keeps the entries: {error}") from error

    def _check_exports(self) -> None:
        """Log a warning once if another coordinator has exported the audit log to a file."""
        if self._has_checked_exports:
            return
        if exported := self._audit_log.read(0, 1).exported:
            log.warning(_OTHER_FILE, exported)
        self._has_checked_exports = True

    def write_denials(self) -> None:
        """Write the requests denied since the last call to the audit log."""
        self._denials.write(self._audit_log.deny)
