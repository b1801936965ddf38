"""Guard process of a slot. It runs one program at a time, and reports its end after all of its descendants have exited.

Its command is `python -m runner.programs.guard FD RUNNER`. FD is the guard's end of `guard_messages.channel`. RUNNER
is the PID of the runner, by which the next runner finds a surviving guard.

The guard has a single thread, so it can fork safely, and knows no secrets. Orphaned descendants of a program become its
children, so none can escape. When the runner exits, the guard kills all descendants and exits.
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

from runner.programs import guard_messages, processes
from runner.programs.guard_messages import Order, ProgramEnd
from runner.programs.suspension import Suspension

#: Time in seconds between SIGTERM and SIGKILL for descendants that outlive their program.
LEFTOVER_SECONDS = 1.0
#: Interval in seconds between two rounds of SIGKILL. Each round kills processes that started during the one before.
KILL_AGAIN_SECONDS = 0.02
#: Interval in seconds between two checks of a program's limits.
POLL_SECONDS = 0.25
#: Timeout in seconds for suspending a program, after which it is killed, and interval between later checks.
SUSPEND_SECONDS, SUSPENDED_POLL_SECONDS = 1.0, 1.0
#: Seconds after a program's start during which a process that still executes setpriv is not suspended.
START_SECONDS = 0.5
#: Maximum duration of a suspension in seconds. The program is then killed, because it may hold locks of others.
LONGEST_SUSPENSION = 600.0
#: Maximum number of descriptors of an order: stdin, stdout, stderr, and the order itself if it is long.
DESCRIPTORS = 4
#: Maximum length of a command in an error message, in characters.
MOST_CHARACTERS = 200
#: Exit codes of a shell for a command that does not exist, and for one that cannot be executed.
NOT_FOUND, NOT_EXECUTABLE = 127, 126
#: Path of setpriv from util-linux, which makes the kernel kill a program when its parent is killed. None if missing.
_SETPRIV = shutil.which("setpriv", path=os.defpath)


class Watch:
    """Supervision of one program from its start until all of its processes have exited."""

    def __init__(self, order: Order, pid: int) -> None:
        self._order = order
        self._pid = pid
        self._started = time.monotonic()
        #: Monotonic times at which all processes get SIGTERM (a shell gets SIGHUP) and SIGKILL.
        self._term_at, self._kill_at = math.inf, math.inf
        if order.timeout_seconds:
            self._kill_at = self._started + order.timeout_seconds
            self._term_at = self._kill_at - order.stop_signal_seconds
        self._until = order.until or math.inf
        self._suspension = Suspension(os.getpid())
        #: Start of the current suspension, or None; and time of its next check.
        self._suspended_at: float | None = None
        self._hold_at = math.inf
        #: True after the program was asked to exit, or has exited. Signals are then sent even during a suspension.
        self._ending = False
        limited = order.memory_bytes or order.processes
        self._look_at = self._started + POLL_SECONDS if limited else math.inf
        self._status: int | None = None
        self._reason = ""
        self._left_behind = False
        self._cpu_seconds = 0.0
        self._max_rss_bytes = 0

    def stop(self, reason: str, grace_seconds: float) -> None:
        """Stop all processes within the grace period. Only the first reason is recorded."""
        now = time.monotonic()
        self._ending = True
        self._reason = self._reason or ("" if self._status is not None else reason)
        self._term_at = min(self._term_at, now)
        self._kill_at = min(self._kill_at, now + grace_seconds)

    def keep(self, until: float) -> None:
        """Change the monotonic time from which the program is suspended; 0 means never."""
        self._until = until or math.inf

    def reap(self) -> bool:
        """Collect exited processes. Return True if no process remains.

        Descendants whose parent exits become children of the guard, so this method finds all of them.
        """
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
        """Do everything that is due: check limits, suspend or resume the program, and send signals."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + POLL_SECONDS
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
            # setpriv has not set the death signal yet. If it were stopped now, the program would outlive the guard.
            self._hold_at = now + KILL_AGAIN_SECONDS
            return
        since, held = now - self._suspended_at, self._suspension.hold()
        self._hold_at = now + (SUSPENDED_POLL_SECONDS if held else KILL_AGAIN_SECONDS)
        if since > LONGEST_SUSPENSION or (since > SUSPEND_SECONDS and not held):
            self.stop("stopped", 0.0)

    def _resume(self, seconds: float) -> None:
        """Resume the program. The duration of the suspension does not count for its timeout."""
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
        """Send SIGTERM to all processes. A shell ignores SIGTERM, so it gets SIGHUP, and its stopped children get
        SIGCONT.
        """
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
        """Return the seconds until the next action is due, or None."""
        due = min(self._look_at, self._until if self._suspended_at is None else self._hold_at)
        if self._suspended_at is None or self._ending:
            due = min(due, self._term_at, self._kill_at)
        return None if due == math.inf else max(0.0, due - time.monotonic())

    def describe_end(self) -> ProgramEnd:
        """Return a description of the program's end. All processes must have exited."""
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
    """Runs the programs that are ordered through one channel."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._runner_gone = False
        # Each exit of a child makes this pipe readable.
        self._woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Run programs until the runner has closed the channel."""
        while not self._runner_gone:
            message, descriptors = guard_messages.receive(self._channel, DESCRIPTORS)
            if message is None:
                return
            order = guard_messages.receive_order(message, descriptors)
            if order is not None:  # A stop can arrive after its program has exited
                how = self._run(order, descriptors)
                with contextlib.suppress(ConnectionError):
                    guard_messages.send(self._channel, guard_messages.serialize_end(how))

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
        program.returncode = 0  # Otherwise, Popen would wait for the child, which is already collected
        return watch.describe_end()

    def _wait_until_it_may_run(self, order: Order) -> Order | None:
        """Wait until the lease is valid. Return the order with its new time limit, or None if the program must not run.

        The runner may have been suspended after it checked the lease.
        """
        until = order.until
        while until and time.monotonic() >= until:
            message, _ = guard_messages.receive(self._channel)
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
        message, _ = guard_messages.receive(self._channel)
        if message is None:
            self._runner_gone = True
            watch.stop("stopped", 0.0)
        elif "stop" in message:
            watch.stop("stopped", message["stop"]["grace_seconds"])
        elif "keep" in message:
            watch.keep(message["keep"]["until"])


def _start(order: Order, descriptors: list[int]) -> subprocess.Popen[bytes]:
    """Start a program that the kernel kills when this process dies."""
    stdin, stdout, stderr = descriptors if order.attached else (subprocess.DEVNULL, *descriptors)
    pipes: dict[str, Any] = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
    if order.uid is not None or order.attached or _SETPRIV is None:
        return _spawn(order, pipes)
    found = _resolve_program(order)
    # Without a preexec function, Popen uses vfork, which saves 1 ms.
    return subprocess.Popen(
        [_SETPRIV, "--pdeathsig", "KILL", "--", found, *order.argv[1:]],
        cwd=order.folder,
        env=order.environment,
        start_new_session=True,
        **pipes,
    )


def _is_setpriv(pid: int) -> bool:
    """Return True if the process has not yet executed the program in place of setpriv."""
    with contextlib.suppress(OSError):  # The process has exited
        return _SETPRIV is not None and Path(f"/proc/{pid}/exe").samefile(_SETPRIV)
    return False


def _spawn(order: Order, pipes: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start a shell, or a program as another Unix user. The environment must not affect earlier code."""
    guard = os.getpid()

    def prepare() -> None:
        processes.die_with_parent(guard)
        if order.attached:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # The guard ignores SIGINT
        if order.terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if order.uid and order.processes:
            # The kernel counts all threads of the user. The higher limit lets the guard report the reason first.
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
    """Return the path of the program that an order runs, resolved with its PATH and folder. Raises OSError."""
    name, folder = order.argv[0], Path(order.folder)
    places = [""] if "/" in name else order.environment.get("PATH", os.defpath).split(":")
    files = [path for path in (folder / place / name for place in places) if _is_file(path)]
    for path in files:
        if os.access(path, os.X_OK):
            return str(path)
    number = errno.EACCES if files else errno.ENOENT
    raise OSError(number, os.strerror(number), name if folder.is_dir() else order.folder)


def _is_file(path: Path) -> bool:
    with contextlib.suppress(OSError):  # For example, the folder is not accessible
        return path.is_file()
    return False


def _not_started(order: Order, error: Exception) -> ProgramEnd:
    code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    what = getattr(error, "filename", None) or order.argv[0]
    number = getattr(error, "errno", None) or 0
    words = f"{str(what)[:MOST_CHARACTERS]}: {getattr(error, 'strerror', None) or error}"
    return ProgramEnd(code=code, error=words, errno=number)


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the runner's terminal is handled by the runner
    processes.adopt_orphans()
    processes.continue_without_parent()
    processes.hide()
    processes.forbid_privilege_gain()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with socket.socket(fileno=int(arguments[0])) as channel:
        channel.set_inheritable(False)
        Guard(channel).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
