"""Slot of a runner: a guard process, and the program that the guard supervises."""

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
from typing import Any, Protocol

from runner.programs import guard_messages, processes
from runner.programs.guard_messages import Order, ProgramEnd
from runner.programs.output import Drain

log = logging.getLogger(__name__)

#: Python module of the guard process.
GUARD = "runner.programs.guard"
#: Folder that contains the `runner` package.
_ROOT = Path(__file__).resolve().parents[2]
#: Seconds for which a program's pipes can stay open after all of its processes have exited.
PIPES_SECONDS = 1.0
#: Interval in seconds at which the runner checks whether a program must stop.
POLL_SECONDS = 0.2
#: Seconds that a guard process gets to kill its program. Then the guard itself is killed.
CLOSE_SECONDS = 5.0
#: Seconds after a timeout or grace period before an unresponsive guard is killed. Killing a fork bomb takes long.
ANSWER_SECONDS = 20.0
#: Interval in seconds at which the runner extends the time limit of a program.
KEEP_SECONDS = 1.0

#: Minimum gap in seconds between two checks from which this process concludes that it was suspended.
_STOPPED_SECONDS = 3.0
#: Interval in seconds between two rounds of SIGKILL.
_AGAIN_SECONDS = 0.005

#: PIDs of guard processes and helpers. Hold the lock while a process starts or stops.
_guards: set[int] = set()
_guards_change = threading.Lock()
#: Set if this process adopts orphans. Every child that is not a guard or a helper is then an orphan.
_adopts = threading.Event()


class GuardDied(Exception):
    """The guard process died, and its program with it. The program's result is unknown."""


class Conversation(Protocol):
    """Exchange with a program that stays alive. `run` takes part in it when its socket is ready."""

    def fileno(self) -> int: ...

    def events(self) -> int:
        """Return the events of `select.poll` to wait for, or 0 if none is awaited any more."""

    def proceed(self, events: int) -> bool:
        """Send and receive without blocking. Return True if the exchange is complete."""


class Slot:
    """Slot that runs one program at a time. `run` blocks, and `stop` can be called from any thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        #: Number of times that the guard process was restarted.
        self.restarts = -1
        self._sending = threading.Lock()
        #: Monotonic time of the last finite time limit that the guard has received.
        self._kept_at = -math.inf
        self._start()

    def _start(self) -> None:
        self._channel, theirs = guard_messages.channel()
        with theirs, _guards_change:
            # The environment of the guard contains no secrets of the runner.
            self._process = subprocess.Popen(
                [sys.executable, "-m", GUARD, str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                cwd="/",
                env={"PYTHONPATH": str(_ROOT), "PATH": os.defpath},
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-Z in the terminal would otherwise stop the guard but not the program
            )
            _guards.add(self._process.pid)
        self.restarts += 1

    @property
    def pid(self) -> int:
        """Return the PID of the slot's guard process."""
        return self._process.pid

    def run(
        self,
        order: Order,
        sink: Callable[[int, bytes], None],
        look: Callable[[], float | None] = lambda: None,
        until: Callable[[], float] = lambda: math.inf,
    ) -> ProgramEnd:
        """Run a program until it exits. `sink` receives its output with 0 for stdout and 1 for stderr.

        `look` is called several times per second. If it returns a grace period in seconds, the program is stopped.
        `until` is called once per second and returns a monotonic time. At that time, the guard suspends the program
        until it receives a later time; this works even if this process is stopped. Raises GuardDied; the next program
        then gets a new guard.
        """
        self._replace_dead_guard()
        drain, descriptors = make_drain(sink)
        return self._run(order, drain, descriptors, look, until)

    def start(self, order: Order, descriptors: Sequence[int], until: Callable[[], float]) -> None:
        """Start a program that stays alive. `descriptors` are its stdin, stdout and stderr, which this method closes.

        Call `exchange` for each unit. The other parameters are those of `run`. Raises GuardDied.
        """
        self._replace_dead_guard()
        self._send(replace(order, until=_finite(until())), descriptors)

    def exchange(
        self, conversation: Conversation, drain: Drain, look: Callable[[], float | None], until: Callable[[], float]
    ) -> ProgramEnd | None:
        """Talk with the program that `start` started until the conversation is complete, then return None.

        If the program ends before, return how. The other parameters are those of `run`. Raises GuardDied.
        """
        if time.monotonic() - self._kept_at > KEEP_SECONDS:
            self.keep(until())
        return self._attend(0.0, drain, look, until, conversation)

    def _replace_dead_guard(self) -> None:
        if self._process.poll() is not None:
            self.close()
            self._replace()

    def run_attached(
        self, order: Order, descriptors: Sequence[int], look: Callable[[], float | None], until: Callable[[], float]
    ) -> ProgramEnd:
        """Run a shell until it exits. `descriptors` are its stdin, stdout and stderr, which this method closes.

        The other parameters are those of `run`.
        """
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
            ended = self._attend(order.timeout_seconds, drain, look, until)
            assert ended is not None
            return ended
        finally:
            drain.close()

    def _send(self, order: Order, descriptors: Sequence[int]) -> None:
        self._kept_at = time.monotonic() if order.until else -math.inf
        try:
            with self._sending:
                guard_messages.send_run(self._channel, order, descriptors)
        except ConnectionError as error:
            raise GuardDied(f"slot {self.name}: {error}") from error
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _attend(
        self,
        timeout_seconds: float,
        drain: Drain,
        look: Callable[[], float | None],
        until: Callable[[], float],
        conversation: Conversation | None = None,
    ) -> ProgramEnd | None:
        """Read the output of a program until the program has ended and its pipes are closed.

        Return None if the conversation is complete before the program ends.
        """
        ended: ProgramEnd | None = None
        started = kept = seen = time.monotonic()
        stopping, pipes_until = False, math.inf
        answer_until = started + timeout_seconds + ANSWER_SECONDS if timeout_seconds else math.inf
        while ended is None or (drain.open and time.monotonic() < pipes_until):
            ready = self._wait(drain, conversation, for_end=ended is None)
            if conversation and (events := ready.get(conversation.fileno(), 0)) and conversation.proceed(events):
                return None
            if self._channel.fileno() in ready:
                ended, pipes_until = self._wait_for_end(), time.monotonic() + PIPES_SECONDS
            elif ended is None:
                now = time.monotonic()
                # The program was suspended, and possibly this process, too.
                if not stopping and (now >= until() or now - seen > _STOPPED_SECONDS):
                    answer_until += now - seen
                seen = now
                if not stopping and (grace := look()) is not None:
                    stopping = True
                    self.stop(grace)
                    answer_until = min(answer_until, now + grace + ANSWER_SECONDS)
                elif now > kept + KEEP_SECONDS:
                    kept = now
                    self.keep(until())
                if now > answer_until:  # The program prevents its guard from working
                    self._process.kill()
        return ended

    def keep(self, until: float) -> None:
        """Send a program's new time limit to its guard. If the guard was stopped by a signal, resume it."""
        self._kept_at = -math.inf if until == math.inf else time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)
        with self._sending, contextlib.suppress(OSError):
            guard_messages.send(self._channel, guard_messages.keep(_finite(until)))

    def _wait(self, drain: Drain, conversation: Conversation | None, *, for_end: bool) -> dict[int, int]:
        """Wait for at most POLL_SECONDS, and read the program's output.

        Return the events of the guard's channel and of the conversation by file descriptor.
        """
        poll, pipes = select.poll(), set(drain.pipes())
        for pipe in pipes:
            poll.register(pipe, select.POLLIN)
        if for_end:
            poll.register(self._channel.fileno(), select.POLLIN)
        if conversation and (events := conversation.events()):
            poll.register(conversation.fileno(), events)
        ready = dict(poll.poll(1000 * min(POLL_SECONDS, drain.pause() or POLL_SECONDS)))
        for pipe in pipes & ready.keys():
            drain.read(pipe)
        return ready

    def _wait_for_end(self) -> ProgramEnd:
        message, _ = guard_messages.receive(self._channel)
        if message is None:
            self.close()
            raise GuardDied(f"slot {self.name}: the guard exited with code {self._process.returncode}")
        return ProgramEnd(**message["ended"])

    def stop(self, grace_seconds: float) -> None:
        """Stop the running program with SIGTERM (SIGHUP for a shell), and with SIGKILL after the grace period."""
        with self._sending, contextlib.suppress(OSError):
            guard_messages.send(self._channel, guard_messages.stop(grace_seconds))

    def _replace(self) -> None:
        log.warning("restarting the guard of a slot", extra={"lane": self.name})
        self._start()

    def close(self) -> None:
        """Kill the running program and stop the guard process."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        self._channel.close()
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _forget(self._process.pid)


def make_drain(sink: Callable[[int, bytes], None]) -> tuple[Drain, list[int]]:
    """Return the reader of a program's output, and the descriptors of the program's stdout and stderr."""
    pipes = _pipes(2)
    return Drain([read for read, _ in pipes], sink), [write for _, write in pipes]


def _pipes(count: int) -> list[tuple[int, int]]:
    """Create pipes whose read ends never block. A program can open its own pipe and read from it."""
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
    """Return 0 for an infinite time, because messages use 0 for "never" instead of infinity."""
    return 0.0 if until == math.inf else until


def adopt_orphans() -> None:
    """Become the parent of the processes that a dead guard leaves, so that they can be killed.

    Only for a runner's process, whose children are all guards. Any other child would be killed too.
    """
    processes.adopt_orphans()
    _adopts.set()


def spawn_helper(command: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
    """Start a helper process that is not part of a program. Call `forget_helper` after it exits.

    The list of helpers prevents the process from being killed as an orphan.
    """
    with _guards_change:
        process = subprocess.Popen[bytes](command, **how)
        _guards.add(process.pid)
    return process


def forget_helper(pid: int) -> None:
    """Remove a process that `spawn_helper` started from the list of helpers."""
    with _guards_change:
        _guards.discard(pid)


def _forget(guard: int) -> None:
    """Kill the processes that a dead guard left, if this process adopts orphans."""
    with _guards_change:
        _guards.discard(guard)
        until = time.monotonic() + CLOSE_SECONDS  # Processes that wait for a device or a file server exit late
        while _adopts.is_set() and (orphans := set(processes.children(os.getpid())) - _guards):
            for orphan in orphans:
                processes.kill_tree(orphan)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(orphan, os.WNOHANG)
            if time.monotonic() > until:
                log.error("cannot kill the remaining processes of a program: %s", sorted(orphans))
                return
            time.sleep(_AGAIN_SECONDS)
