"""Tests `cluster attach` on a real cluster: a shell next to a running program, with a terminal and with pipes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.live import Live, until
from tests.integration.test_coming_from import BESIDE

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="runners need Linux")

TOKEN = "t" * 40


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="attach-") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory, place: Path) -> Iterator[Live]:
    """Start two coordinators, and a runner with two slots that uses the first one."""
    folder = tmp_path_factory.mktemp("programs")
    users: dict[str, Any] = {"RUNNER_UIDS": "61196-61197"} if os.geteuid() == 0 else {}
    live = Live(
        folder, workers=0, coordinators=2, CLUSTER_TOKEN=TOKEN, ARTIFACT_URL=f"file://{folder}/artifacts", **users
    )
    try:
        live.start_redis()
        live.start_coordinator()
        live.start_coordinator(1)
        live.start_runner(0, 2, RUNNER_DIR=str(place))
        live.wait_ready(1)
        yield live
    finally:
        live.stop()


@pytest.fixture(scope="module")
def user(programs: Live) -> dict[str, str]:
    return programs.user("read", "submit", "run")


@pytest.fixture
def program(programs: Live) -> Iterator[str]:
    """Return a job whose program writes its findings and keeps running."""
    finding = f"touch finds; ({FINDS}; echo; echo ----) > finds"
    job = started(programs, f"{finding}; sleep 600", env={"SHOWN": "twice"})
    yield job
    programs.post(f"/api/jobs/{job}/cancel")


def started(live: Live, text: str, **more: Any) -> str:
    job = live.submit("command", {"command": text, "count": 1, **more})
    until(lambda: live.get(f"/api/jobs/{job}/units")["units"][0]["state"] == "running", 60)
    return job


def elsewhere(user: dict[str, str], live: Live) -> dict[str, str]:
    """Return the same user at the other coordinator."""
    return {**user, "CLUSTER_URL": live.url(1)}


def cli(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "threads_cluster", "attach", *arguments]


def attached(
    user: dict[str, str], *arguments: str, given: bytes = b"", seconds: float = 60
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(cli(*arguments), env=user, input=given, capture_output=True, timeout=seconds)


def alive(part: str) -> list[int]:
    """Processes whose command line has a text, but for the command that asked for them."""
    found = []
    for each in psutil.process_iter(["cmdline", "status"]):
        words = " ".join(each.info["cmdline"] or ())
        if part in words and "threads_cluster" not in words and each.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(each.pid)
    return found


class Typist:
    """A user at a terminal who runs `cluster attach`."""

    def __init__(self, user: dict[str, str], *arguments: str, rows: int = 33, columns: int = 99) -> None:
        self.ours, theirs = pty.openpty()
        self.resize(rows, columns)
        self.process = subprocess.Popen(
            cli(*arguments),
            env={**user, "TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = b""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def sees(self, pattern: str, seconds: float = 60) -> re.Match[bytes]:
        """Read until a pattern appears, and discard everything up to its end."""
        end = time.monotonic() + seconds
        while (found := re.search(pattern.encode(), self.seen)) is None:
            assert time.monotonic() < end, (pattern, self.seen[-2000:])
            if select.select([self.ours], [], [], 0.1)[0]:
                self.seen += os.read(self.ours, 65536)
        self.seen = self.seen[found.end() :]
        return found

    def ended(self, seconds: float = 60) -> tuple[int, bytes]:
        _, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, err

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stderr:
            self.process.stderr.close()
        os.close(self.ours)


@contextlib.contextmanager
def typing(user: dict[str, str], *arguments: str, **more: Any) -> Iterator[Typist]:
    typist = Typist(user, *arguments, **more)
    try:
        yield typist
    finally:
        typist.close()


#: Expected findings of a program in its own words.
FINDS = "env | sort; pwd; id; ulimit -a | grep -v process; umask; ls -a"


def test_it_finds_what_the_program_finds(programs: Live, program: str, user: dict[str, str]) -> None:
    found = "until tail -n 1 finds | grep -qx -e ----; do sleep 0.1; done; cat finds"
    done = attached(user, program, "--", "sh", "-c", f"{found}; ({FINDS})")
    assert done.returncode == 0 and done.stderr == b""
    theirs, mine = done.stdout.decode().split("\n----\n")
    assert theirs.strip() == mine.strip() and f"CLUSTER_JOB_ID={program}" in mine and "SHOWN=twice" in mine
    if os.geteuid() == 0:
        assert "uid=6119" in mine


def test_a_script_is_typed_and_its_exit_code_returned(program: str, user: dict[str, str]) -> None:
    done = attached(user, program, given=b"echo out; echo err >&2; cat > x << E\nhere\nE\ncat x; exit 7\n")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\nhere\n", b"err\n")
    assert attached(user, program, "--", "no-such-program").returncode in (126, 127)  # of a folder it may not search
    assert attached(user, program, "--", "sh", "-c", "kill -9 $$").returncode == 137
    data = os.urandom(1 << 20)
    copied = attached(user, program, "--", "cat", given=data)
    assert copied.stdout == data and copied.returncode == 0


def test_a_terminal_is_a_terminal(programs: Live, program: str, user: dict[str, str]) -> None:
    with typing(elsewhere(user, programs), program) as typist:
        typist.sees(r"[$#] $")
        typist.type("tty; stty size; echo $TERM\r")
        typist.sees(r"/dev/pts/\d+\r\n33 99\r\nxterm-256color\r\n")
        typist.resize(50, 120)
        os.kill(typist.process.pid, signal.SIGWINCH)
        typist.type("until [ \"$(stty size)\" = '50 120' ]; do sleep 0.1; done; echo it is $(stty size)\r")
        typist.sees(r"it is 50 120\r\n")
        typist.type("sleep 4343.6\r")
        until(lambda: alive("sleep 4343.6"))
        typist.type("\x03")
        typist.type("echo after=$?\r")
        typist.sees(r"after=130\r\n")
        typist.type("\x04")
        assert typist.ended() == (0, b"")
    assert programs.get(f"/api/jobs/{program}")["state"] == "running"


#: Starts processes that hide from their parents and ignore whoever asks them to end; {} tells them apart.
HIDES = (
    "trap '' HUP TERM INT; (setsid sh -c \"trap '' HUP TERM; sleep {0} & sleep {0}\" &) ; nohup sleep {0} >&2 &"
    " sleep {0}"
)


def test_it_ends_with_the_program_and_nothing_survives_however_it_hides(programs: Live, user: dict[str, str]) -> None:
    job = started(programs, "while ! [ -e over ]; do sleep 0.1; done; echo last; exit 3", retries={"max": 0})
    shell = subprocess.Popen(
        cli(job, "--", "sh", "-c", HIDES.format("4343.1")), env=user, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    hidden = until(lambda: len(found := alive("sleep 4343.1")) >= 5 and found)
    Path(f"/proc/{hidden[0]}/cwd/over").touch()
    programs.wait_for(job, "failed")
    assert not alive("sleep 4343.1")
    [unit] = programs.get(f"/api/jobs/{job}/units")["units"]
    assert (unit["exit"], unit["attempts"]) == (3, 1)
    _, err = shell.communicate(timeout=60)
    assert shell.returncode == 125 and b"the program exited, which ended its shell" in err
    assert b"unit 0 is dead" in attached(user, job).stderr


def test_nothing_of_a_cancelled_job_s_shell_lives_when_cancelled_is_said(programs: Live, user: dict[str, str]) -> None:
    job = started(programs, "sleep 600", grace_seconds=0.2)
    with typing(user, job) as typist:
        typist.sees(r"[$#] $")
        typist.type(HIDES.format("4343.2") + "\r")
        until(lambda: len(alive("sleep 4343.2")) >= 5)
        programs.post(f"/api/jobs/{job}/cancel")
        programs.wait_for(job, "cancelled")
        assert not alive("sleep 4343.2")
        assert typist.ended()[0] == 125


def test_who_leaves_takes_what_the_shell_started_along(programs: Live, program: str, user: dict[str, str]) -> None:
    with typing(user, program) as typist:
        typist.sees(r"[$#] $")
        typist.type("sleep 4343.3 & sleep 4343.3\r")
        until(lambda: len(alive("sleep 4343.3")) >= 2)
        typist.type("\r~.")
        code, err = typist.ended()
        assert code == 0 and b"detached; the program keeps running" in err
    until(lambda: not alive("sleep 4343.3"))
    with typing(user, program) as typist:
        typist.sees(r"[$#] $")
        typist.type("sleep 4343.3\r")
        until(lambda: alive("sleep 4343.3"))
        typist.process.send_signal(signal.SIGHUP)
        assert typist.ended()[0] == 129
    until(lambda: not alive("sleep 4343.3"))
    assert programs.get(f"/api/jobs/{program}")["state"] == "running"


def test_a_shell_of_a_unit_that_waits_begins_when_it_runs(programs: Live, user: dict[str, str]) -> None:
    blocking = [started(programs, "sleep 600") for _ in range(2)]
    job = programs.submit("command", {"command": "sleep 60", "count": 1})
    waiting = subprocess.Popen(
        cli(job, "--", "printenv", "CLUSTER_JOB_ID"),
        env=user,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert waiting.stderr and b"unit 0 is waiting; the shell starts when the unit runs" in waiting.stderr.readline()
    for other in blocking:
        programs.post(f"/api/jobs/{other}/cancel")
    out, err = waiting.communicate(timeout=60)
    assert (waiting.returncode, out) == (0, f"{job}\n".encode()), err
    programs.post(f"/api/jobs/{job}/cancel")


def test_a_coordinator_that_is_killed_costs_no_byte(programs: Live, program: str, user: dict[str, str]) -> None:
    shell = subprocess.Popen(
        cli(program, "--", "sh", "-c", "cat; seq 100000; exit 5"),
        env=elsewhere(user, programs),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert shell.stdin and shell.stdout
    shell.stdin.write(b"first\n")
    shell.stdin.flush()
    assert shell.stdout.readline() == b"first\n"
    programs.kill("coordinator-1")
    shell.stdin.write(b"second\n")
    shell.stdin.close()
    time.sleep(0.5)
    programs.start_coordinator(1)
    out = shell.stdout.read()
    assert out == b"second\n" + b"".join(b"%d\n" % number for number in range(1, 100_001))
    assert shell.wait(60) == 5
    shell.stdout.close()
    if shell.stderr:
        shell.stderr.close()


def test_a_flood_that_nobody_reads_stops_and_costs_redis_little(
    programs: Live, program: str, user: dict[str, str]
) -> None:
    shell = subprocess.Popen(
        cli(program, "--", "yes", "4343.4"),
        env=user,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        [pid] = until(lambda: len(found := alive("yes 4343.4")) == 1 and found)
        redis = programs.redis()

        def waiting() -> int:
            keys = redis.scan_iter("ct:attachment_output:*")
            return max((redis.memory_usage(key) or 0 for key in keys), default=0)

        until(lambda: waiting() > 100 << 10)
        time.sleep(1)
        began = sum(psutil.Process(pid).cpu_times()[:2])
        time.sleep(1)
        assert sum(psutil.Process(pid).cpu_times()[:2]) - began < 0.1, "it writes although nobody reads"
        assert waiting() < 256 << 10
        assert shell.stdout and shell.stdout.read(1 << 20) == (b"4343.4\n" * (1 << 18))[: 1 << 20]
    finally:
        shell.kill()
        shell.communicate()
    assert programs.get(f"/api/jobs/{program}")["state"] == "running"


def test_the_audit_log_has_its_begin_and_its_end(programs: Live, program: str, user: dict[str, str]) -> None:
    assert attached(user, program, given=b"exit 9\n").returncode == 9

    def logged() -> list[tuple[str, str, bool]]:
        lines = [json.loads(line) for line in programs.get("/api/audit?limit=50")["lines"]]
        mine = [row for row in lines if row.get("subject") == f"{program}/0"]
        return [(row["action"], row["outcome"], bool(row["token"])) for row in mine]

    mine = until(lambda: len(found := logged()) >= 2 and found)
    assert mine[0] == ("attach", "on runner-0", True) and mine[1][0] == "detach" and mine[1][1].endswith("s, exit 9")


@pytest.mark.parametrize("typed", BESIDE)
def test_a_row_of_the_page_works(program: str, user: dict[str, str], typed: str) -> None:
    words = [program if word == "JOB" else word for word in typed.split()[2:]]
    done = attached(user, *words, given=b"echo here; exit 0\n")
    assert (done.returncode, done.stdout) == (0, b"here\n"), done.stderr


def test_a_runner_that_is_killed_leaves_nothing_and_its_principal_is_told(
    programs: Live, user: dict[str, str], place: Path
) -> None:
    job = started(programs, "sleep 600")
    shell = subprocess.Popen(
        cli(job, "--", "sh", "-c", HIDES.format("4343.5")), env=user, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    until(lambda: len(alive("sleep 4343.5")) >= 5)
    programs.kill("runner-0")
    until(lambda: not alive("sleep 4343.5"))
    programs.start_runner(0, 2, RUNNER_DIR=str(place))
    _, err = shell.communicate(timeout=90)
    assert shell.returncode == 125 and (b"the runner is not responding" in err or b"lost its lease of the unit" in err)
    programs.post(f"/api/jobs/{job}/cancel")
