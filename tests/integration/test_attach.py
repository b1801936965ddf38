"""`cluster attach` on a real cluster: a shell beside a running program, at a terminal and between pipes."""

from __future__ import annotations

import contextlib
import fcntl
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

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="runners need Linux")

TOKEN = "t" * 40


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="attach-") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory, place: Path) -> Iterator[Live]:
    """Two coordinators, and a runner with two slots at the first one."""
    folder = tmp_path_factory.mktemp("programs")
    users = {"RUNNER_UIDS": "61196-61197"} if os.geteuid() == 0 else {}
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
    """A job whose program writes what it finds, and runs on."""
    job = started(programs, f"touch finds; ({FINDS}) > finds; sleep 600", env={"SHOWN": "twice"})
    yield job
    programs.post(f"/api/jobs/{job}/cancel")


def started(live: Live, text: str, **more: Any) -> str:
    job = live.submit("command", {"command": text, "count": 1, **more})
    until(lambda: live.get(f"/api/jobs/{job}/units")["units"][0]["state"] == "running", 60)
    return job


def elsewhere(user: dict[str, str], live: Live) -> dict[str, str]:
    """The same user at the other coordinator."""
    return {**user, "CLUSTER_URL": live.url(1)}


def cli(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "threads_cluster", "attach", *arguments]


def attached(
    user: dict[str, str], *arguments: str, given: bytes = b"", seconds: float = 60
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(cli(*arguments), env=user, input=given, capture_output=True, timeout=seconds)


def alive(part: str) -> list[int]:
    found = []
    for each in psutil.process_iter(["cmdline", "status"]):
        if part in " ".join(each.info["cmdline"] or ()) and each.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(each.pid)
    return found


class Typist:
    """Somebody at a terminal who runs `cluster attach`."""

    def __init__(self, user: dict[str, str], *arguments: str, rows: int = 33, columns: int = 99) -> None:
        self.ours, theirs = pty.openpty()
        self.resize(rows, columns)
        self.process = subprocess.Popen(
            cli(*arguments), env={**user, "TERM": "xterm-256color"}, stdin=theirs, stdout=theirs,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.seen = b""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def sees(self, pattern: str, seconds: float = 30) -> re.Match[bytes]:
        """Read on until a pattern is there, and forget what is before its end."""
        end = time.monotonic() + seconds
        while (found := re.search(pattern.encode(), self.seen)) is None:
            assert time.monotonic() < end, (pattern, self.seen[-2000:])
            if select.select([self.ours], [], [], 0.1)[0]:
                self.seen += os.read(self.ours, 65536)
        self.seen = self.seen[found.end() :]
        return found

    def ended(self, seconds: float = 30) -> tuple[int, bytes]:
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


#: What a program finds, in words of its own.
FINDS = "env | sort; pwd; id; ulimit -a | grep -v process; umask; ls -a"


def test_it_finds_what_the_program_finds(programs: Live, program: str, user: dict[str, str]) -> None:
    done = attached(user, program, "--", "sh", "-c", f"cat finds; echo; echo ----; ({FINDS})")
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
    data = os.urandom(3 << 20)
    copied = attached(user, program, "--", "cat", given=data)
    assert copied.stdout == data and copied.returncode == 0


def test_a_terminal_is_a_terminal(programs: Live, program: str, user: dict[str, str]) -> None:
    with typing(elsewhere(user, programs), program) as typist:
        typist.sees(r"[$#] $")
        typist.type("tty; stty size; echo $TERM\r")
        typist.sees(r"/dev/pts/\d+\r\n33 99\r\nxterm-256color\r\n")
        typist.resize(50, 120)
        os.kill(typist.process.pid, signal.SIGWINCH)
        time.sleep(0.5)
        typist.type("stty size\r")
        typist.sees(r"50 120\r\n")
        typist.type("sleep 300\r")
        time.sleep(0.5)
        typist.type("\x03")
        typist.type("echo after=$?\r")
        typist.sees(r"after=130\r\n")
        typist.type("\x04")
        assert typist.ended() == (0, b"")
    assert programs.get(f"/api/jobs/{program}")["state"] == "running"
