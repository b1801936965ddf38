"""Suspension of a program and of all that it started: nothing of it runs, and nothing of it is lost."""

from __future__ import annotations

import contextlib
import os
import signal

from runner.programs import processes

#: States of threads in /proc that are stopped, and those in which one of a process that got SIGSTOP runs no code of
#: its own.
_STOPPED, _HELD = "Tt", "TtDZX"


class Suspension:
    """Suspends all descendants of a process. One that was stopped by somebody else stays so afterwards."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._stopped: set[int] = set()

    def hold(self) -> bool:
        """Stop what runs; True when nothing did. What was being started during one call is stopped by the next."""
        running = [pid for pid in processes.descendants(self._top) if not self._is_held(pid)]
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        self._stopped.update(running)
        return not running

    def _is_held(self, pid: int) -> bool:
        # Its first thread may have ended, or be held by a debugger or a device, while others run.
        states = processes.states(pid)
        return bool(states) and all(state in (_HELD if pid in self._stopped else _STOPPED) for state in states)

    def release(self) -> None:
        """Have what was stopped go on."""
        for pid in self._stopped.intersection(processes.descendants(self._top)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._stopped.clear()
