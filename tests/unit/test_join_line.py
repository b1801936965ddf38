"""Tests the line that `invite` prints: it installs exactly the cluster's wheel, and nothing from any other server."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import signal
import ssl
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from deploy.local.joining import installation, installer, inviting
from deploy.local.joining.invitation import Invitation
from jobs import VERSION
from tests import small_disk
from tests.integration.test_joining import files
from tests.ports import free_port

TOKEN = f"tc_{'a' * 10}_{'b' * 43}"
#: In place of the script that joins: writes its arguments, its environment and its stdin to a file.
SCRIPT = """#!/bin/bash
read -r token
printf '{"arguments": "%s", "home": "%s", "token": "%s"}' "$*" "$CLUSTER_HOME" "$token" >"$JOINED"
"""


class Cluster:
    """HTTPS server with the installer and the wheel of a cluster. A test can change what it sends."""

    def __init__(self, folder: Path, patches: pytest.MonkeyPatch) -> None:
        self.fingerprint = files(folder / "tls", patches)
        self.wheel = wheel(folder)
        installation.publish(self.wheel, folder / "served")
        self.paths = {"/api/authority": (folder / "tls/authority.pem").read_bytes()}
        self.paths |= {f"/join/{path.name}": path.read_bytes() for path in (folder / "served").glob("*.whl")}
        self.paths["/join"] = (folder / "served/join.py").read_bytes()
        self.digest = hashlib.sha256(self.paths["/join"]).hexdigest()
        self.requests: list[str] = []
        self.before_response: Callable[[BaseHTTPRequestHandler], object] = lambda _: None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "tls/server.pem", folder / "tls/server.key")
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def wheel_path(self) -> str:
        return f"/join/{self.wheel.name}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                cluster.requests.append(self.path)
                content = cluster.paths.get(self.path)
                if self.path == cluster.wheel_path:
                    cluster.before_response(self)
                self.send_response(404 if content is None else 200)
                self.end_headers()
                self.wfile.write(b"another version" if content is None else content)

            def log_message(self, *_: Any) -> None: ...

        return Handler


def wheel(folder: Path) -> Path:
    """Return a small wheel with a tree like the cluster's."""
    folder.joinpath("served").mkdir(exist_ok=True)
    tree, path = io.BytesIO(), folder / "threads_cluster-1.2.3-py3-none-any.whl"
    with tarfile.open(fileobj=tree, mode="w") as archive:
        for name, content in (("deploy-cluster.sh", SCRIPT.encode()), ("jobs/large", os.urandom(3 << 20))):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            archive.addfile(member, io.BytesIO(content))
    with zipfile.ZipFile(path, "w") as archive_of_wheel:
        archive_of_wheel.writestr(installer.TREE, tree.getvalue())
    return path


class Machine:
    """A machine with nothing but Python, whose folders are below `folder`."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.home, self.joined = cluster, folder / "data/threads-cluster", folder / "joined.json"
        self.environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "XDG_DATA_HOME": str(folder / "data"),
            "JOINED": str(self.joined),
            "https_proxy": "http://127.0.0.1:1",
        }

    def command(self, *options: str, port: int = 0, digest: str = "", fingerprint: str = "") -> list[str]:
        host = Invitation(
            host="127.0.0.1",
            port=port or self.cluster.server.server_port,
            fingerprint=fingerprint or self.cluster.fingerprint,
            token=TOKEN,
        )
        line = inviting.format_line(host, digest or self.cluster.digest, options)
        assert TOKEN not in line and "\n" not in line
        return ["bash", "-c", line.replace("python3", sys.executable, 1)]

    def run(self, *options: str, **changed: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*options, **changed),
            input=f"{TOKEN}\n",
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def refused(self, *words: str, **changed: Any) -> None:
        """Run the line, which must print these words and install nothing."""
        done = self.run(**changed)
        assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
        assert all(word in done.stderr for word in ("error: ", *words)), done.stderr
        assert not self.joined.exists() and not self.installed(), "an incomplete release remains"

    def installed(self) -> list[str]:
        return sorted(path.name for path in (self.home / "releases").glob("*") if path.name != ".lock")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = Cluster(tmp_path, monkeypatch)
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def machine(cluster: Cluster, tmp_path: Path) -> Machine:
    return Machine(cluster, tmp_path / "machine")


def test_the_line_installs_the_wheel_and_joins_with_the_token_from_stdin(cluster: Cluster, machine: Machine) -> None:
    done = machine.run("--runner", "--name", "attic")
    assert done.returncode == 0, done.stderr
    assert json.loads(machine.joined.read_text()) == {
        "arguments": f"join 127.0.0.1:{cluster.server.server_port}/{cluster.fingerprint} --runner --name attic",
        "home": str(machine.home),
        "token": TOKEN,
    }
    command = (machine.home.parents[1] / ".local/bin/cluster").read_text()
    assert f"CLUSTER_HOME={machine.home}\n" in command and "Installed " in done.stderr
    [release] = machine.installed()
    assert release.startswith(f"{VERSION}-") and (machine.home / "current").resolve().name == release
    assert machine.run().returncode == 0 and machine.installed() == [release]
    assert cluster.requests.count(cluster.wheel_path) == 1, "an installed release is not downloaded again"


def test_nothing_of_another_cluster_is_installed(
    cluster: Cluster, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.refused("certificate authority", "does not match this line", fingerprint="0" * 64)
    other = files(tmp_path / "other", monkeypatch)
    assert other != cluster.fingerprint
    own = cluster.paths["/api/authority"]
    # The server's certificate is signed by an authority that follows the one of the invitation.
    cluster.paths["/api/authority"] = (tmp_path / "other/authority.pem").read_bytes() + own
    machine.refused(fingerprint=other)
    cluster.paths["/api/authority"] = (tmp_path / "other/authority.pem").read_bytes()
    machine.refused("certificate verify failed", fingerprint=other)
    cluster.paths["/api/authority"] = b"\xff no certificate"
    machine.refused("cannot join 127.0.0.1")
    del cluster.paths["/api/authority"]
    machine.refused("404")
    assert "/join" not in cluster.requests, "without the authority nothing was downloaded"


def test_another_installer_is_not_run(cluster: Cluster, machine: Machine) -> None:
    cluster.paths["/join"] += b"\n"
    machine.refused("the installer at", "get a new line")
    cluster.paths["/join"] = b"#" * (1 << 20)
    machine.refused("the installer at")


def test_another_wheel_is_not_unpacked(cluster: Cluster, machine: Machine) -> None:
    content = cluster.paths.pop(cluster.wheel_path)
    machine.refused("returned HTTP 404: another version", "run the line again")
    for lie in (content[:-1], content[:-1] + bytes([content[-1] ^ 1]), content * 3, b""):
        cluster.paths[cluster.wheel_path] = lie
        machine.refused("that are not the cluster's wheel")


def test_a_server_that_sends_nothing_is_left(cluster: Cluster, machine: Machine) -> None:
    end = threading.Event()
    cluster.before_response = lambda _: end.wait(30)
    text = cluster.paths["/join"].replace(b"DOWNLOAD_SECONDS = 30,", b"DOWNLOAD_SECONDS = 0.5,")
    assert text != cluster.paths["/join"]
    cluster.paths["/join"], cluster.digest = text, hashlib.sha256(text).hexdigest()
    machine.refused("timed out")
    end.set()


def test_an_interrupted_installation_starts_again(cluster: Cluster, machine: Machine) -> None:
    for number, words in ((signal.SIGINT, "error: interrupted"), (signal.SIGKILL, "")):
        reached, end = threading.Event(), threading.Event()

        def wait(_: BaseHTTPRequestHandler, reached: threading.Event = reached, end: threading.Event = end) -> None:
            reached.set()
            end.wait(30)

        cluster.before_response = wait
        command = machine.command()
        command[-1] = f"exec {command[-1]}"
        line = subprocess.Popen(command, env=machine.environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert reached.wait(30)
        line.send_signal(number)
        assert words in line.communicate(timeout=30)[1].decode()
        end.set()
        assert not [name for name in machine.installed() if not name.startswith(".new-")]
    cluster.before_response = lambda _: None
    assert machine.run().returncode == 0 and machine.joined.exists()


def test_a_full_disk_is_named_and_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    with small_disk.mounted(tmp_path / "disk", 4) as disk:
        machine = Machine(cluster, disk)
        machine.refused("No space left on device", "run the line again")


def test_a_machine_without_a_route_or_bash_is_told_what_is_missing(machine: Machine, tmp_path: Path) -> None:
    machine.refused("error: cannot join 127.0.0.1", "Connection refused", port=free_port())
    bash = subprocess.run(["which", "bash"], capture_output=True, text=True, check=True).stdout.strip()
    machine.environment["PATH"] = str(tmp_path)
    done = subprocess.run(
        [bash, *machine.command()[1:]], env=machine.environment, capture_output=True, text=True, input=""
    )
    assert done.returncode == 1 and "this machine has no bash" in done.stderr, done.stderr


def test_old_pythons_can_run_the_line_and_the_installer() -> None:
    """environment.sh then finds a newer Python, or names the package to install."""
    for program in (inviting.LINE, Path(installer.__file__).read_text()):
        ast.parse(program, feature_version=(3, 6))


def test_a_new_version_replaces_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = tmp_path / "served"
    served.mkdir()
    (served / "threads_cluster-0.0.1-py3-none-any.whl").write_bytes(b"old")
    (served / "join.py").write_text("old")
    monkeypatch.setattr(installation, "FOLDER", served)
    installation.remove()
    assert not (served / "join.py").exists(), "an invitation must not name the old installer"
    monkeypatch.setattr("deploy.release.wheel.build", wheel)
    installation.write()
    assert sorted(path.name for path in served.iterdir()) == ["join.py", "threads_cluster-1.2.3-py3-none-any.whl"]
