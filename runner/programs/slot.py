"""A slot of a runner: one guard process, and the program that it runs now."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.programs import orders, processes
from runner.programs.orders import Order, ProgramEnd
from runner.programs.output import Drain

log = logging.getLogger(__name__)

#: The module that a guard runs.
GUARD = "runner.programs.guard"
#: Where the package `runner` is.
_ROOT = Path(__file__).resolve().parents[2]
#: Seconds that the pipes of a program may stay open once nothing of it is alive.
PIPES_SECONDS = 1.0
#: Seconds between two questions whether a program shall stop.
LOOK_SECONDS = 0.2
#: Seconds that a guard gets to kill what it guards, before it is killed itself.
CLOSE_SECONDS = 5.0
#: Seconds after a timeout or a grace at which a guard that does not answer is killed: to end a fork bomb takes some.
ANSWER_SECONDS = 20.0
#: Seconds between two messages to a guard that say how long its program may run.
KEEP_SECONDS = 1.0

#: Seconds between two looks from which on this process did not run meanwhile.
_STOPPED_SECONDS = 3.0
#: Seconds between two passes of SIGKILL.
_AGAIN_SECONDS = 0.005

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
                [sys.executable, "-m", GUARD, str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                cwd="/",
                env={"PYTHONPATH": str(_ROOT), "PATH": os.defpath},
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-Z at the runner's terminal would stop it, and not its program
            )
            _guards.add(self._process.pid)
        self.restarts += 1

    @property
    def pid(self) -> int:
        """Return the process id of its guard."""
        return self._process.pid

    def run(
        self,
        order: Order,
        sink: Callable[[int, bytes], None],
        look: Callable[[], float | None] = lambda: None,
        until: Callable[[], float] = lambda: math.inf,
    ) -> ProgramEnd:
        """Run a program to its end; `sink` gets what it writes, 0 for stdout and 1 for stderr.

        `look` is asked several times a second; where it answers seconds of grace, the program is stopped. `until` is
        asked once a second; from that time on, in monotonic seconds, the guard keeps the program suspended, by itself,
        should this process be stopped, until a later time is answered. Raises GuardDied; then the next program gets
        another guard.
        """
        if self._process.poll() is not None:
            self.close()
            self._replace()
        pipes = _pipes(2)
        drain = Drain([read for read, _ in pipes], sink)
        return self._run(order, drain, [write for _, write in pipes], look, until)

    def run_attached(
        self, order: Order, descriptors: Sequence[int], look: Callable[[], float | None], until: Callable[[], float]
    ) -> ProgramEnd:
        """Run a shell to its end on its stdin, stdout and stderr, which are closed here. The rest as `run`."""
        return self._run(order, Drain([], lambda *_: None), descriptors, look, until)

    def _run(
        self,
        order: Order,
        drain: Drain,
        descriptors: Sequence[int],
        look: Callable[[], float | None],
        until: Callable[[], float],
    ) -> ProgramEnd:
        try:
            self._send(replace(order, until=_finite(until())), descriptors)
            return self._attend(order, drain, look, until)
        finally:
            drain.close()

    def _send(self, order: Order, descriptors: Sequence[int]) -> None:
        try:
            with self._sending:
                orders.send_run(self._channel, order, descriptors)
        except ConnectionError as error:
            raise GuardDied(f"slot {self.name}: {error}") from error
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _attend(
        self, order: Order, drain: Drain, look: Callable[[], float | None], until: Callable[[], float]
    ) -> ProgramEnd:
        """Read output until the program has ended, and what the pipes hold then."""
        ended: ProgramEnd | None = None
        started = kept = seen = time.monotonic()
        stopping, pipes_until = False, math.inf
        answer_until = started + order.timeout_seconds + ANSWER_SECONDS if order.timeout_seconds else math.inf
        while ended is None or (drain.open and time.monotonic() < pipes_until):
            if self._wait(drain, for_end=ended is None):
                ended, pipes_until = self._wait_for_end(), time.monotonic() + PIPES_SECONDS
            elif ended is None:
                now = time.monotonic()
                # It was suspended; perhaps this process was stopped, too.
                if not stopping and (now >= until() or now - seen > _STOPPED_SECONDS):
                    answer_until += now - seen
                seen = now
                if not stopping and (grace := look()) is not None:
                    stopping = True
                    self.stop(grace)
                    answer_until = min(answer_until, now + grace + ANSWER_SECONDS)
                elif now > kept + KEEP_SECONDS:
                    kept = now
                    self._keep(until())
                if now > answer_until:  # its program, or another one, keeps it from its work
                    self._process.kill()
        return ended

    def _keep(self, until: float) -> None:
        """Say how long the program may run, and have a guard go on that a program has stopped with a signal."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)
        with self._sending, contextlib.suppress(OSError):
            orders.send(self._channel, orders.keep(_finite(until)))

    def _wait(self, drain: Drain, *, for_end: bool) -> bool:
        """Wait for one thing to happen, for LOOK_SECONDS at most; True: the guard has something to say."""
        poll, channel = select.poll(), self._channel.fileno()
        for pipe in drain.pipes():
            poll.register(pipe, select.POLLIN)
        if for_end:
            poll.register(channel, select.POLLIN)
        ready = [fd for fd, _ in poll.poll(1000 * min(LOOK_SECONDS, drain.pause() or LOOK_SECONDS))]
        for pipe in ready:
            if pipe != channel:
                drain.read(pipe)
        return channel in ready

    def _wait_for_end(self) -> ProgramEnd:
        message, _ = orders.receive(self._channel)
        if message is None:
            self.close()
            raise GuardDied(f"slot {self.name}: its guard ended with {self._process.returncode}")
        return ProgramEnd(**message["ended"])

    def stop(self, grace_seconds: float) -> None:
        """Have what runs now, if anything, ended: SIGTERM, of a shell SIGHUP, and SIGKILL after the grace."""
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


def _pipes(count: int) -> list[tuple[int, int]]:
    """Make pipes whose reading ends never block: a program may open its own, and read what it wrote."""
    pipes: list[tuple[int, int]] = []
    try:
        for _ in range(count):
            pipes.append(os.pipe())
            os.set_blocking(pipes[-1][0], False)
    except OSError:
        for end in (end for pipe in pipes for end in pipe):
            os.close(end)
        raise
    return pipes


def _finite(until: float) -> float:
    """Return a time as a message has it: 0 for none."""
    return 0.0 if until == math.inf else until


def adopt_orphans() -> None:
    """Make this process the parent of what a guard that dies leaves behind, so that it is killed then.

    For a runner's process, which has no children but guards: any other would be killed, too.
    """
    processes.adopt_orphans()
    _adopts.set()


def spawn_beside(command: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
    """Start a process that is no program's, and is not killed with what programs left. `gone_beside` at its end."""
    with _guards_change:
        process = subprocess.Popen[bytes](command, **how)
        _guards.add(process.pid)
    return process


def gone_beside(pid: int) -> None:
    """Forget such a process."""
    with _guards_change:
        _guards.discard(pid)


def _forget(guard: int) -> None:
    """Kill what a guard left behind when it died, where this process has adopted it."""
    with _guards_change:
        _guards.discard(guard)
        until = time.monotonic() + CLOSE_SECONDS  # what waits for a device or a file server dies later
        while _adopts.is_set() and (orphans := set(processes.children(os.getpid())) - _guards):
            for orphan in orphans:
                processes.kill_tree(orphan)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(orphan, os.WNOHANG)
            if time.monotonic() > until:
                log.error("processes that a program left cannot be ended: %s", sorted(orphans))
                return
            time.sleep(_AGAIN_SECONDS)
