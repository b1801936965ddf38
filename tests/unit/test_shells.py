"""Tests shells next to programs without a cluster: the guard's handling, and that no shell outlives its program."""

from __future__ import annotations

import gc
import math
import os
import secrets
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from jobs.store.server.connection import CoordinatorAway
from jobs.worker.api.api_attachments import ApiAttachments, ShellInput
from runner.programs import processes, shells
from runner.programs.guard_messages import Order
from runner.programs.shells import Program, Shells
from tests import garbage
from tests.integration.live import until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="runners need Linux")


class Calls(ApiAttachments):
    """The user's side: input is available from the start, and output is stored up to a limit."""

    def __init__(self, about: dict[str, Any] | None, typed: bytes = b"", *, room: float = math.inf) -> None:
        self._about, self._typed, self.room = about, typed, room
        self.shown, self.ends, self.taken = bytearray(), list[tuple[int | None, str]](), 0
        self.over, self.away = False, False
        self.ended = threading.Event()

    def take(self, *place: Any) -> dict[str, Any] | None:
        self.taken += 1
        self._answer()
        return self._about

    def _answer(self) -> None:
        if self.away:
            raise CoordinatorAway("away", 0.01)

    def read(self, attachment: str, job: str, lease: str, after: int, **more: Any) -> ShellInput:
        self._answer()
        data = self._typed[after:]
        if not data:
            time.sleep(0.01)
        return ShellInput(over=self.over, size="", closed=True, upto=len(self._typed), data=data)

    def write(
        self, attachment: str, job: str, lease: str, offset: int, stream: str, data: bytes, **more: Any
    ) -> int | None:
        self._answer()
        if self.over:
            return None
        assert offset == len(self.shown)
        self.shown += data[: max(0, int(min(self.room, 1 << 30)) - offset)]
        time.sleep(0.001)
        return len(self.shown)

    def end(self, attachment: str, job: str, lease: str, code: int | None, reason: str) -> None:
        self._answer()
        self.ends.append((code, reason))
        self.ended.set()


TERMINAL = {"rows": 24, "columns": 80, "name": "xterm"}


def about(*command: str, terminal: bool = False) -> dict[str, Any]:
    return {"command": list(command) or None, "terminal": TERMINAL if terminal else None}


def program(folder: Path, **more: Any) -> Program:
    environment = {"PATH": os.defpath, "HOME": str(folder), "MINE": "x"}
    order = Order(argv=["sleep", "600"], folder=str(folder), environment=environment, **more)
    return Program(job="j", unit=3, lease="t", order=order, until=lambda: math.inf)


def served(calls: Calls, folder: Path, seconds: float = 60, **more: Any) -> Calls:
    """Run a shell until it exits, next to a program that runs longer."""
    several = Shells(calls)
    with several.beside(program(folder, **more)):
        several.asked([("j", 3, "a")])
        assert calls.ended.wait(seconds)
    return calls


def test_a_shell_at_a_terminal_and_one_between_pipes(tmp_path: Path) -> None:
    piped = served(Calls(about(), b"pwd; printenv MINE TERM HISTFILE; exit 4\n"), tmp_path)
    assert piped.shown.decode() == f"{tmp_path}\nx\n/dev/null\n" and piped.ends == [(4, "")]
    typed = b"tty; ps -o sid=,pgid=,tpgid= -p $$ | tr -s ' '; echo $TERM; exit 5\r"
    shown = served(calls := Calls(about("bash", "--norc", terminal=True), typed), tmp_path).shown.decode()
    assert "/dev/pts/" in shown and "\r\nxterm\r\n" in shown and "no job control" not in shown
    assert calls.ends == [(5, "")]


def test_keys_are_signals_at_a_terminal(tmp_path: Path) -> None:
    text = "trap 'echo heard; exit 6' INT; kill -INT $$; sleep 5"
    assert served(Calls(about("sh", "-c", text)), tmp_path).ends == [(6, "")], "who asks is no guard that ignores it"
    mark = f"sleep 5{secrets.randbelow(10**9):09}"
    calls = Calls(about("sh", "-c", f"stty -echo; exec {mark}", terminal=True), b"")
    several = Shells(calls)
    with several.beside(program(tmp_path)):
        several.asked([("j", 3, "a")])
        until(lambda: [pid for pid in living(mark) if "stty" not in command(pid)])
        calls._typed = b"\x03"
        assert calls.ended.wait(60)
    assert calls.ends == [(130, "")]


def test_all_output_comes_whatever_its_reader_does(tmp_path: Path) -> None:
    calls = Calls(about("sh", "-c", "seq 100000; echo err >&2; exit 3"), room=1000)
    several = Shells(calls)
    with several.beside(program(tmp_path)):
        several.asked([("j", 3, "a")])
        until(lambda: len(calls.shown) == 1000)
        calls.away = True
        time.sleep(0.3)
        assert len(calls.shown) == 1000 and not calls.ends
        calls.away, calls.room = False, math.inf
        assert calls.ended.wait(60)
    expected = b"".join(b"%d\n" % number for number in range(1, 100_001))
    assert calls.ends == [(3, "")] and bytes(calls.shown).replace(b"err\n", b"", 1) == expected


HIDES = "trap '' HUP TERM INT; (setsid sh -c \"trap '' HUP TERM; sleep {0} & sleep {0}\" &) ; sleep {0} & sleep {0}"


def command(pid: int) -> str:
    """Return the command line of a process, or nothing if it has exited."""
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ""


def living(part: str) -> list[int]:
    found = []
    for each in psutil.process_iter(["cmdline", "status"]):
        if part in " ".join(each.info["cmdline"] or ()) and each.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(each.pid)
    return found


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_outlives_the_program_and_its_end_waits_for_that(tmp_path: Path, terminal: bool) -> None:
    mark = f"sleep 6{secrets.randbelow(10**9):09}"
    calls = Calls(about("sh", "-c", HIDES.format(mark.split()[1]), terminal=terminal))
    several = Shells(calls)
    with several.beside(program(tmp_path)):
        several.asked([("j", 3, "a")])
        until(lambda: len(living(mark)) >= 4)
        began = time.monotonic()
    assert not living(mark)
    assert time.monotonic() - began > shells.GRACE_SECONDS / 2, "it ignores SIGHUP"
    assert calls.ended.wait(60) and calls.ends == [(None, "program")]


def test_a_program_that_ends_at_any_moment_waits_for_no_call(tmp_path: Path) -> None:
    """Before its shell was taken, while a coordinator is away, while its guard begins, once it runs."""
    mark = f"sleep 7{secrets.randbelow(10**9):09}"
    for step in range(8):
        calls = Calls(about(*mark.split()))
        calls.away = step == 0
        several = Shells(calls)
        began = time.monotonic()
        with several.beside(program(tmp_path)):
            several.asked([("j", 3, "a")])
            time.sleep(0.025 * step)
            began = time.monotonic()
        assert not living(mark)
        assert time.monotonic() - began < 60
        time.sleep(0.1)
        assert not living(mark), "it began after its program had ended"


def test_one_whom_nobody_wants_any_more_ends(tmp_path: Path) -> None:
    mark = f"sleep 8{secrets.randbelow(10**9):09}"
    calls = Calls(about(*mark.split()))
    several = Shells(calls)
    with several.beside(program(tmp_path)):
        several.asked([("j", 3, "a")])
        until(lambda: living(mark))
        calls.over = True
        until(lambda: not living(mark))


def test_what_is_typed_and_not_read_is_bounded_and_holds_nobody_up(tmp_path: Path) -> None:
    calls = Calls(about("sleep", "600"), bytes(1 << 20))
    several = Shells(calls)
    with several.beside(program(tmp_path)):
        several.asked([("j", 3, "a")])
        time.sleep(1.0)
        began = time.monotonic()
    assert time.monotonic() - began < 60


def test_limits_are_those_of_the_program_and_its_own(tmp_path: Path) -> None:
    hog = "import time; held = bytearray(b'x' * (200 << 20)); time.sleep(60)"
    assert served(Calls(about(sys.executable, "-c", hog)), tmp_path, memory_bytes=100 << 20).ends == [(137, "memory")]
    cannot = served(Calls(about("no-such-program")), tmp_path).ends
    assert cannot == [(127, "no-such-program: No such file or directory")]


def test_only_two_are_beside_a_program_and_none_where_they_are_not_allowed(tmp_path: Path) -> None:
    calls = Calls(about("sleep", "600"))
    several = Shells(calls)
    with several.beside(program(tmp_path)):
        names = [("j", 3, f"a{number}") for number in range(1000)]
        for _ in range(3):
            several.asked(names)
        until(lambda: calls.taken == 2)
        time.sleep(0.3)
        assert calls.taken == 2
        several.asked([("j", 4, "b"), ("k", 3, "c")])
        assert calls.taken == 2
    refusing = Calls(about("sleep", "600"))
    several = Shells(refusing, allowed=False)
    with several.beside(program(tmp_path)):
        several.asked([("j", 3, "a")])
        assert refusing.ended.wait(60) and refusing.ends == [(None, "off")]


def test_none_leaves_a_descriptor_a_thread_or_a_process(tmp_path: Path) -> None:
    served(Calls(about("true", terminal=True)), tmp_path)

    def counted() -> tuple[int, int, int]:
        for thread in threading.enumerate():
            if thread.name.startswith("shell-"):
                thread.join(60)
        gc.collect()
        return (
            len(list(Path("/proc/self/fd").iterdir())),
            threading.active_count(),
            len(list(processes.children(os.getpid()))),
        )

    garbage.collect()
    before = counted()
    for terminal in (True, False):
        served(Calls(about("sh", "-c", "echo x", terminal=terminal)), tmp_path)
        served(Calls(about("no-such-program", terminal=terminal)), tmp_path)
        served(Calls(about("sh", "-c", "kill -9 $$", terminal=terminal)), tmp_path)
    # What tests before this one have left may end meanwhile.
    assert all(now <= then for now, then in zip(counted(), before, strict=True))


def test_a_guard_that_dies_takes_its_shell_along(tmp_path: Path) -> None:
    mark = f"sleep 9{secrets.randbelow(10**9):09}"
    calls = Calls(about("sh", "-c", f"{mark}; true", terminal=True))
    several = Shells(calls)
    with several.beside(beside := program(tmp_path)):
        several.asked([("j", 3, "a")])
        until(lambda: len(living(mark)) >= 2)
        [shell] = beside.shells
        assert shell.shell_slot is not None
        os.kill(shell.shell_slot.pid, signal.SIGKILL)
        assert calls.ended.wait(60)
    [(code, reason)] = calls.ends
    assert code is None and "lost" in reason
