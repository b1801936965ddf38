"""Handling of Ctrl-C, and of Interrupt in notebooks, while a call waits for jobs on the cluster."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

from threads_cluster.client.suspension import is_suspendable
from threads_cluster.errors import ClientError


def in_notebook() -> bool:
    """Return True in a notebook's kernel."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def is_interactive() -> bool:
    """Return True if a person can interrupt a call twice: in a notebook, or at a terminal."""
    return in_notebook() or (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty())


class CancelOnInterrupt:
    """Context manager that cancels jobs at the second interrupt of its blocks.

    The first interrupt only asks, and the block continues to wait. The second interrupt calls `cancel` and raises
    KeyboardInterrupt. In scripts without a terminal, and in threads other than the main thread, an interrupt raises
    KeyboardInterrupt at once and cancels nothing. `work` returns a description of the jobs for messages.
    """

    def __init__(self, work: Callable[[], str], cancel: Callable[[], object]) -> None:
        self._work, self.cancel = work, cancel
        self._has_asked = False
        self._previous: Any = None

    def __enter__(self) -> Self:
        self._previous = signal.signal(signal.SIGINT, self._ask) if _is_usable() else None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._previous is None:
            return
        signal.signal(signal.SIGINT, self._previous)
        if kind is not None and issubclass(kind, KeyboardInterrupt) and self._has_asked:
            work = self._work()
            with suppress(ClientError):
                self.cancel()
                write_line(f"Cancelled {work}.")

    def forget(self) -> None:
        """Ask again at the next interrupt, because the jobs of the last question have ended."""
        self._has_asked = False

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        if self._has_asked:
            raise KeyboardInterrupt
        self._has_asked = True
        write_line(f"\nStill waiting. Interrupt again to cancel {self._work()}.")


def write_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _is_usable() -> bool:
    """Return True unless the program or asyncio handles interrupts, or this thread cannot set a handler."""
    is_main = threading.current_thread() is threading.main_thread() and not is_suspendable()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler and is_interactive()
