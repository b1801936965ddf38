"""The guard of a slot: runs one program after another, and says that one has ended when nothing of it is alive.

Its command is `python -m runner.programs.guard FD RUNNER`. FD is its end of `orders.channel`, and RUNNER is the process
id of the runner, by which the next runner finds a guard that is still alive. It has one thread, which may fork, and no
secrets. It adopts what a program leaves behind, so no descendant escapes it; when the runner is gone, it kills
everything and ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import termios
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.programs import orders, processes
from runner.programs.orders import Order, ProgramEnd
from runner.programs.suspension import Suspension

#: Seconds that descendants of a program that has ended get between SIGTERM and SIGKILL.
LEFTOVER_SECONDS = 1.0
#: Seconds between two passes of SIGKILL: what was being started during one is killed by the next.
KILL_AGAIN_SECONDS = 0.02
#: Seconds between two looks at what a program uses, where that is limited.
LOOK_SECONDS = 0.25
#: Seconds within which a program must be suspended, else it is killed, and between two looks whether it still is.
SUSPEND_SECONDS, SUSPENDED_LOOK_SECONDS = 1.0, 1.0
#: Seconds after its start within which a program that is still setpriv is not suspended.
START_SECONDS = 0.5
#: Longest that a program stays suspended, in seconds; then it is killed: it may hold locks that others wait for.
LONGEST_SUSPENSION = 600.0
#: Descriptors that come with an order at most: its stdin, stdout and stderr, and itself where it is long.
DESCRIPTORS = 4
#: Characters of a command that an error shows.
MOST_CHARACTERS = 200
#: Exit statuses of a shell for a command that is not there, and for one that cannot be executed.
NOT_FOUND, NOT_EXECUTABLE = 127, 126
#: Of util-linux: has the kernel kill a program when its parent is killed. None: it is not here.
_SETPRIV = shutil.which("setpriv", path=os.defpath)


class Watch:
    """One program from its start until nothing of it is alive."""

    def __init__(self, order: Order, pid: int) -> None:
        self._order = order
        self._pid = pid
        self._started = time.monotonic()
        #: When all get SIGTERM, of a shell SIGHUP, and SIGKILL, in monotonic seconds.
        self._term_at, self._kill_at = math.inf, math.inf
        if order.timeout_seconds:
            self._kill_at = self._started + order.timeout_seconds
            self._term_at = self._kill_at - order.stop_signal_seconds
        self._until = order.until or math.inf
        self._suspension = Suspension(os.getpid())
        #: Since when it is suspended, while it is; when it is looked at next whether it is.
        self._suspended_at: float | None = None
        self._hold_at = math.inf
        #: Its end has been asked for, or has come: it does not wait for the time in which it is suspended.
        self._ending = False
        limited = order.memory_bytes or order.processes
        self._look_at = self._started + LOOK_SECONDS if limited else math.inf
        self._status: int | None = None
        self._reason = ""
        self._left_behind = False
        self._cpu_seconds = 0.0
        self._max_rss_bytes = 0

    def stop(self, reason: str, grace_seconds: float) -> None:
        """Have all of it ended within the grace; the first reason counts, an earlier end stays."""
        now = time.monotonic()
        self._ending = True
        self._reason = self._reason or ("" if self._status is not None else reason)
        self._term_at = min(self._term_at, now)
        self._kill_at = min(self._kill_at, now + grace_seconds)

    def keep(self, until: float) -> None:
        """Have all of it suspended from a time on, in monotonic seconds, instead of the one before; 0: never."""
        self._until = until or math.inf

    def reap(self) -> bool:
        """Take what has ended; True when nothing is left. Being adopted, every descendant is a child in the end."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if not pid:
                return False
            self._cpu_seconds += used.ru_utime + used.ru_stime
            self._max_rss_bytes = max(self._max_rss_bytes, used.ru_maxrss * 1024)
            if pid == self._pid:
                self._program_ended(status)

    def _program_ended(self, status: int) -> None:
        self._status = status
        self._left_behind = any(processes.children(os.getpid()))
        self.stop("", LEFTOVER_SECONDS)

    def act(self) -> None:
        """Do what is due: look at the limits, suspend it or have it go on, send signals."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self._look()
        if now >= self._until:
            self._suspend(now)
        elif self._suspended_at is not None:
            self._resume(now - self._suspended_at)
        if self._suspended_at is None or self._ending:
            self._signal(time.monotonic())

    def _suspend(self, now: float) -> None:
        if self._suspended_at is None:
            self._suspended_at = self._hold_at = now
        if now < self._hold_at:
            return
        if now - self._started < START_SECONDS and _is_setpriv(self._pid):
            # It has no death signal yet: a program that is stopped now would outlive this guard.
            self._hold_at = now + KILL_AGAIN_SECONDS
            return
        since, held = now - self._suspended_at, self._suspension.hold()
        self._hold_at = now + (SUSPENDED_LOOK_SECONDS if held else KILL_AGAIN_SECONDS)
        if since > LONGEST_SUSPENSION or (since > SUSPEND_SECONDS and not held):
            self.stop("stopped", 0.0)

    def _resume(self, seconds: float) -> None:
        """Have it go on; the seconds in which it was suspended do not count for its timeout."""
        self._suspended_at = None
        if not self._ending:
            self._term_at, self._kill_at = self._term_at + seconds, self._kill_at + seconds
        self._suspension.release()

    def _signal(self, now: float) -> None:
        if now >= self._kill_at:
            self._reason = self._reason or ("timeout" if self._status is None else "")
            processes.signal_descendants(os.getpid(), signal.SIGKILL)
            self._kill_at = now + KILL_AGAIN_SECONDS
        elif now >= self._term_at:
            self._reason = self._reason or ("timeout" if self._status is None else "")
            self._ask_to_end()
            self._term_at = math.inf

    def _ask_to_end(self) -> None:
        """Ask all of it to end. A shell ignores SIGTERM; what it stopped goes on, unless nothing may run now."""
        processes.signal_descendants(os.getpid(), signal.SIGHUP if self._order.attached else signal.SIGTERM)
        if self._order.attached and self._suspended_at is None:
            processes.signal_descendants(os.getpid(), signal.SIGCONT)

    def _look(self) -> None:
        living = processes.descendants(os.getpid())
        if self._order.processes and len(living) > self._order.processes:
            self.stop("processes", 0.0)
        elif self._order.memory_bytes and processes.memory_bytes(living) > self._order.memory_bytes:
            self.stop("memory", 0.0)

    def patience(self) -> float | None:
        """Return the seconds until something is due; None: nothing is."""
        due = min(self._look_at, self._until if self._suspended_at is None else self._hold_at)
        if self._suspended_at is None or self._ending:
            due = min(due, self._term_at, self._kill_at)
        return None if due == math.inf else max(0.0, due - time.monotonic())

    def describe_end(self) -> ProgramEnd:
        """Describe the end. Call it once nothing is left."""
        code = os.waitstatus_to_exitcode(self._status or 0)
        return ProgramEnd(
            code=code if code >= 0 else 128 - code,
            reason=self._reason,
            left_behind=self._left_behind,
            seconds=time.monotonic() - self._started,
            cpu_seconds=self._cpu_seconds,
            max_rss_bytes=self._max_rss_bytes,
        )


class Guard:
    """Serves the orders of one channel."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._runner_gone = False
        # Each end of a child makes this readable.
        self._woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Run what is ordered until the runner is gone."""
        while not self._runner_gone:
            message, descriptors = orders.receive(self._channel, DESCRIPTORS)
            if message is None:
                return
            order = orders.receive_order(message, descriptors)
            if order is not None:  # a stop may come after the end of what it was meant for
                how = self._run(order, descriptors)
                with contextlib.suppress(ConnectionError):
                    orders.send(self._channel, orders.serialize_end(how))

    def _run(self, order: Order, descriptors: list[int]) -> ProgramEnd:
        try:
            late = self._wait_until_it_may_run(order)
            if late is None:
                return ProgramEnd(code=128 + signal.SIGKILL, reason="stopped")
            program = _start(late, descriptors)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return _not_started(order, error)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        watch = Watch(late, program.pid)
        while not watch.reap():
            watch.act()
            self._wait(watch)
        program.returncode = 0  # else Popen, which has not seen it end, would wait for it
        return watch.describe_end()

    def _wait_until_it_may_run(self, order: Order) -> Order | None:
        """Return the order once its lease is kept: the runner may have been stopped since it looked. None: never."""
        until = order.until
        while until and time.monotonic() >= until:
            message, _ = orders.receive(self._channel)
            if message is None:
                self._runner_gone = True
            if message is None or "stop" in message:
                return None
            if "keep" in message:
                until = message["keep"]["until"]
        return replace(order, until=until)

    def _wait(self, watch: Watch) -> None:
        heard: list[int | socket.socket] = [self._woken] if self._runner_gone else [self._woken, self._channel]
        ready, _, _ = select.select(heard, [], [], watch.patience())
        if self._woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken, 4096)
        if self._channel in ready:
            self._handle_event(watch)

    def _handle_event(self, watch: Watch) -> None:
        message, _ = orders.receive(self._channel)
        if message is None:
            self._runner_gone = True
            watch.stop("stopped", 0.0)
        elif "stop" in message:
            watch.stop("stopped", message["stop"]["grace_seconds"])
        elif "keep" in message:
            watch.keep(message["keep"]["until"])


def _start(order: Order, descriptors: list[int]) -> subprocess.Popen[bytes]:
    """Start a program that is killed when this process is."""
    stdin, stdout, stderr = descriptors if order.attached else (subprocess.DEVNULL, *descriptors)
    pipes: dict[str, Any] = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
    if order.uid is not None or order.attached or _SETPRIV is None:
        return _spawn(order, pipes)
    found = _resolve_program(order)
    # Without code of ours between fork and exec, the fork copies no memory: 1 ms less.
    return subprocess.Popen(
        [_SETPRIV, "--pdeathsig", "KILL", "--", found, *order.argv[1:]],
        cwd=order.folder,
        env=order.environment,
        start_new_session=True,
        **pipes,
    )


def _is_setpriv(pid: int) -> bool:
    """Return True if the process has not replaced setpriv by its program yet."""
    with contextlib.suppress(OSError):  # the process has ended
        return _SETPRIV is not None and Path(f"/proc/{pid}/exe").samefile(_SETPRIV)
    return False


def _spawn(order: Order, pipes: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start a shell, or a program under another user: what its environment names must not be loaded before that."""
    guard = os.getpid()

    def prepare() -> None:
        processes.die_with_parent(guard)
        if order.attached:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # the guard ignores it
        if order.terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if order.uid and order.processes:
            # The kernel counts a user's threads, those of this slot alone; above the limit, so that the guard says why.
            resource.setrlimit(resource.RLIMIT_NPROC, (2 * order.processes, 2 * order.processes))

    return subprocess.Popen(
        order.argv,
        cwd=order.folder,
        env=order.environment,
        start_new_session=True,
        user=order.uid,
        group=order.uid,
        extra_groups=None if order.uid is None else [],
        preexec_fn=prepare,  # noqa: PLW1509  # it is unsafe in processes with threads
        **pipes,
    )


def _resolve_program(order: Order) -> str:
    """Return the file that an order runs, as its PATH and its folder say. Raises OSError, naming it."""
    name, folder = order.argv[0], Path(order.folder)
    places = [""] if "/" in name else order.environment.get("PATH", os.defpath).split(":")
    files = [path for path in (folder / place / name for place in places) if _is_file(path)]
    for path in files:
        if os.access(path, os.X_OK):
            return str(path)
    number = errno.EACCES if files else errno.ENOENT
    raise OSError(number, os.strerror(number), name if folder.is_dir() else order.folder)


def _is_file(path: Path) -> bool:
    with contextlib.suppress(OSError):  # of a folder that must not be searched, among others
        return path.is_file()
    return False


def _not_started(order: Order, error: Exception) -> ProgramEnd:
    code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    what = getattr(error, "filename", None) or order.argv[0]
    number = getattr(error, "errno", None) or 0
    words = f"{str(what)[:MOST_CHARACTERS]}: {getattr(error, 'strerror', None) or error}"
    return ProgramEnd(code=code, error=words, errno=number)


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at the runner's terminal is the runner's
    processes.adopt_orphans()
    processes.go_on_without_parent()
    processes.hide()
    processes.gain_nothing()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with socket.socket(fileno=int(arguments[0])) as channel:
        channel.set_inheritable(False)
        Guard(channel).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
