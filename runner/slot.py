"""A slot of a runner: one guard process, and the program that it runs now."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from runner import orders, processes
from runner.orders import Ended, Order
from runner.output import Drain

log = logging.getLogger(__name__)

#: Where the package `runner` is.
_ROOT = Path(__file__).resolve().parent.parent
#: Seconds that the pipes of a program may stay open once nothing of it is alive.
PIPES_SECONDS = 1.0
#: Seconds that a guard gets to kill what it guards, before it is killed itself.
CLOSE_SECONDS = 5.0

#: Guards of this process, by process id. Whoever starts or ends one holds the lock.
_guards: set[int] = set()
_guards_change = threading.Lock()
#: This process adopts orphans, and every child of it that is no guard is one.
_adopts = threading.Event()


class GuardDied(Exception):
    """The guard ended with its program; nothing is known of how that would have ended."""


class Slot:
    """Runs one program at a time. `run` blocks; `stop` may come from any thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        #: Times that its guard had to be started again.
        self.restarts = -1
        self._sending = threading.Lock()
        self._start()

    def _start(self) -> None:
        self._channel, theirs = orders.channel()
        with theirs, _guards_change:
            # Its environment holds no secret of the runner's.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "runner.guard", str(theirs.fileno())], pass_fds=[theirs.fileno()],
                cwd="/", env={"PYTHONPATH": str(_ROOT), "PATH": os.defpath}, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            _guards.add(self._process.pid)
        self.restarts += 1

    @property
    def pid(self) -> int:
        """Return the process id of its guard."""
        return self._process.pid

    def run(self, order: Order, sink: Callable[[int, bytes], None]) -> Ended:
        """Run a program to its end; `sink` gets what it writes, 0 for stdout and 1 for stderr, on another thread.

        Raises GuardDied; then the next program gets another guard.
        """
        if self._process.poll() is not None:
            self.close()
            self._replace()
        drain = self._send(order, sink)
        try:
            return self._wait()
        finally:
            drain.finish(PIPES_SECONDS)

    def _send(self, order: Order, sink: Callable[[int, bytes], None]) -> Drain:
        pipes = [os.pipe() for _ in range(2)]
        drain = Drain([read for read, _ in pipes], sink)
        try:
            with self._sending:
                orders.send(self._channel, orders.run(order), [write for _, write in pipes])
        except ConnectionError as error:
            raise GuardDied(f"slot {self.name}: {error}") from error
        finally:
            for _, write in pipes:
                os.close(write)
        return drain

    def _wait(self) -> Ended:
        message, _ = orders.receive(self._channel)
        if message is None:
            self.close()
            raise GuardDied(f"slot {self.name}: its guard ended with {self._process.returncode}")
        return Ended(**message["ended"])

    def stop(self, grace_seconds: float) -> None:
        """Have what runs now, if anything, ended: SIGTERM, and SIGKILL after the grace."""
        with self._sending, contextlib.suppress(OSError):
            orders.send(self._channel, orders.stop(grace_seconds))

    def _replace(self) -> None:
        log.warning("the guard of a slot is started again", extra={"lane": self.name})
        self._start()

    def close(self) -> None:
        """Kill what runs, and end the guard."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        self._channel.close()
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _forget(self._process.pid)


def adopt_orphans() -> None:
    """Make this process the parent of what a guard that dies leaves behind, so that it is killed then.

    For a runner's process, which has no children but guards: any other would be killed, too.
    """
    processes.adopt_orphans()
    _adopts.set()


def _forget(guard: int) -> None:
    """Kill what a guard left behind when it died, where this process has adopted it."""
    with _guards_change:
        _guards.discard(guard)
        while _adopts.is_set() and (orphans := set(processes.children(os.getpid())) - _guards):
            for orphan in orphans:
                processes.kill_tree(orphan)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(orphan, 0)
