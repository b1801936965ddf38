"""The guard of a slot: runs one program after another, and says that one has ended when nothing of it is alive.

`python -m runner.guard FD`, where FD is its end of `orders.channel`. It has one thread, which may fork, and no secrets.
It adopts what a program leaves behind, so no descendant escapes it; when the runner is gone, it kills everything and
ends.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time

from runner import orders, processes
from runner.orders import Ended, Order

#: Seconds that descendants of a program that has ended get between SIGTERM and SIGKILL.
LEFTOVER_SECONDS = 1.0
#: Seconds between two passes of SIGKILL: what was being started during one is killed by the next.
KILL_AGAIN_SECONDS = 0.02
#: Seconds between two looks at what a program uses, where that is limited.
LOOK_SECONDS = 0.25
#: Descriptors that come with an order: its stdout and its stderr.
DESCRIPTORS = 2
#: Exit statuses of a shell for a command that is not there, and for one that cannot be executed.
NOT_FOUND, NOT_EXECUTABLE = 127, 126


class Watch:
    """One program from its start until nothing of it is alive."""

    def __init__(self, order: Order, pid: int) -> None:
        self._order = order
        self._pid = pid
        self._started = time.monotonic()
        #: When all get SIGTERM and SIGKILL, in monotonic seconds.
        self._term_at, self._kill_at = math.inf, math.inf
        if order.timeout_seconds:
            self._kill_at = self._started + order.timeout_seconds
            self._term_at = self._kill_at - order.stop_signal_seconds
        self._look_at = self._started if order.memory_bytes or order.processes else math.inf
        self._status: int | None = None
        self._reason = ""
        self._left_behind = False
        self._cpu_seconds = 0.0
        self._max_rss_bytes = 0

    def stop(self, reason: str, grace_seconds: float) -> None:
        """Have all of it ended within the grace; the first reason counts, an earlier end stays."""
        now = time.monotonic()
        self._reason = self._reason or ("" if self._status is not None else reason)
        self._term_at = min(self._term_at, now)
        self._kill_at = min(self._kill_at, now + grace_seconds)

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
        """Do what is due: look at the limits, send signals."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self._look()
        if now >= self._kill_at:
            self._reason = self._reason or ("timeout" if self._status is None else "")
            processes.signal_descendants(os.getpid(), signal.SIGKILL)
            self._kill_at = now + KILL_AGAIN_SECONDS
        elif now >= self._term_at:
            self._reason = self._reason or ("timeout" if self._status is None else "")
            processes.signal_descendants(os.getpid(), signal.SIGTERM)
            self._term_at = math.inf

    def _look(self) -> None:
        living = processes.descendants(os.getpid())
        if self._order.processes and len(living) > self._order.processes:
            self.stop("processes", 0.0)
        elif self._order.memory_bytes and processes.memory_bytes(living) > self._order.memory_bytes:
            self.stop("memory", 0.0)

    def patience(self) -> float | None:
        """Return the seconds until something is due; None: nothing is."""
        due = min(self._term_at, self._kill_at, self._look_at)
        return None if due == math.inf else max(0.0, due - time.monotonic())

    def ended(self) -> Ended:
        """Describe the end. Call it once nothing is left."""
        code = os.waitstatus_to_exitcode(self._status or 0)
        return Ended(
            code=code if code >= 0 else 128 - code, reason=self._reason, left_behind=self._left_behind,
            seconds=time.monotonic() - self._started, cpu_seconds=self._cpu_seconds,
            max_rss_bytes=self._max_rss_bytes,
        )  # fmt: skip


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
            if "run" in message:  # a stop may come after the end of what it was meant for
                how = self._run(Order(**message["run"]), descriptors)
                with contextlib.suppress(ConnectionError):
                    orders.send(self._channel, orders.ended(how))

    def _run(self, order: Order, descriptors: list[int]) -> Ended:
        try:
            program = _start(order, descriptors)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return _not_started(order, error)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        watch = Watch(order, program.pid)
        while not watch.reap():
            watch.act()
            self._wait(watch)
        program.returncode = 0  # else Popen, which has not seen it end, would wait for it
        return watch.ended()

    def _wait(self, watch: Watch) -> None:
        heard: list[int | socket.socket] = [self._woken] if self._runner_gone else [self._woken, self._channel]
        ready, _, _ = select.select(heard, [], [], watch.patience())
        if self._woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken, 4096)
        if self._channel in ready:
            self._heed(watch)

    def _heed(self, watch: Watch) -> None:
        message, _ = orders.receive(self._channel)
        if message is None:
            self._runner_gone = True
            watch.stop("stopped", 0.0)
        elif "stop" in message:
            watch.stop("stopped", message["stop"]["grace_seconds"])


def _start(order: Order, descriptors: list[int]) -> subprocess.Popen[bytes]:
    guard = os.getpid()

    def prepare() -> None:
        processes.die_with_parent(guard)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    stdout, stderr = descriptors
    return subprocess.Popen(
        order.argv, cwd=order.folder, env=order.environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
        start_new_session=True, user=order.uid, group=order.uid, extra_groups=None if order.uid is None else [],
        preexec_fn=prepare,  # noqa: PLW1509  # it is unsafe in processes with threads
    )  # fmt: skip


def _not_started(order: Order, error: Exception) -> Ended:
    code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    what = getattr(error, "filename", None) or order.argv[0]
    return Ended(code=code, error=f"{what}: {getattr(error, 'strerror', None) or error}")


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at the runner's terminal is the runner's
    processes.adopt_orphans()
    processes.hide()
    with socket.socket(fileno=int(arguments[0])) as channel:
        channel.set_inheritable(False)
        Guard(channel).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
