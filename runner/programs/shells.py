"""Interactive shells for users next to running programs. A shell stops when its program ends.

Each shell has its own guard, and three threads: one supervises it, one reads its output, and one forwards input. A slow
reader delays only the shell, as in a terminal. The program never waits for its shells.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from jobs.store.attachments import OF_A_UNIT
from jobs.store.server.connection import RedisError, Unreachable, pause
from jobs.worker.api.api_attachments import MAX_BYTES, ApiAttachments
from runner.programs.guard_messages import Order
from runner.programs.slot import GuardDied, Slot
from runner.programs.streams import HungUp, Streams, Terminal, pipes

log = logging.getLogger(__name__)

#: Seconds between SIGHUP and SIGKILL for a shell. A shell can delay the end of its unit by this time.
GRACE_SECONDS = 1.0
#: Maximum number of concurrent processes of a shell. The limit lets programs start despite a fork bomb in a shell.
MOST_PROCESSES = 768
#: Timeout of a long poll in seconds.
#: `LAST_SECONDS` is the time in seconds for reporting the end of a shell.
#: `POLL_SECONDS` is the poll interval of a terminal in seconds.
WAIT_SECONDS, LAST_SECONDS, POLL_SECONDS = 10.0, 5.0, 0.2
#: Delay in seconds between two attempts of an API call.
_RETRY_SECONDS = 0.3
_SHELLS = ("/bin/bash", "/bin/sh")

Answer = TypeVar("Answer")


@dataclass(kw_only=True, eq=False)
class Program:
    """Running program to which users can attach shells."""

    job: str
    unit: int
    #: Token of the lease under which the program is running.
    lease: str
    order: Order
    #: Function that returns the expiry of the program's lease as monotonic time.
    until: Callable[[], float]
    shells: list[Shell] = field(default_factory=list)
    ended: bool = False


class Shells:
    """Interactive shells of one runner. Thread-safe.

    Without `calls`, no shells can be requested. If `allowed` is False, all requests are rejected.
    """

    def __init__(self, calls: ApiAttachments | None = None, *, allowed: bool = True) -> None:
        self._calls, self._allowed = calls, allowed
        self._lock = threading.Lock()
        self._programs: dict[tuple[str, int], Program] = {}
        #: IDs of pending requests that already have a shell or were rejected.
        self._seen: set[str] = set()

    @contextlib.contextmanager
    def beside(self, program: Program) -> Iterator[None]:
        """Allow shells for a program in a `with` block. When the block ends, all shells of the program have exited."""
        key = (program.job, program.unit)
        with self._lock:
            self._programs[key] = program
        try:
            yield
        finally:
            with self._lock:
                del self._programs[key]
                program.ended = True
            for shell in program.shells:
                shell.hang_up("program")
            for shell in program.shells:
                shell.wait_until_dead()

    def asked(self, several: Iterable[tuple[str, int, str]]) -> None:
        """Start the requested shells. Each request is a tuple of job ID, unit and attachment ID."""
        wanted = list(several)
        if not (wanted or self._seen) or self._calls is None:
            return
        with self._lock:
            self._seen &= {name for _, _, name in wanted}
            for job, unit, name in wanted:
                program = self._programs.get((job, unit))
                if program is not None and name not in self._seen:
                    self._begin(self._calls, program, name)

    def _begin(self, calls: ApiAttachments, program: Program, name: str) -> None:
        program.shells = [shell for shell in program.shells if not shell.is_dead]
        if len(program.shells) < OF_A_UNIT:
            self._seen.add(name)
            shell = Shell(calls, program, name, allowed=self._allowed)
            program.shells.append(shell)
            shell.start()


class Shell(threading.Thread):
    """One interactive shell, from its request until its end is reported."""

    def __init__(self, calls: ApiAttachments, program: Program, name: str, *, allowed: bool) -> None:
        super().__init__(name=f"shell-{name[:8]}", daemon=True)
        self._calls, self._program, self._allowed = calls, program, allowed
        self._place = (name, program.job, program.lease)
        self._lock = threading.Lock()
        #: Reason for stopping the shell. Empty if no stop was requested.
        self._why = ""
        self.shell_slot: Slot | None = None
        self._dead = threading.Event()
        self._give_up_at = float("inf")

    # -- methods called by other threads -------------------------------------------------------------------------------

    def hang_up(self, why: str) -> None:
        """Stop the shell with SIGHUP, and with SIGKILL after the grace period. Only the first reason is recorded."""
        with self._lock:
            if self._why:
                return
            self._why, slot = why, self.shell_slot
            self._give_up_at = min(self._give_up_at, time.monotonic() + LAST_SECONDS)
            if slot is None:  # No slot will be created for this shell
                self._dead.set()
        if slot is not None and not self._dead.is_set():
            slot.stop(GRACE_SECONDS)

    @property
    def is_dead(self) -> bool:
        """Return True if all processes of the shell have exited and no new process will start."""
        return self._dead.is_set()

    def wait_until_dead(self) -> None:
        """Wait until all processes of the shell have exited. On a timeout, kill the shell's guard."""
        self._dead.wait()

    # -- supervision ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Start the shell, supervise it, and report its end. Never raises an exception."""
        try:
            self._go()
        except RedisError as error:
            log.info("cannot serve a shell: %s", error, extra={"job_id": self._program.job})
        except Exception:
            log.exception("the shell of a user failed unexpectedly", extra={"job_id": self._program.job})
        finally:
            self._dead.set()

    def _go(self) -> None:
        about = self._persist(partial(self._calls.take, *self._place, self._program.unit))
        if not about:
            return
        if not self._allowed:
            self._tell_end(None, "off")
            return
        log.info("a user attached a shell to unit %d", self._program.unit, extra={"job_id": self._program.job})
        terminal = about.get("terminal")
        size = (terminal["rows"], terminal["columns"]) if terminal else None
        with closing(Terminal(*size, self._program.order.uid) if size else pipes()) as streams:
            reading, feeding = self._thread(self._pass_on, streams), self._thread(self._feed, streams)
            try:
                code, reason = self._run(_order(self._program.order, about), streams, (reading, feeding))
            finally:
                self._dead.set()
            if reading.ident is not None:
                reading.join()
            self._tell_end(code, reason)
            if feeding.ident is not None:
                feeding.join()

    def _run(self, order: Order, streams: Streams, threads: Sequence[threading.Thread]) -> tuple[int | None, str]:
        """Run the shell until all of its processes have exited.

        Return the exit code, or None, and the reason of its end.
        """
        with self._lock:
            if self._why:
                streams.close_theirs()
                return None, self._why
            try:
                slot = self.shell_slot = Slot(self.name)
            except OSError as error:
                streams.close_theirs()
                return None, f"not started: {error}"
        try:
            for thread in threads:
                thread.start()
            ended = slot.run_attached(order, streams.theirs, self._look, self._program.until)
        except (OSError, GuardDied) as error:
            return None, f"the shell was lost: {error}"
        finally:
            slot.close()
        if ended.reason == "stopped":
            return None, self._why or "lease"
        return ended.code, ended.error or ended.reason

    def _look(self) -> float | None:
        return GRACE_SECONDS if self._why else None

    # -- output and input ----------------------------------------------------------------------------------------------

    def _thread(self, work: Callable[[Streams], None], streams: Streams) -> threading.Thread:
        return threading.Thread(target=self._run_guarded, args=(work, streams), name=self.name, daemon=True)

    def _run_guarded(self, work: Callable[[Streams], None], streams: Streams) -> None:
        try:
            work(streams)
        except RedisError as error:
            log.info("lost the connection of an attached user: %s", error, extra={"job_id": self._program.job})
            self.hang_up("lost")
        except Exception:
            log.exception("cannot serve a shell", extra={"job_id": self._program.job})
            self.hang_up("lost")

    def _pass_on(self, streams: Streams) -> None:
        """Forward the shell's output to the user until it ends. Blocks while the user does not read."""
        place, until = 0, float("inf")
        while time.monotonic() < min(until, self._give_up_at):
            dead = self._dead.is_set()
            try:
                read = streams.read(0.0 if dead else POLL_SECONDS)
            except HungUp:
                if dead:
                    return
                self._dead.wait(POLL_SECONDS)
                continue
            if read is None:
                return
            if read[1]:
                if (upto := self._write(place, *read)) is None:
                    return
                place = upto
            elif dead:  # A process outside of the shell may still have the terminal open
                until = min(until, time.monotonic() + POLL_SECONDS)
                time.sleep(POLL_SECONDS / 10)

    def _write(self, place: int, stream: str, data: bytes) -> int | None:
        """Send output bytes and return the offset after them. Return None if the attachment has ended."""
        while data and time.monotonic() < self._give_up_at:
            call = partial(self._calls.write, *self._place, place, stream, data[:MAX_BYTES], wait_seconds=WAIT_SECONDS)
            upto = self._persist(call)
            if upto is None:
                self.hang_up("left")
                return None
            data, place = data[max(0, upto - place) :], max(place, upto)
        return None if data else place

    def _feed(self, streams: Streams) -> None:
        """Forward the user's input to the shell until the attachment has ended or the shell is dead.

        Input that the shell has not read is requested again later, so unread input cannot grow without limit.
        """
        place, size, closed, waits = 0, "", False, False
        while not self._dead.is_set():
            wait = 0.0 if waits else WAIT_SECONDS
            call = partial(self._calls.read, *self._place, place, size=size, closed=closed, wait_seconds=wait)
            typed = self._persist(call)
            if typed is None or typed.over:
                self.hang_up("left")
                return
            if typed.size != size:
                size = typed.size
                streams.resize(*map(int, size.split()))
            taken = streams.write(typed.data, 1.0) if typed.data else 0
            place, waits = place + taken, taken < len(typed.data)
            if typed.closed and not waits and not closed:
                closed = True
                streams.end_input()

    # -- calls to the coordinator --------------------------------------------------------------------------------------

    def _persist(self, call: Callable[[], Answer]) -> Answer | None:
        """Repeat an API call until a coordinator answers. Return None if the shell ended some seconds ago."""
        while True:
            try:
                return call()
            except Unreachable as error:
                if self._dead.is_set():
                    self._give_up_at = min(self._give_up_at, time.monotonic() + LAST_SECONDS)
                if time.monotonic() > self._give_up_at:
                    return None
                time.sleep(pause(error, _RETRY_SECONDS))

    def _tell_end(self, code: int | None, reason: str) -> None:
        self._give_up_at = time.monotonic() + LAST_SECONDS
        self._persist(partial(self._calls.end, *self._place, code, reason))


def _order(program: Order, about: dict[str, Any]) -> Order:
    """Return the order for a shell: the program's order with the requested command and terminal."""
    terminal, command = about.get("terminal"), about.get("command")
    more = {"TERM": str(terminal["name"])} if terminal else {}
    if not command:
        # Prevents the shell from writing its history into the program's folder.
        more["HISTFILE"] = "/dev/null"
        command = [next((shell for shell in _SHELLS if Path(shell).exists()), _SHELLS[-1])]
    return replace(
        program,
        argv=list(command),
        environment={**program.environment, **more},
        timeout_seconds=0.0,
        stop_signal_seconds=0.0,
        processes=MOST_PROCESSES,
        attached=True,
        terminal=bool(terminal),
    )
