"""Suspension of a program and all of its descendants by SIGSTOP. The processes keep their state."""

from __future__ import annotations

import contextlib
import os
import signal

from runner.programs import processes

#: Thread states in /proc of stopped threads, and of threads that execute no program code after SIGSTOP.
_STOPPED, _HELD = "Tt", "TtDZX"


class Suspension:
    """Suspends all descendants of a process. Processes that were already stopped stay stopped afterwards."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._stopped: set[int] = set()

    def hold(self) -> bool:
        """Stop all running descendants. Return True if all of them were already stopped.

        Call again for processes started meanwhile.
        """
        running = [pid for pid in processes.descendants(self._top) if not self._is_held(pid)]
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        self._stopped.update(running)
        return not running

    def _is_held(self, pid: int) -> bool:
        # The main thread can have exited or be waiting for a device while other threads are running.
        states = processes.states(pid)
        return bool(states) and all(state in (_HELD if pid in self._stopped else _STOPPED) for state in states)

    def release(self) -> None:
        """Resume the processes that were stopped by this object."""
        for pid in self._stopped.intersection(processes.descendants(self._top)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._stopped.clear()
