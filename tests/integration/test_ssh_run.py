"""Tests `cluster run --on ssh` with real servers: transferred files, output, and that no process remains."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.live import TOP, until
from tests.integration.sshd import Sshd
from threads_cluster.cli import main as cli
from threads_cluster.client import trees
from threads_cluster.ssh import guard
from threads_cluster.ssh.configuration import ClusterConfig
from threads_cluster.ssh.pool import Pool
from threads_cluster.ssh.refusals import HostTrouble
from threads_cluster.ssh.remote import Program, Remote
from threads_cluster.ssh.sync import Sender, Synced


class Place:
    """A folder with a cluster.yaml for one host."""

    def __init__(self, folder: Path, server: Sshd, *, timeout: float = 60, persist: float = 0, **node: str) -> None:
        self.folder = folder / "project"
        self.folder.mkdir(parents=True)
        self.there = folder / "there"
        known = folder / "known_hosts"
        known.write_text(server.known)
        (self.folder / "cluster.yaml").write_text(
            f"remote_root: {self.there}\nssh: {{known_hosts: {known}, timeout: {timeout}, persist: {persist}}}\n"
            f"nodes:\n{server.node('gpu1', python=sys.executable, **node)}"
        )

    @property
    def config(self) -> ClusterConfig:
        return ClusterConfig.from_yaml(self.folder / "cluster.yaml")

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start `cluster run --on ssh` on the host."""
        environment = {"PYTHONPATH": str(TOP), "HOME": str(self.folder.parent), "PATH": "/usr/bin:/bin"}
        command = [sys.executable, "-m", "threads_cluster", "run", "--on", "ssh", *words]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ran(self, *words: str) -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=200)
        return process.returncode, out, err

    def synced(self) -> Synced:
        """Transfer the folder."""

        async def send() -> Synced:
            pool = Pool(self.config)
            try:
                tree = trees.scan(self.folder)
                return await Sender(pool, pool.config.nodes[0], tree, lambda *_: None).send()
            finally:
                await pool.close()

        return asyncio.run(send())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    made = Sshd(tmp_path_factory.mktemp("ssh_run") / "host").start()
    yield made
    made.stop()


def test_a_program_runs_there_as_if_it_ran_here(tmp_path: Path, server: Sshd) -> None:
    place = Place(tmp_path, server)
    (place.folder / "hello.py").write_text("import os, sys; print(os.environ['WORD']); sys.exit(7)")
    code, out, err = place.ran("--env", "WORD=of secrets", "--", "sh", "-c", "echo oops >&2; exec python3 hello.py")
    assert (code, out) == (7, "of secrets\n")
    selected, syncing, sent, running, oops = err.splitlines()
    assert (selected, running, oops) == ("[INFO] Selected gpu1", "[INFO] Running command on gpu1", "oops")
    assert syncing == f"[INFO] Syncing to gpu1:{place.there}/project" and sent.startswith("[INFO] Sent 2 of 2 files, ")
    code, out, err = place.ran("-q", "--shell", "echo $PWD; kill -KILL $$")
    assert (code, out, err) == (137, f"{place.there}/project\n", "")
    code, _, err = place.ran("--", "no-such-program")
    assert code == 127 and "Sent 0 of 2 files, 0 bytes\n" in err and "no-such-program" in err


def content(folder: Path) -> dict[str, Any]:
    """Return the files and links below a folder."""
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else (path.read_bytes(), path.stat().st_mode)
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def test_only_what_changed_is_sent(tmp_path: Path, server: Sshd) -> None:
    place = Place(tmp_path, server)
    names = ["-v", "a b", "ü", "new\nline", "deep/er/file", "--delete"]
    for name in names:
        path = place.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        path.chmod(0o644)
    (place.folder / "-v").chmod(0o755)
    (place.folder / "cluster.yaml").chmod(0o644)
    (place.folder / "link").symlink_to("deep/er/file")
    (place.folder / ".git").mkdir()
    (place.folder / ".git" / "kept").write_text("out")
    there = place.there / "project"
    first = place.synced()
    assert (first.files, first.sent_files) == (7, 7) and first.sent_bytes > 0
    (place.folder / ".git" / "kept").unlink()
    assert content(there) == content(place.folder)
    assert place.synced().sent_files == 0, "nothing changed"
    (place.folder / "a b").write_text("b a")  # as long as before
    (place.folder / "deep/er/file").unlink()
    (place.folder / "link").unlink()
    (place.folder / "deep/er").rmdir()
    (place.folder / "deep/er").write_text("now a file")
    (there / "ü").write_text("changed there")
    (there / "made there").write_text("stays")
    second = place.synced()
    assert (second.sent_files, second.removed) == (3, 2)
    assert content(there) == content(place.folder) | {"made there": content(there)["made there"]}
    (place.there / ".cluster-sent" / "project.json").write_text('{"from": "broken')
    assert place.synced().sent_files == 7, "a list that cannot be read makes all be sent"
    assert not list(place.there.rglob("*.part"))


def test_another_folder_of_the_same_name_is_not_written_over(tmp_path: Path, server: Sshd) -> None:
    one, other = Place(tmp_path / "one", server), Place(tmp_path / "other", server)
    one.synced()
    text = (other.folder / "cluster.yaml").read_text()
    (other.folder / "cluster.yaml").write_text(text.replace(str(other.there), str(one.there)))
    with pytest.raises(HostTrouble, match=r"is a copy of a different folder: .*/one/project"):
        other.synced()


def test_a_disk_that_takes_no_more_is_said_to_be_so(tmp_path: Path) -> None:
    server = Sshd(tmp_path / "host").start()
    place = Place(tmp_path, server)
    (place.folder / "big").write_bytes(os.urandom(300_000))
    # No file there becomes longer than that, as on a full disk.
    psutil.Process(server.processes()[0].pid).rlimit(psutil.RLIMIT_FSIZE, (200_000, 200_000))
    try:
        with pytest.raises(HostTrouble, match="cannot write "):
            place.synced()
    finally:
        server.stop()
    assert not (place.there / "project" / "big").exists() and not list(place.there.rglob("*.part"))


def marked(mark: str) -> list[psutil.Process]:
    """Return the processes of a program whose command contains this word, without the local ones that started it."""
    found = []
    for each in psutil.process_iter(["cmdline"]):
        line = each.info["cmdline"] or []
        if mark in line and "threads_cluster" not in line:
            found.append(each)
    return found


#: Program that ignores SIGTERM, and starts a child in its own session that does so, too.
_STUBBORN = (
    "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "if os.fork() == 0: os.setsid()\n"
    "else: os.write(1, b'runs\\n')\n"
    "time.sleep(600)"
)


def test_nothing_is_left_after_ctrl_c(tmp_path: Path, server: Sshd) -> None:
    place, mark, number = Place(tmp_path, server), f"mark-ctrl-c-{os.getpid()}", signal.SIGINT
    process = place.start("--no-files", "--", sys.executable, "-c", _STUBBORN, mark)
    until(lambda: len(marked(mark)) == 2, 60)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number and "the program has exited on gpu1" in err, err
    assert not marked(mark)


def test_nothing_is_left_where_the_client_was_killed(tmp_path: Path, server: Sshd) -> None:
    place, mark = Place(tmp_path, server), f"mark-kill-{os.getpid()}"
    process = place.start("--no-files", "--", sys.executable, "-c", _STUBBORN, mark)
    until(lambda: len(marked(mark)) == 2, 60)
    process.kill()
    process.communicate()
    until(lambda: not marked(mark), 60)


def test_a_program_whose_client_falls_silent_is_ended(tmp_path: Path, server: Sshd) -> None:
    """A disconnected host can take hours to notice the end of the connection."""
    place, mark = Place(tmp_path, server, timeout=60), f"mark-silent-{os.getpid()}"

    async def run() -> None:
        pool = Pool(place.config)
        words = [sys.executable, "-c", _STUBBORN, mark]
        remote = Remote(pool, pool.config.nodes[0], Program(words=words, folder=str(tmp_path)))
        remote.silent_seconds = 6.0
        await remote.start()
        assert await remote.piece() == ("stdout", b"runs\n") and len(marked(mark)) == 2
        remote.tasks[1].cancel()
        while await remote.piece() is not None:
            continue
        assert await remote.code() == 128 + signal.SIGKILL
        await pool.close()

    asyncio.run(run())
    assert not marked(mark)


#: Program that fails if it runs twice at a time; its first start never exits.
_ONCE = """\
import os, pathlib, sys, time
log = pathlib.Path(sys.argv[1])
before = log.read_text().split() if log.exists() else []
if any(pathlib.Path(f"/proc/{pid}").exists() for pid in before):
    sys.exit("it runs twice")
log.write_text(" ".join([*before, str(os.getpid())]))
print("start", len(before) + 1, flush=True)
time.sleep(0 if before else 600)
"""


def test_a_program_is_started_again_where_its_host_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    server, mark = Sshd(tmp_path / "host").start(), f"mark-died-{os.getpid()}"
    place, log, back = Place(tmp_path, server), tmp_path / "log", threading.Event()

    def die() -> None:
        until(lambda: log.exists() and log.read_text(), 120)
        server.die()
        server.start()
        back.set()

    def ended(_remote: Remote) -> float:
        until(lambda: not marked(mark), 120)
        assert back.wait(120)
        return 0.0

    dying = threading.Thread(target=die)
    # The host notices at once that its server died; no time has to pass.
    monkeypatch.setattr(Remote, "quiet_seconds", ended)
    monkeypatch.chdir(place.folder)
    dying.start()
    try:
        with pytest.raises(SystemExit) as over:
            cli.main(["run", "--on", "ssh", "--no-files", "--", sys.executable, "-c", _ONCE, str(log), mark])
        dying.join()
    finally:
        server.stop()
    out, err = capfd.readouterr()
    assert over.value.code == 0 and out.endswith("start 2\n"), (out, err)
    assert "lost the connection while the program was running; retrying in" in err


def test_who_lost_a_host_waits_until_it_has_ended_the_program(tmp_path: Path, server: Sshd) -> None:
    place = Place(tmp_path, server, timeout=20)
    remote = Remote(Pool(place.config), place.config.nodes[0], Program(words=["true"], folder="/"))
    assert remote.silent_seconds == 20 and 20 + guard.GRACE_SECONDS < remote.quiet_seconds() <= 24


def test_much_output_arrives_whole(tmp_path: Path, server: Sshd) -> None:
    place = Place(tmp_path, server)
    code, out, _ = place.ran("-q", "--no-files", "--", "sh", "-c", "yes abcdefg | head -c 20000000")
    assert code == 0 and out == "abcdefg\n" * 2_500_000


def test_who_reads_the_output_may_leave(tmp_path: Path, server: Sshd) -> None:
    place, mark = Place(tmp_path, server), f"mark-pipe-{os.getpid()}"
    with place.start("-q", "--no-files", "--", "sh", "-c", "yes", mark) as process:
        assert process.stdout and process.stdout.readline() == "y\n"
        process.stdout.close()
        assert process.wait(120) == 141
    until(lambda: not marked(mark), 60)


def test_a_program_that_takes_too_long_is_ended(tmp_path: Path, server: Sshd) -> None:
    assert Place(tmp_path, server).ran("-q", "--no-files", "--timeout", "0.5", "--", "sleep", "600") == (124, "", "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--on", "k8s", "--", "true"], "must be ssh"),
        (["--gpus", "1", "--", "true"], "--gpus needs a runner"),
        (["--output", "x", "--", "true"], "--output needs a runner"),
        (["--retries", "2", "--", "true"], "--retries needs a runner"),
        (["--secret", "x", "--", "true"], "--secret needs a runner"),
        (["--host", "nowhere", "--", "true"], "no node of cluster.yaml has the name nowhere; the nodes are gpu1"),
        (["--label", "a100", "--", "true"], "no node of cluster.yaml has the labels a100"),
        ([], "needs a program to run"),
        (["--env", "=x", "--", "true"], "must have the form NAME=VALUE"),
    ],
)
def test_what_means_nothing_there_is_refused(
    tmp_path: Path, server: Sshd, words: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(Place(tmp_path, server).folder)
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "--on", "ssh", *words])
    assert ended.value.code == 125 and says in capsys.readouterr().err


def test_without_a_file_of_hosts_it_says_how_to_write_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "--on", "ssh", "--", "true"])
    said = capsys.readouterr().err
    assert ended.value.code == 125 and "this folder has no cluster.yaml" in said and "nodes: [gpu1, gpu2]" in said
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "--on", "ssh", "--config", "config/cluster_config.yaml", "--", "true"])
    assert "config/cluster_config.yaml: cannot be read" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "--config", "hosts.yaml", "--", "true"])
    assert "needs --on ssh" in capsys.readouterr().err
