"""Guard process of a slot. It runs one program at a time, and waits until all descendants of the program have exited.

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

#: Time in seconds between SIGTERM and SIGKILL for processes that outlive their program.
LEFTOVER_SECONDS = 1.0
#: Interval in seconds between rounds of SIGKILL. Each round kills processes that started since the last round.
KILL_AGAIN_SECONDS = 0.02
#: Interval in seconds at which a program's memory and number of processes are checked.
POLL_SECONDS = 0.25
#: Seconds after which a program that cannot be suspended is killed.
#: `SUSPENDED_POLL_SECONDS` is the interval in seconds between checks of a suspension.
SUSPEND_SECONDS, SUSPENDED_POLL_SECONDS = 1.0, 1.0
#: Seconds after the start during which a program is not suspended if its process still executes setpriv.
START_SECONDS = 0.5
#: Maximum duration of a suspension in seconds. A longer one kills the program, because it can hold locks.
LONGEST_SUSPENSION = 600.0
#: Maximum number of file descriptors in an order: stdin, stdout, stderr, and a file for a long order.
DESCRIPTORS = 4
#: Number of descriptors of a program with an empty stdin: stdout and stderr.
_OUTPUTS = 2
#: Maximum length of a command in an error message, in characters.
MOST_CHARACTERS = 200
#: Exit codes that shells use for a command that does not exist, and for a command that cannot be executed.
NOT_FOUND, NOT_EXECUTABLE = 127, 126
#: Path of setpriv, which makes the kernel kill a program when its parent dies. None if setpriv is not installed.
_SETPRIV = shutil.which("setpriv", path=os.defpath)


class Watch:
    """Supervisor of one program until all of its processes have exited."""

    def __init__(self, order: Order, pid: int) -> None:
        self._order = order
        self._pid = pid
        self._started = time.monotonic()
        #: Monotonic times of SIGTERM (SIGHUP for a shell) and of SIGKILL to all processes.
        self._term_at, self._kill_at = math.inf, math.inf
        if order.timeout_seconds:
            self._kill_at = self._started + order.timeout_seconds
            self._term_at = self._kill_at - order.stop_signal_seconds
        self._until = order.until or math.inf
        self._suspension = Suspension(os.getpid())
        #: Start of the current suspension, or None.
        self._suspended_at: float | None = None
        self._hold_at = math.inf
        #: True if the program was asked to exit or has exited. A suspension then does not delay signals.
        self._ending = False
        limited = order.memory_bytes or order.processes
        self._look_at = self._started + POLL_SECONDS if limited else math.inf
        self._status: int | None = None
        self._reason = ""
        self._left_behind = False
        self._cpu_seconds = 0.0
        self._max_rss_bytes = 0

    def stop(self, reason: str, grace_seconds: float) -> None:
        """Stop all processes of the program within the grace period. Only the first reason is recorded."""
        now = time.monotonic()
        self._ending = True
        self._reason = self._reason or ("" if self._status is not None else reason)
        self._term_at = min(self._term_at, now)
        self._kill_at = min(self._kill_at, now + grace_seconds)

    def keep(self, until: float) -> None:
        """Change the monotonic time at which the program is suspended. 0 means never."""
        self._until = until or math.inf

    def reap(self) -> bool:
        """Collect the exit codes of exited processes. Return True if no process remains.

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
        """Check the program's limits, suspend or resume the program, and send signals that are due."""
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
            # setpriv has not set the death signal yet. A program that is suspended now would outlive the guard.
            self._hold_at = now + KILL_AGAIN_SECONDS
            return
        since, held = now - self._suspended_at, self._suspension.hold()
        self._hold_at = now + (SUSPENDED_POLL_SECONDS if held else KILL_AGAIN_SECONDS)
        if since > LONGEST_SUSPENSION or (since > SUSPEND_SECONDS and not held):
            self.stop("stopped", 0.0)

    def _resume(self, seconds: float) -> None:
        """Resume the program. The time of its suspension does not count toward its timeout."""
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
        """Send SIGTERM to all processes, or SIGHUP to all processes of a shell.

        Shells ignore SIGTERM. SIGCONT wakes a shell's stopped children.
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
        """Return the seconds until the next action for the program is due, or None if no action is due."""
        due = min(self._look_at, self._until if self._suspended_at is None else self._hold_at)
        if self._suspended_at is None or self._ending:
            due = min(due, self._term_at, self._kill_at)
        return None if due == math.inf else max(0.0, due - time.monotonic())

    def describe_end(self) -> ProgramEnd:
        """Return the exit code and resource usage of the program. All of its processes must have exited."""
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
    """Runs the programs that its runner orders through a socket."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._runner_gone = False
        # The exit of any child process makes this pipe readable.
        self._woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Run programs until the runner closes the channel."""
        while not self._runner_gone:
            message, descriptors = guard_messages.receive(self._channel, DESCRIPTORS)
            if message is None:
                return
            order = guard_messages.receive_order(message, descriptors)
            if order is not None:  # A request to stop can arrive after the program has exited
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
        program.returncode = 0  # Prevents Popen from waiting for a child whose exit code is already collected
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
    """Start a program. The kernel kills the program when this process dies."""
    stdin, stdout, stderr = descriptors if len(descriptors) > _OUTPUTS else (subprocess.DEVNULL, *descriptors)
    pipes: dict[str, Any] = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
    if order.uid is not None or order.attached or _SETPRIV is None:
        return _spawn(order, pipes)
    found = _resolve_program(order)
    # Without a preexec function, Popen uses vfork, which is 1 ms faster.
    return subprocess.Popen(
        [_SETPRIV, "--pdeathsig", "KILL", "--", found, *order.argv[1:]],
        cwd=order.folder,
        env=order.environment,
        start_new_session=True,
        **pipes,
    )


def _is_setpriv(pid: int) -> bool:
    """Return True if the process is still executing setpriv instead of the program."""
    with contextlib.suppress(OSError):  # The process has exited
        return _SETPRIV is not None and Path(f"/proc/{pid}/exe").samefile(_SETPRIV)
    return False


def _spawn(order: Order, pipes: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start a shell, or start a program as another Unix user.

    The environment must not affect earlier code.
    """
    guard = os.getpid()

    def prepare() -> None:
        processes.die_with_parent(guard)
        if order.attached:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # The guard process ignores SIGINT, but the program must not
        if order.terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if order.uid and order.processes:
            # The kernel counts all threads of the user, so its limit is higher than the guard's limit.
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
    """Return the absolute path of the program that an order runs. Raises OSError."""
    name, folder = order.argv[0], Path(order.folder)
    places = [""] if "/" in name else order.environment.get("PATH", os.defpath).split(":")
    files = [path for path in (folder / place / name for place in places) if _is_file(path)]
    for path in files:
        if os.access(path, os.X_OK):
            return str(path)
    number = errno.EACCES if files else errno.ENOENT
    raise OSError(number, os.strerror(number), name if folder.is_dir() else order.folder)


def _is_file(path: Path) -> bool:
    with contextlib.suppress(OSError):  # The folder may be inaccessible
        return path.is_file()
    return False


def _not_started(order: Order, error: Exception) -> ProgramEnd:
    code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    what = getattr(error, "filename", None) or order.argv[0]
    number = getattr(error, "errno", None) or 0
    words = f"{str(what)[:MOST_CHARACTERS]}: {getattr(error, 'strerror', None) or error}"
    return ProgramEnd(code=code, error=words, errno=number)


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The runner handles Ctrl-C in its terminal
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
