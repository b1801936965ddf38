"""Shells that people have beside running programs: each has a guard of its own, and none outlives its program.

A shell has three threads: one runs it, one reads what it writes, one passes on what is typed. Whoever reads slowly
holds it up, as at a terminal; the program beside it never waits for either.
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
from runner.programs.orders import Order
from runner.programs.plumbing import HungUp, Plumbing, Terminal, pipes
from runner.programs.slot import GuardDied, Slot

log = logging.getLogger(__name__)

#: Seconds between SIGHUP and SIGKILL, for which the end of a unit waits where somebody is attached.
GRACE_SECONDS = 1.0
#: Processes of a shell that may live at once. A slot's user may have twice as many threads from here, and more from its
#: program: so a shell that forks without end keeps no program from starting one.
MOST_PROCESSES = 768
#: Seconds for which a call waits, for which the last output and the end are told, and of one look at the terminal.
WAIT_SECONDS, LAST_SECONDS, LOOK_SECONDS = 10.0, 5.0, 0.2
#: Seconds between two tries of a call.
_RETRY_SECONDS = 0.3
_SHELLS = ("/bin/bash", "/bin/sh")

Answer = TypeVar("Answer")


@dataclass(kw_only=True, eq=False)
class Program:
    """A program that runs, as what may be beside it must know it."""

    job: str
    unit: int
    #: Token of its lease.
    lease: str
    order: Order
    #: When nothing of the lease may run any more, in monotonic seconds.
    until: Callable[[], float]
    shells: list[Shell] = field(default_factory=list)
    ended: bool = False


class Shells:
    """Shells of one runner. Thread-safe. Without `calls` nobody can ask for one; `allowed` false: nobody gets one."""

    def __init__(self, calls: ApiAttachments | None = None, *, allowed: bool = True) -> None:
        self._calls, self._allowed = calls, allowed
        self._lock = threading.Lock()
        self._programs: dict[tuple[str, int], Program] = {}
        #: Those that were begun, or refused, while somebody asks for them still.
        self._seen: set[str] = set()

    @contextlib.contextmanager
    def beside(self, program: Program) -> Iterator[None]:
        """Let people have shells while the context lasts; at its end nothing of any is alive."""
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
        """Take in what is asked for now: job, unit and id of each."""
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
    """One shell, from the question for it to its end."""

    def __init__(self, calls: ApiAttachments, program: Program, name: str, *, allowed: bool) -> None:
        super().__init__(name=f"shell-{name[:8]}", daemon=True)
        self._calls, self._program, self._allowed = calls, program, allowed
        self._place = (name, program.job, program.lease)
        self._lock = threading.Lock()
        #: Why it must end; empty: it goes on.
        self._why = ""
        self.shell_slot: Slot | None = None
        self._dead = threading.Event()
        self._give_up_at = float("inf")

    # -- from other threads -----------------------------------------------------------------------------------------

    def hang_up(self, why: str) -> None:
        """Have it ended: SIGHUP, and SIGKILL after the grace. The first reason counts."""
        with self._lock:
            if self._why:
                return
            self._why, slot = why, self.shell_slot
            self._give_up_at = min(self._give_up_at, time.monotonic() + LAST_SECONDS)
            if slot is None:  # and there will be none
                self._dead.set()
        if slot is not None and not self._dead.is_set():
            slot.stop(GRACE_SECONDS)

    @property
    def is_dead(self) -> bool:
        """Tell whether nothing of it lives, nor will."""
        return self._dead.is_set()

    def wait_until_dead(self) -> None:
        """Return when nothing of it lives. A guard that does not see to that is killed in time, with what it guards."""
        self._dead.wait()

    # -- its own thread ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Begin it, run it, tell its end; never raise."""
        try:
            self._go()
        except RedisError as error:
            log.info("a shell beside a program is not served: %s", error, extra={"job_id": self._program.job})
        except Exception:
            log.exception("a shell beside a program failed", extra={"job_id": self._program.job})
        finally:
            self._dead.set()

    def _go(self) -> None:
        about = self._persist(partial(self._calls.take, *self._place, self._program.unit))
        if not about:
            return
        if not self._allowed:
            self._tell_end(None, "off")
            return
        log.info("somebody is attached to unit %d", self._program.unit, extra={"job_id": self._program.job})
        terminal = about.get("terminal")
        size = (terminal["rows"], terminal["columns"]) if terminal else None
        with closing(Terminal(*size, self._program.order.uid) if size else pipes()) as plumbing:
            reading, feeding = self._thread(self._pass_on, plumbing), self._thread(self._feed, plumbing)
            try:
                code, reason = self._run(_order(self._program.order, about), plumbing, (reading, feeding))
            finally:
                self._dead.set()
            if reading.ident is not None:
                reading.join()
            self._tell_end(code, reason)
            if feeding.ident is not None:
                feeding.join()

    def _run(self, order: Order, plumbing: Plumbing, threads: Sequence[threading.Thread]) -> tuple[int | None, str]:
        """Run the shell until nothing of it lives; its exit code where it ended by itself, and why it ended."""
        with self._lock:
            if self._why:
                plumbing.close_theirs()
                return None, self._why
            try:
                slot = self.shell_slot = Slot(self.name)
            except OSError as error:
                plumbing.close_theirs()
                return None, f"not started: {error}"
        try:
            for thread in threads:
                thread.start()
            ended = slot.run_attached(order, plumbing.theirs, self._look, self._program.until)
        except (OSError, GuardDied) as error:
            return None, f"it was lost: {error}"
        finally:
            slot.close()
        if ended.reason == "stopped":
            return None, self._why or "lease"
        return ended.code, ended.error or ended.reason

    def _look(self) -> float | None:
        return GRACE_SECONDS if self._why else None

    # -- its other threads ------------------------------------------------------------------------------------------

    def _thread(self, work: Callable[[Plumbing], None], plumbing: Plumbing) -> threading.Thread:
        return threading.Thread(target=self._run_guarded, args=(work, plumbing), name=self.name, daemon=True)

    def _run_guarded(self, work: Callable[[Plumbing], None], plumbing: Plumbing) -> None:
        try:
            work(plumbing)
        except RedisError as error:
            log.info("somebody who was attached is left: %s", error, extra={"job_id": self._program.job})
            self.hang_up("lost")
        except Exception:
            log.exception("a shell beside a program is not served", extra={"job_id": self._program.job})
            self.hang_up("lost")

    def _pass_on(self, plumbing: Plumbing) -> None:
        """Pass on what the shell writes, to its end; it waits while nobody reads."""
        place, until = 0, float("inf")
        while time.monotonic() < min(until, self._give_up_at):
            dead = self._dead.is_set()
            try:
                read = plumbing.read(0.0 if dead else LOOK_SECONDS)
            except HungUp:
                if dead:
                    return
                self._dead.wait(LOOK_SECONDS)
                continue
            if read is None:
                return
            if read[1]:
                if (upto := self._write(place, *read)) is None:
                    return
                place = upto
            elif dead:  # whoever is outside and has it open keeps nobody waiting
                until = min(until, time.monotonic() + LOOK_SECONDS)
                time.sleep(LOOK_SECONDS / 10)

    def _write(self, place: int, stream: str, data: bytes) -> int | None:
        """Pass bytes on; return the place behind them, None where nobody wants them any more."""
        while data and time.monotonic() < self._give_up_at:
            call = partial(self._calls.write, *self._place, place, stream, data[:MAX_BYTES], wait_seconds=WAIT_SECONDS)
            upto = self._persist(call)
            if upto is None:
                self.hang_up("left")
                return None
            data, place = data[max(0, upto - place) :], max(place, upto)
        return None if data else place

    def _feed(self, plumbing: Plumbing) -> None:
        """Pass on what is typed until nobody wants the shell any more, or it is dead.

        What the shell has not read is asked for again: nobody types ahead of it without bound.
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
                plumbing.resize(*map(int, size.split()))
            taken = plumbing.write(typed.data, 1.0) if typed.data else 0
            place, waits = place + taken, taken < len(typed.data)
            if typed.closed and not waits and not closed:
                closed = True
                plumbing.end_input()

    # -- calls ------------------------------------------------------------------------------------------------------

    def _persist(self, call: Callable[[], Answer]) -> Answer | None:
        """Repeat a call while no coordinator answers; None some seconds after the shell has ended."""
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
    """Return the order for a shell: what the program has, and the terminal's name."""
    terminal, command = about.get("terminal"), about.get("command")
    more = {"TERM": str(terminal["name"])} if terminal else {}
    if not command:
        # What is typed is no file of the program's folder.
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
