"""Tests a machine that has joined a cluster and follows its release, with a server that plays the cluster."""

from __future__ import annotations

import hashlib
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deploy.local import program_logs
from deploy.local.joining import following, installation, installer
from deploy.local.joining.following import Follower, Offer
from deploy.local.joining.membership import CannotReach, Membership
from tests.integration.live import until

WHEEL = b"a wheel"
NAME = "threads_cluster-9.9.0-py3-none-any.whl"


class Cluster(ThreadingHTTPServer):
    """Cluster that serves an installer and a wheel. Its `answers` are bodies by path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, bytes] = {}
        self.joined = Membership(
            url=f"http://127.0.0.1:{self.server_port}",
            name="host",
            workers=["host-cpu-1"],
            lanes=0,
            labels="",
            pinned=False,
        )

    def offer(self, release: str, wheel: bytes = WHEEL, sent: bytes | None = None) -> None:
        constants = (NAME, hashlib.sha256(wheel).hexdigest(), len(wheel), release)
        self.answers["/join"] = f"x = 1\nWHEEL, SHA256, SIZE, RELEASE = {constants!r}\n".encode()
        self.answers[f"/join/{NAME}"] = wheel if sent is None else sent


class _Handler(BaseHTTPRequestHandler):
    server: Cluster

    def do_GET(self) -> None:
        body = self.server.answers.get(self.path)
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    served = Cluster()
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    monkeypatch.setattr(following, "FOLDER", tmp_path / "following")
    monkeypatch.setattr(following, "LOG", tmp_path / "update.log")
    monkeypatch.setattr(following, "STATE_FOLDER", tmp_path)
    monkeypatch.setattr(following, "CHECK_SECONDS", -1.0)
    selected = SimpleNamespace(folder=tmp_path / "releases" / "1.0.0-aaaaaaaaaaaa")
    monkeypatch.setattr(following, "release_file", SimpleNamespace(read=lambda: selected))
    yield served
    served.shutdown()
    thread.join()
    served.server_close()


def update_by(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Replace the command that updates the machine by a Python program."""
    monkeypatch.setattr(following, "update_command", lambda wheel: [sys.executable, "-c", code, str(wheel)])


def follow(follower: Follower, capsys: pytest.CaptureFixture[str], words: str) -> str:
    """Check until these words were printed, and return everything that was printed."""
    said: list[str] = []

    def is_said() -> bool:
        follower.check()
        said.append(capsys.readouterr().err)
        return words in "".join(said)

    until(is_said)
    return "".join(said)


def test_the_constants_of_an_installer_are_an_offer(tmp_path: Path) -> None:
    wheel = tmp_path / NAME
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(installer.TREE, "a tree")
    offer = following.parse(installation.render(wheel))
    content = wheel.read_bytes()
    assert offer == Offer(
        wheel=NAME,
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
        release=installation.release_name(wheel),
    )
    assert following.parse(Path(str(installer.__file__)).read_text()) is None, "an installer without a wheel"


@pytest.mark.parametrize(
    "constants",
    [
        "",
        "WHEEL, SHA256, SIZE, RELEASE = (__import__('os'), '', 1, '')",
        "WHEEL, SHA256, SIZE, RELEASE = ('../x.whl', '', 1, '')",
        "WHEEL, SHA256, SIZE, RELEASE = ('x.whl', '', 0, '')",
        "WHEEL, SHA256, SIZE, RELEASE = ('x.whl', '', 1 << 40, '')",
        "WHEEL, SHA256, SIZE, RELEASE = ('x.whl', '', 2000000000, '')",
        "WHEEL, SHA256, SIZE, RELEASE = ('x.whl', '', 1)",
        "WHEEL, SHA256, SIZE, RELEASE = ('x.whl', 1, 1, '')",
    ],
)
def test_anything_else_is_no_offer(constants: str) -> None:
    assert following.parse(constants) is None


def test_a_machine_updates_to_the_release_of_its_cluster(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    update_by(monkeypatch, f"import shutil, sys; shutil.copy(sys.argv[1], {str(tmp_path / 'used')!r})")
    cluster.offer("1.1.0-bbbbbbbbbbbb")
    follow(Follower(cluster.joined), capsys, "now runs the release 1.1.0-bbbbbbbbbbbb")
    assert (tmp_path / "used").read_bytes() == WHEEL and not (tmp_path / "following").exists()


def test_the_release_that_it_runs_is_not_installed_again(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    follower = Follower(cluster.joined)
    for release in ("", "1.0.0-aaaaaaaaaaaa"):
        if release:
            cluster.offer(release)
        follower.check()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("sent", [b"another", b"a whee", b"a wheel and more"])
def test_a_wheel_with_another_digest_is_never_used(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sent: bytes
) -> None:
    update_by(monkeypatch, "raise AssertionError")
    cluster.offer("1.1.0-bbbbbbbbbbbb", sent=sent)
    follower = Follower(cluster.joined)
    follow(follower, capsys, "cannot update this machine")
    follower.check()
    assert capsys.readouterr().err == "", "it is tried again much later"


def test_a_failed_update_names_its_log_and_is_tried_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(following, "RETRY_SECONDS", -1.0)
    monkeypatch.setattr(program_logs, "relative_path", Path.as_posix)
    update_by(monkeypatch, "import sys; print('no space', file=sys.stderr); sys.exit(3)")
    cluster.offer("1.1.0-bbbbbbbbbbbb")
    follower = Follower(cluster.joined)
    assert "exit code 3; see" in follow(follower, capsys, "exit code 3")
    follow(follower, capsys, "updating this machine")
    follower.stop()
    assert "no space" in following.LOG.read_text()


def test_a_cluster_that_is_away_is_no_failed_update(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.shutdown()
    cluster.server_close()
    Follower(cluster.joined).check()
    assert capsys.readouterr().err == ""
    with pytest.raises(CannotReach):
        following.find_offer(cluster.joined)


def test_a_checkout_is_not_updated(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(following, "CHECKOUT", tmp_path)
    cluster.offer("1.1.0-bbbbbbbbbbbb")
    Follower(cluster.joined).check()
    assert capsys.readouterr().err == ""


def test_an_update_is_stopped_with_the_workers(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    update_by(monkeypatch, "import time; time.sleep(60)")
    cluster.offer("1.1.0-bbbbbbbbbbbb")
    follower, began = Follower(cluster.joined), time.monotonic()
    follow(follower, capsys, "updating this machine")
    follower.stop()
    assert time.monotonic() - began < 50
