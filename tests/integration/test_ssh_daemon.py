"""Tests the daemon that keeps SSH connections open between commands, with a real server."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.live import until
from tests.integration.sshd import Sshd
from tests.integration.test_ssh_run import Place, marked


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield a folder with a short path, because the path of a socket has at most 107 characters."""
    folder = Path(tempfile.mkdtemp(prefix="tc-", dir="/tmp"))
    yield folder
    for each in daemons(folder):
        each.kill()
    shutil.rmtree(folder)


@pytest.fixture
def server(home: Path) -> Iterator[Sshd]:
    made = Sshd(home / "host").start()
    yield made
    made.stop()


def folder_of(home: Path) -> Path:
    return home / ".config" / "threads-cluster" / "ssh"


def daemons(home: Path) -> list[psutil.Process]:
    """Return the daemons whose socket is in this home directory."""
    found = psutil.process_iter(["cmdline"])
    return [each for each in found if any(str(folder_of(home)) in word for word in each.info["cmdline"] or ())]


def ran(place: Place, *words: str) -> tuple[int, str, str]:
    return place.ran("-q", "--no-files", "--", *words)


def test_the_next_command_uses_the_open_connection_until_nothing_has_run_for_a_while(home: Path, server: Sshd) -> None:
    place = Place(home, server, persist=60)
    assert ran(place, "sh", "-c", "echo one; echo two >&2; exit 7") == (7, "one\n", "two\n")
    [daemon] = daemons(home)
    [path] = folder_of(home).iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert ran(place, "echo", "again") == (0, "again\n", "")
    assert server.connections() == 1 and daemons(home) == [daemon]
    file = place.folder / "cluster.yaml"
    file.write_text(file.read_text().replace("persist: 60", "persist: 0.1"))
    assert ran(place, "true")[0] == 0 and server.connections() == 2, "a changed configuration needs new connections"
    until(lambda: not daemon.is_running(), 20)
    assert not (home / ".config").exists() or not list((home / ".config").iterdir())


def test_a_host_whose_key_is_not_known_any_more_gets_nothing_over_an_open_connection(home: Path, server: Sshd) -> None:
    place = Place(home, server, persist=20)
    assert ran(place, "true")[0] == 0
    (home / "known_hosts").write_text("")
    code, _, err = ran(place, "true")
    assert code == 125 and "unknown host key" in err
    assert len(daemons(home)) == 1


def test_a_second_command_at_the_same_time_runs_by_itself(home: Path, server: Sshd) -> None:
    place = Place(home, server, persist=20)
    first = place.start(
        "-q", "--no-files", "--", "sh", "-c", f"touch {home}/started; while [ ! -e {home}/go ]; do sleep .1; done"
    )
    until((home / "started").exists, 60)
    assert ran(place, "touch", f"{home}/go")[0] == 0
    first.communicate(timeout=60)
    assert (first.returncode, server.connections(), len(daemons(home))) == (0, 2, 1)


def test_a_daemon_that_does_not_respond_stops_no_command(home: Path, server: Sshd) -> None:
    place = Place(home, server, persist=20)
    assert ran(place, "true")[0] == 0
    [daemon] = daemons(home)
    daemon.suspend()
    assert ran(place, "echo", "still") == (0, "still\n", "") and daemons(home) == [daemon]
    daemon.kill()
    assert ran(place, "echo", "still") == (0, "still\n", "")
    assert server.connections() == 3 and daemons(home) != [daemon]


def test_a_daemon_that_is_killed_during_a_command_ends_the_program(home: Path, server: Sshd) -> None:
    place, mark = Place(home, server, persist=20), f"mark-daemon-{os.getpid()}"
    client = place.start("-q", "--no-files", "--", "sh", "-c", "sleep 600", mark)
    until(lambda: marked(mark), 60)
    [daemon] = daemons(home)
    daemon.kill()
    _, err = client.communicate(timeout=60)
    assert client.returncode == 125 and "exited unexpectedly, so the host stops the program" in err
    until(lambda: not marked(mark), 60)


def test_a_program_ends_with_its_client_and_the_daemon_goes_on(home: Path, server: Sshd) -> None:
    place, mark = Place(home, server, persist=20), f"mark-client-{os.getpid()}"
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        client = place.start("--no-files", "--", "sh", "-c", "sleep 600", mark)
        until(lambda: marked(mark), 60)
        client.send_signal(number)
        client.communicate(timeout=60)
        assert client.returncode == code
        until(lambda: not marked(mark), 60)
    assert ran(place, "echo", "next")[1] == "next\n" and len(daemons(home)) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_other_users_cannot_use_the_connections(home: Path, server: Sshd) -> None:
    place = Place(home, server, persist=20)
    assert ran(place, "true")[0] == 0
    [path] = folder_of(home).iterdir()
    program = (
        "import os, socket; os.setuid(65534); client = socket.socket(socket.AF_UNIX); "
        f"client.connect({str(path)!r}); print(client.recv(1))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1 and "PermissionError" in done.stderr
    for each in (*path.parents[:4], path):  # Even if the folder were accessible, the daemon would turn the user away
        each.chmod(0o777)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "b''\n", done.stderr
    assert ran(place, "true")[0] == 0 and server.connections() == 2, "a folder that others can access is not used"


#: Program that connects its stdin and stdout to an address, like a ProxyCommand.
_PROXY = """\
import os, socket, sys, threading
there = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def send():
    while data := os.read(0, 65536): there.sendall(data)
    os._exit(0)
threading.Thread(target=send, daemon=True).start()
while data := there.recv(65536): os.write(1, data)
"""


def test_a_proxy_command_keeps_the_output_of_no_client_open(home: Path, server: Sshd) -> None:
    (home / "proxy.py").write_text(_PROXY)
    place = Place(home, server, persist=60, proxy_command=f"{sys.executable} {home}/proxy.py %h %p")
    client = place.start("-q", "--no-files", "--", "echo", "hi")
    assert client.communicate(timeout=45) == ("hi\n", "")
    assert ran(place, "true")[0] == 0 and len(daemons(home)) == 1


def test_a_silent_client_blocks_no_other(home: Path, server: Sshd) -> None:
    place = Place(home, server, persist=20)
    assert ran(place, "true")[0] == 0
    [path] = folder_of(home).iterdir()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(path))
        assert silent.recv(1) == b"!"
        assert ran(place, "echo", "other") == (0, "other\n", "")
