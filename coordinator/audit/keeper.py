"""Thread of a coordinator that writes down denied calls and, while it leads, exports or trims the audit log."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from coordinator.audit import export
from coordinator.audit.denials import SECONDS, Denials
from coordinator.audit.file import BrokenFile
from jobs.store import connection
from jobs.store.audit_log import AuditLog

log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0
_ONCE_IT_CAN = (
    "redis keeps the entries, and they are written as soon as it can be: look at df, and at the rights of its folder"
)
_OTHER_FILE = (
    "this coordinator leads without AUDIT_FILE, and the log was exported to one up to entry %d: give all coordinators"
    " the same, or that file has a gap when Redis drops entries"
)


class AuditKeeper(threading.Thread):
    """Does a round each ROUND_SECONDS. Apart from the leader's own thread: a slow disk must not delay that one."""

    def __init__(self, audit_log: AuditLog, denials: Denials, leads: Callable[[], bool], file: str) -> None:
        super().__init__(name="audit-keeper", daemon=True)
        self._audit_log = audit_log
        self._denials = denials
        self._leads = leads
        self._file = Path(file) if file else None
        self._ended = threading.Event()
        self._minute_ends = time.monotonic() + SECONDS
        self._trouble = ""
        #: It has looked whether the log was exported by others, where it has no file itself.
        self._has_looked = False

    def run(self) -> None:
        """Do rounds until stopped, whatever fails."""
        while not self._ended.wait(ROUND_SECONDS):
            self._attempt(self.round)
        self._attempt(self._write_denials)

    def round(self) -> None:
        """Write down what was denied in the minute that ended; export or trim when leading."""
        if time.monotonic() >= self._minute_ends:
            self._minute_ends = time.monotonic() + SECONDS
            self._write_denials()
        if not self._leads():
            return
        if self._file:
            export.export(self._audit_log, self._file)
        else:
            self._look_for_a_file()
            self._audit_log.trim(export.KEPT, slack=export.SLACK)

    def _look_for_a_file(self) -> None:
        """Say once that another coordinator exports: while this one leads, its file lacks what comes."""
        if self._has_looked:
            return
        if exported := self._audit_log.read(0, 1).exported:
            log.warning(_OTHER_FILE, exported)
        self._has_looked = True

    def _write_denials(self) -> None:
        self._denials.write(self._audit_log.deny)

    def _attempt(self, call: Callable[[], None]) -> None:
        """Call, and log once what goes wrong until it works again."""
        trouble = ""
        try:
            call()
        except connection.Unreachable as error:
            trouble = f"redis cannot be reached: {type(error).__name__}"
        except OSError as error:
            trouble = f"AUDIT_FILE {self._file} cannot be written ({error.strerror or error}); {_ONCE_IT_CAN}"
        except BrokenFile as error:
            trouble = f"AUDIT_FILE cannot be written, redis keeps the entries: {error}"
        except Exception as error:
            trouble = f"{type(error).__name__}: {error}"
            if trouble != self._trouble:
                log.exception("the audit log was not kept")
        if trouble and trouble != self._trouble:
            log.warning("the audit log was not kept: %s", trouble)
        self._trouble = trouble

    def stop(self) -> None:
        """End, and write down what was denied since the last minute."""
        self._ended.set()
        self.join(timeout=1.0)
