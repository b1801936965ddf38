"""Tests programs in a slot with their guard: inputs, exits, and that no process of a program survives."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runner.files.directories import Places
from runner.programs import cleanup, guard_messages, output, processes
from runner.programs.guard_messages import Order, ProgramEnd
from runner.programs.slot import GUARD, GuardDied, Slot
from tests.integration.live import until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="guards need Linux")


class Written:
    """Output of programs, keyed by stream."""

    def __init__(self) -> None:
        self.streams = [bytearray(), bytearray()]

    def __call__(self, stream: int, data: bytes) -> None:
        self.streams[stream] += data

    @property
    def text(self) -> str:
        return self.streams[0].decode()


@pytest.fixture
def slot() -> Iterator[Slot]:
    slot = Slot("0")
    yield slot
    slot.close()


@pytest.fixture
def written() -> Written:
    return Written()


def shell(text: str, **more: Any) -> Order:
    return Order(argv=["/bin/sh", "-c", text], folder="/", environment={"PATH": os.defpath}, **more)


def python(text: str, **more: Any) -> Order:
    return Order(argv=[sys.executable, "-c", text], folder="/", environment={"PATH": os.defpath}, **more)


def alive(pid: int) -> bool:
    """Return True if a process is running; a zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_program_ends_with_its_status_and_what_it_wrote(slot: Slot, written: Written) -> None:
    how = slot.run(shell("echo out; echo err >&2; exit 7"), written)
    assert (how.code, how.reason, how.error, how.left_behind) == (7, "", "", False)
    assert written.streams == [b"out\n", b"err\n"]
    assert slot.run(shell("exit 0"), written).code == 0, "a guard runs one after the other"


def test_a_slot_leaves_other_children_of_its_process_alone() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        Slot("1").close()
        assert other.poll() is None
        other.kill()


def test_a_signal_is_128_and_its_number_as_in_a_shell(slot: Slot, written: Written) -> None:
    assert slot.run(shell("kill -SEGV $$"), written).code == 128 + signal.SIGSEGV


@pytest.mark.parametrize(
    ("argv", "folder", "code", "words"),
    [
        (["/no/such/program"], "/", 127, "/no/such/program: No such file"),
        (["/etc/passwd"], "/", 126, "/etc/passwd: Permission denied"),
        (["true"], "/no/such/folder", 127, "/no/such/folder: No such file"),
    ],
)
def test_what_cannot_start_says_why(
    slot: Slot, written: Written, argv: list[str], folder: str, code: int, words: str
) -> None:
    how = slot.run(Order(argv=argv, folder=folder), written)
    assert how.code == code
    assert how.error.startswith(words)


def test_a_program_is_found_as_by_a_shell(slot: Slot, written: Written, tmp_path: Path) -> None:
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tool").write_text(f"#!/bin/sh\necho {folder}\n")
    (tmp_path / "second" / "tool").chmod(0o755)
    for path in (f"{tmp_path}/first:/no/such:{tmp_path}/second", "first:second"):
        assert slot.run(Order(argv=["tool"], folder=str(tmp_path), environment={"PATH": path}), written).code == 0
    assert slot.run(Order(argv=["./tool"], folder=str(tmp_path / "second")), written).code == 0
    assert written.text == "second\n" * 3


def test_a_program_dies_with_its_guard_even_if_nobody_looks(slot: Slot, written: Written, tmp_path: Path) -> None:
    said = tmp_path / "pid"
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(slot.run, shell(f"echo $$ > {said}.new; mv {said}.new {said}; exec sleep 60"), written)
        until(said.exists)
        os.kill(slot.pid, signal.SIGKILL)
        with pytest.raises(GuardDied):
            running.result(60)
    program = int(said.read_text())
    until(lambda: not Path(f"/proc/{program}").exists() or is_zombie(program))


def is_zombie(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def test_a_program_inherits_nothing(slot: Slot, written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER_TOKEN", "secret")
    slot.run(python("import os; print(sorted(os.environ), sorted(os.listdir('/proc/self/fd')))"), written)
    names, _, descriptors = written.text.partition("] [")
    assert set(eval(names + "]")) <= {"PATH", "LC_CTYPE"}  # noqa: S307
    assert len(descriptors.split(",")) == 4, "stdin, stdout, stderr, and the folder that is listed"
    written.streams[0].clear()
    slot.run(shell("cat /proc/$PPID/environ | tr '\\0' '\\n'"), written)
    assert "secret" not in written.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the user")
def test_a_program_of_another_user_has_no_group_of_the_runner(slot: Slot, written: Written) -> None:
    assert slot.run(shell("id -u; id -G", uid=65534), written).code == 0
    assert written.text == "65534\n65534\n"


def test_a_timeout_sends_sigterm_in_time_for_a_checkpoint(slot: Slot, written: Written) -> None:
    order = shell("trap 'echo saved; exit 3' TERM; sleep 60 & wait", timeout_seconds=60.0, stop_signal_seconds=56.0)
    how = slot.run(order, written)
    assert (how.code, how.reason, written.text) == (3, "timeout", "saved\n")
    assert how.seconds < 50


def test_a_timeout_kills_what_ignores_sigterm(slot: Slot, written: Written) -> None:
    how = slot.run(shell("trap '' TERM; while :; do sleep 1; done", timeout_seconds=0.3), written)
    assert (how.code, how.reason) == (128 + signal.SIGKILL, "timeout")


#: Goes on once each of them has said its process id.
ESCAPES = """
import os, sys, time, signal
heard, said = os.pipe()
for number in range(3):
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.write(1, b"%d\\n" % os.getpid())
            os.write(said, b"x")
            time.sleep(600)
        os._exit(0)
for number in range(3):
    os.read(heard, 1)
"""


def test_what_forks_twice_and_ignores_sigterm_is_dead_when_the_end_is_said(slot: Slot, written: Written) -> None:
    how = slot.run(python(ESCAPES), written)
    assert (how.code, how.left_behind) == (0, True)
    escaped = [int(line) for line in written.text.split()]
    assert len(escaped) == 3
    assert not any(map(alive, escaped))


def test_stop_ends_everything_within_its_grace(slot: Slot, written: Written) -> None:
    ended: list[ProgramEnd] = []
    order = python(ESCAPES + "\ntime.sleep(600)")
    running = threading.Thread(target=lambda: ended.append(slot.run(order, written)))
    running.start()
    escaped = until(lambda: len(written.text.split()) == 3 and written.text.split())
    slot.stop(0.5)
    running.join(60)
    assert ended[0].reason == "stopped"
    assert not any(alive(int(pid)) for pid in escaped)
    slot.stop(0.5)
    assert slot.run(shell("echo next"), written).code == 0, "a stop that comes too late stops nothing else"


def test_a_fork_bomb_is_ended(slot: Slot, written: Written) -> None:
    bomb = "import os\nfor _ in range(8):\n    os.fork()\nimport time; time.sleep(600)"
    how = slot.run(python(bomb, processes=100, timeout_seconds=60.0), written)
    assert how.reason == "processes"
    assert processes.descendants(slot.pid) == []


def test_memory_of_all_descendants_together_is_limited(slot: Slot, written: Written) -> None:
    hog = "import os, time\nos.fork()\nkept = os.urandom(1 << 20) * 60\ntime.sleep(600)"
    how = slot.run(python(hog, memory_bytes=100 << 20, timeout_seconds=60.0), written)
    assert how.reason == "memory"
    assert how.max_rss_bytes > 50 << 20


def test_a_program_below_its_limits_is_left_alone(slot: Slot, written: Written) -> None:
    order = python("import time; time.sleep(0.6)", memory_bytes=1 << 30, processes=10, timeout_seconds=60.0)
    assert slot.run(order, written).reason == ""


RUNNER = """
import os, sys
from runner.programs import slot
from runner.programs.guard_messages import Order

def show(stream, data):
    print(data.decode(), end="", flush=True)

slot.adopt_orphans()
mine = slot.Slot("0")
print(mine.pid, flush=True)
try:
    mine.run(Order(argv=[sys.executable, "-c", sys.argv[1]], folder="/", environment={}), show)
except slot.GuardDied:
    print("died", flush=True)
after = mine.run(Order(argv=["true"], folder="/", environment={"PATH": os.defpath}), show)
print(after.code, mine.restarts, flush=True)
mine.close()
"""


@pytest.fixture
def runner() -> Iterator[subprocess.Popen[str]]:
    """Start a process with a slot that runs a program. It prints the guard's process ID, then four of the program."""
    text = ESCAPES + "\nprint(os.getpid(), flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", RUNNER, text], stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_a_guard_that_is_killed_takes_its_program_along(runner: subprocess.Popen[str]) -> None:
    assert runner.stdout
    guard, *pids = [int(runner.stdout.readline()) for _ in range(5)]
    os.kill(guard, signal.SIGKILL)
    assert runner.stdout.readline() == "died\n"
    assert not any(map(alive, pids))
    assert runner.stdout.readline() == "0 1\n", "the next program has another guard"


def test_a_runner_that_is_killed_leaves_nothing_behind(runner: subprocess.Popen[str]) -> None:
    assert runner.stdout
    pids = [int(runner.stdout.readline()) for _ in range(5)]
    runner.kill()
    until(lambda: not any(map(alive, pids)))


def is_stopped(pid: int) -> bool:
    return set(processes.states(pid)) == {"T"}


def test_a_guard_that_is_stopped_while_its_runner_is_killed_leaves_nothing_behind(
    runner: subprocess.Popen[str],
) -> None:
    assert runner.stdout
    pids = [int(runner.stdout.readline()) for _ in range(5)]
    for pid in (runner.pid, pids[0]):  # its runner, which has it go on each second, first
        os.kill(pid, signal.SIGSTOP)
        until(partial(is_stopped, pid), 60)
    runner.kill()
    try:
        until(lambda: not any(map(alive, pids)), 60)
    finally:
        cleanup.end_guards()


def test_a_program_that_another_runners_guard_has_just_forked_is_not_killed() -> None:
    # One call writes each line, because both processes write and Python may not buffer.
    forked = r"import os, time; os.write(1, b'%d\n' % os.fork()); time.sleep(60)"
    argv = [sys.executable, "-c", forked, "-m", GUARD, "3", str(os.getpid())]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as guard:
        try:
            assert guard.stdout
            program = max(int(guard.stdout.readline()) for _ in range(2))
            cleanup.end_guards()
            assert guard.poll() is None and alive(program)
        finally:
            os.killpg(guard.pid, signal.SIGKILL)


def test_a_guard_that_is_stopped_and_whose_runner_is_gone_is_ended_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = guard_messages.channel()
    argv = [sys.executable, "-m", GUARD, str(theirs.fileno()), str(os.getpid())]
    with ours, theirs, subprocess.Popen(argv, pass_fds=[theirs.fileno()], start_new_session=True) as guard:
        try:
            program = _begun(ours, guard.pid)
            os.kill(guard.pid, signal.SIGSTOP)
            until(lambda: set(processes.states(guard.pid)) == {"T"}, 60)
            cleanup.end_guards()
            assert guard.poll() is None and alive(program), "its runner is there"
            status, gone = processes.status, {"PPid": ["1"]}
            inside, another = {**gone, "NSpid": [str(guard.pid), "7"]}, {**gone, "Uid": ["4242"] * 4}
            for seen, ends in ((inside, False), (another, False), (gone, True)):
                told = {guard.pid: seen}
                monkeypatch.setattr(processes, "status", lambda pid, told=told: {**status(pid), **told.get(pid, {})})
                cleanup.end_guards()
                assert alive(program) is not ends, seen
            assert guard.wait(60) == -signal.SIGKILL
        finally:
            guard.kill()


def _begun(channel: socket.socket, guard: int) -> int:
    """Let a guard run a program, and return its process ID."""
    output = [os.open(os.devnull, os.O_WRONLY) for _ in range(2)]
    guard_messages.send_run(channel, Order(argv=["/bin/sleep", "4242.8"], folder="/", environment={}), output)
    for descriptor in output:
        os.close(descriptor)
    [program] = until(lambda: list(processes.children(guard)), 60)
    return int(program)


def test_what_a_runner_left_that_was_killed_with_its_guards_is_ended_by_the_next_one(tmp_path: Path) -> None:
    places = Places(tmp_path / "mine")
    places.make()

    def program(top: Path) -> subprocess.Popen[bytes]:
        environment = {"CLUSTER_RESULT": f"{top}/work/0/home/.cluster-result"}
        return subprocess.Popen(["/bin/sleep", "4242.6"], env=environment, start_new_session=True)

    ours, theirs = program(places.top), program(tmp_path / "theirs")
    try:
        assert until(lambda: cleanup.end(places)) == 1
        assert ours.wait(30) == -signal.SIGKILL and theirs.poll() is None
    finally:
        theirs.kill()
        theirs.wait()


def test_two_runners_never_work_in_one_folder(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.make()
    with cleanup.lock(places), pytest.raises(cleanup.InUse, match="another runner is using"):
        cleanup.lock(places)
    cleanup.lock(places).close()


def test_a_program_that_outlived_its_runner_with_the_lock_keeps_no_other_runner_away(tmp_path: Path) -> None:
    """A program can keep the lock if its user is the runner's own."""
    places = Places(tmp_path)
    places.make()
    cleanup.lock(places).close()
    hold = "import fcntl, sys, time; lock = open(sys.argv[1]); fcntl.flock(lock, 2); print(flush=True); time.sleep(60)"
    environment = {"CLUSTER_RESULT": f"{places.work}/0/home/.cluster-result"}
    argv = [sys.executable, "-c", hold, str(places.top / "lock")]
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        cleanup.lock(places).close()
        assert holder.wait(30) == -signal.SIGKILL
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as runner:
        assert runner.stdout is not None
        runner.stdout.readline()
        with pytest.raises(cleanup.InUse):
            cleanup.lock(places)
        runner.kill()
    assert (places.top / "lock").stat().st_mode & 0o777 == 0o600


def test_a_log_keeps_its_beginning_and_its_end() -> None:
    log = output.Log(first=10, last=20)
    for number in range(100):
        log.add(b"%04d " % number)
    assert log.content().startswith(b"0000 0001 \n[")
    assert log.content().endswith(b"\n0096 0097 0098 0099 ")
    assert log.total_bytes == 500
    assert log.dropped_bytes == 500 - 10 - 20


def test_a_short_log_is_kept_whole() -> None:
    log = output.Log(first=10, last=20)
    log.add(b"a" * 25)
    assert log.content() == b"a" * 25


def test_a_program_that_writes_fast_is_slowed_down_and_not_lost() -> None:
    read, write = os.pipe()
    taken: list[int] = []
    drain = output.Drain([read], lambda _, data: taken.append(len(data)), rate=1 << 20)

    def fill() -> None:
        with os.fdopen(write, "wb") as stream:
            stream.write(bytes(1 << 19))

    writer = threading.Thread(target=fill)
    started = time.monotonic()
    writer.start()
    while drain.open and time.monotonic() - started < 60:
        time.sleep(drain.pause())
        for pipe in drain.pipes():
            drain.read(pipe)
    writer.join()
    assert sum(taken) == 1 << 19
    assert time.monotonic() - started > 0.4


def test_a_program_that_reads_its_own_pipe_holds_up_nobody(slot: Slot, written: Written) -> None:
    code = (
        "import os, threading\n"
        "own = os.open('/proc/self/fd/1', os.O_RDONLY)\n"
        "def steal():\n"
        "    while True: os.read(own, 1 << 16)\n"
        "for _ in range(4): threading.Thread(target=steal, daemon=True).start()\n"
        "while True: os.write(1, b'x')\n"
    )
    begun = time.monotonic()
    how = slot.run(python(code), written, lambda: 0.0 if time.monotonic() > begun + 1.5 else None)
    assert how.reason == "stopped" and time.monotonic() - begun < 60


def test_a_guard_that_a_program_stops_goes_on(slot: Slot, written: Written) -> None:
    how = slot.run(shell("kill -STOP $PPID; exec sleep 4242.7", timeout_seconds=1), written)
    assert how.reason == "timeout" and how.seconds < 60


def test_a_guard_that_never_answers_is_killed_with_its_program(
    slot: Slot, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.programs.slot.ANSWER_SECONDS", 0.5)
    monkeypatch.setattr("runner.programs.slot.KEEP_SECONDS", 1e9)
    stopped = tmp_path / "stopped"
    with pytest.raises(GuardDied):
        slot.run(
            shell(f"kill -STOP $PPID; echo > {stopped}; exec sleep 4242.8", timeout_seconds=60),
            written,
            lambda: 0.0 if stopped.exists() else None,
        )
    assert slot.run(shell("exit 3"), written).code == 3


#: Two processes, each of which notes that it runs, a hundred times a second, and one that starts others all the time.
_BUSY = """
for each in 0 1; do setsid sh -c 'while :; do echo >> ticks; sleep 0.01; done' & done
while :; do /bin/true; echo >> ticks; done
"""


def test_a_guard_suspends_a_program_of_whose_lease_it_hears_no_more(
    slot: Slot, written: Written, tmp_path: Path
) -> None:
    """For example, a signal stops the runner for longer than a lease. Renewing the lease resumes the program."""
    ticks, until_now, grace = tmp_path / "ticks", [time.monotonic() + 600], list[float]()
    ended: list[ProgramEnd] = []
    order = Order(argv=["sh", "-c", _BUSY], folder=str(tmp_path), environment={"PATH": os.defpath}, timeout_seconds=60)

    def run() -> None:
        ended.append(slot.run(order, written, lambda: grace[0] if grace else None, lambda: until_now[0]))

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: ticks.exists() and ticks.stat().st_size > 10)
    until_now[0] = time.monotonic() + 2

    def stand_still() -> bool:
        """Return True if no process of the program is running, even if not all of them are in state T."""
        size = ticks.stat().st_size
        time.sleep(0.5)
        now = states(slot.pid)
        return ticks.stat().st_size == size and len(now) >= 3 and "T" in now

    until(stand_still)
    size = ticks.stat().st_size
    time.sleep(0.5)
    assert ticks.stat().st_size == size > 0
    until_now[0] = time.monotonic() + 60
    until(lambda: ticks.stat().st_size > size + 10)
    grace.append(0.0)
    thread.join(60)
    assert ended[0].reason == "stopped" and not states(slot.pid)


def states(guard: int) -> list[str]:
    return [state for pid in processes.descendants(guard) for state in processes.states(pid)]


def test_time_in_which_a_program_is_suspended_does_not_count_for_its_timeout(
    slot: Slot, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.programs.slot.ANSWER_SECONDS", 0.2)
    begun = time.monotonic()

    def kept_from_six_seconds_on() -> float:
        now = time.monotonic()
        return begun + 0.3 if now < begun + 6 else now + 60

    how = slot.run(shell("sleep 0.1; sleep 1; exit 5", timeout_seconds=5), written, until=kept_from_six_seconds_on)
    assert (how.code, how.reason) == (5, ""), how


def test_what_cannot_be_suspended_is_killed(slot: Slot, written: Written) -> None:
    """Another process resumes the program again and again."""
    begun, ended = list[float](), threading.Event()

    def until_it_runs() -> float:
        begun.extend([time.monotonic()] if written.text and not begun else [])
        return begun[0] if begun else time.monotonic() + 60

    def have_it_go_on() -> None:
        while not ended.is_set():
            for pid in processes.descendants(slot.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=have_it_go_on)
    thread.start()
    try:
        how = slot.run(python("print(flush=True)\nwhile True: pass"), written, until=until_it_runs)
    finally:
        ended.set()
        thread.join()
    assert how.reason == "stopped" and how.seconds < 60


def test_a_program_whose_lease_ended_on_the_way_to_the_guard_does_not_begin(
    slot: Slot, written: Written, tmp_path: Path
) -> None:
    """The runner was stopped after it had checked the lease."""
    begun, ran = time.monotonic(), tmp_path / "ran"
    order = shell(f"echo >> {ran}; exit 4")
    how = slot.run(order, written, lambda: 0.0 if time.monotonic() > begun + 2 else None, lambda: begun - 1)
    assert how.reason == "stopped" and not ran.exists()
    now = time.monotonic()
    how = slot.run(order, written, until=lambda: now - 1 if time.monotonic() < now + 1 else now + 60)
    assert (how.code, how.reason) == (4, "") and ran.read_text() == "\n"


@pytest.mark.parametrize("how", ["channel", "kill"])
def test_nothing_that_is_suspended_outlives_its_runner_or_its_guard(how: str) -> None:
    ours, theirs = guard_messages.channel()
    with ours, theirs:
        guard = subprocess.Popen(
            [sys.executable, "-m", "runner.programs.guard", str(theirs.fileno())], pass_fds=[theirs.fileno()]
        )
        with Path(os.devnull).open("wb") as nothing:
            guard_messages.send_run(ours, python("while True: pass"), [nothing.fileno()] * 2)
        until(lambda: states(guard.pid))
        guard_messages.send(ours, guard_messages.keep(time.monotonic()))
        until(lambda: "T" in states(guard.pid))
        [program] = processes.descendants(guard.pid)
        if how == "kill":
            guard.kill()
    guard.wait(60)
    until(lambda: not alive(program))


#: A thread that notes that it runs, while the first one has ended (exit of x86-64 and of arm64), or is held by a child
#: that traces it.
_WITHOUT_ITS_FIRST_THREAD = """
import ctypes, os, platform, threading, time
def tick():
    while True:
        os.write(1, b'x')
        time.sleep(0.01)
libc = ctypes.CDLL(None)
threading.Thread(target=tick, daemon=True).start()
libc.syscall(60 if platform.machine() == 'x86_64' else 93, 0)
"""
_TRACED = """
import ctypes, os, sys, threading, time
libc, own, main_waits = ctypes.CDLL(None), os.getpid(), threading.Lock()
def tick():
    main_waits.acquire()
    if os.fork() == 0:
        assert libc.ptrace(0x4206, own, None, None) == 0
        assert libc.ptrace(0x4207, own, None, None) == 0
        os.waitpid(own, 0x40000000)
        time.sleep(600)
    while True:
        os.write(1, b'x')
        time.sleep(0.01)
libc.prctl(0x59616d61, ctypes.c_ulong(-1 % 2**64), 0, 0, 0)
main_waits.acquire()
threading.Thread(target=tick, daemon=True).start()
# If the main thread is stopped while it holds the interpreter's lock, or waits for it, the other thread stops, too.
# With this interval, the main thread releases the lock only in the system call below, and does not request it again.
sys.setswitchinterval(1000)
main_waits.release()
libc.pause()
"""


@pytest.mark.parametrize("code", [_WITHOUT_ITS_FIRST_THREAD, _TRACED], ids=["ended", "traced"])
def test_threads_are_suspended_whatever_the_first_one_does(slot: Slot, code: str) -> None:
    """The guard also notices if another process resumes them afterwards."""
    ticks, now, seen = [0.0], time.monotonic, list[bool]()
    begun = now()
    #: Time at which the program was seen running. From then on, its lease is not renewed.
    lost: list[float] = []

    def note(_: int, data: bytes) -> None:
        ticks.append(now())

    def kept() -> float:
        lost.extend([now()] if len(ticks) > 10 and not lost else [])
        return lost[0] if lost else now() + 60

    def have_it_go_on_once() -> None:
        until(lambda: lost and now() > max(ticks) + 2 and {*states(slot.pid)} <= {*"TtZX"})
        seen.append(True)
        for pid in processes.descendants(slot.pid):
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=have_it_go_on_once)
    thread.start()
    how = slot.run(python(code), note, lambda: 0.0 if now() > (lost or [begun])[0] + 40 else None, kept)
    ended = now()
    thread.join()
    assert seen == [True], (how, lost, max(ticks) - begun)
    assert how.reason == "stopped" and ended < lost[0] + 39, "it went on although it had been suspended"


def test_a_suspension_has_an_end(slot: Slot, written: Written, tmp_path: Path) -> None:
    """A suspended program can hold locks for which others wait."""
    guard = (
        "import runner.programs.guard as guard, sys; guard.LONGEST_SUSPENSION = 1.5; sys.exit(guard.main(sys.argv[1:]))"
    )
    ours, theirs = guard_messages.channel()
    with ours, theirs:
        process = subprocess.Popen([sys.executable, "-c", guard, str(theirs.fileno())], pass_fds=[theirs.fileno()])
        with Path(os.devnull).open("wb") as nothing:
            guard_messages.send_run(ours, shell("sleep 4242.9"), [nothing.fileno()] * 2)
        until(lambda: states(process.pid))  # one whose lease ends before it runs waits until somebody keeps it
        guard_messages.send(ours, guard_messages.keep(time.monotonic()))
        ours.settimeout(60)
        message, _ = guard_messages.receive(ours)
    process.wait(60)
    assert message is not None and message["ended"]["reason"] == "stopped"
    assert 1.5 < message["ended"]["seconds"] < 60


def test_what_its_program_has_stopped_itself_stays_so(slot: Slot, written: Written) -> None:
    text = "sh -c 'kill -STOP $$; echo never' & sleep 2; echo ended; kill -KILL $!"
    begun = time.monotonic()
    slot.run(shell(text), written, until=lambda: begun + 0.5 if time.monotonic() < begun + 1.5 else begun + 60)
    assert written.text == "ended\n"


def test_an_order_may_be_longer_than_a_message(slot: Slot, written: Written) -> None:
    words = ["\x01" * (100 << 10)] * 8
    code = "import os, sys; print(len(''.join(sys.argv[1:])), len(os.environ['ITEM']))"
    order = Order(argv=[sys.executable, "-c", code, *words], folder="/", environment={"ITEM": "\u00e9" * (60 << 10)})
    assert slot.run(order, written).code == 0
    assert written.text == f"{800 << 10} {60 << 10}\n"


def test_a_long_name_that_is_not_there_is_shortened(slot: Slot, written: Written) -> None:
    how = slot.run(Order(argv=["\u00e9" * (60 << 10)], folder="/", environment={"PATH": os.defpath}), written)
    assert how.code in (126, 127) and len(how.error) < 300


def test_a_program_becomes_nobody_else_whom_its_guard_could_not_end(slot: Slot, written: Written) -> None:
    slot.run(shell("grep NoNewPrivs /proc/self/status"), written)
    assert written.text.split() == ["NoNewPrivs:", "1"]


def test_a_log_of_single_bytes_takes_little_more_memory_than_they_are() -> None:
    log = output.Log(first=10, last=100_000)
    for number in range(300_000):
        log.add(b"%d" % (number % 10))
    kept = log.content()
    assert kept.startswith(b"0123456789\n[") and kept.endswith(b"0123456789")
    assert 100_000 <= len(kept) <= 110_000 and len(log.tail) < 100
    assert log.after(3, 4) == (3, b"3456")
