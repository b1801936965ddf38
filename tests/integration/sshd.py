"""Real SSH servers for tests on loopback, each with its own key, port and configuration."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from getpass import getuser
from pathlib import Path

import psutil
import pytest

from tests.integration.live import until
from tests.ports import free_port

#: Path of sshd, which is outside the PATH of users.
_SBIN = "/usr/sbin"


def keygen(path: Path) -> str:
    """Create a key pair and return the public key."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)], check=True)
    return path.with_suffix(".pub").read_text().strip()


class Sshd:
    """One host: a server that accepts the key in its folder, for the user who runs the tests."""

    def __init__(self, folder: Path, *, address: str = "127.0.0.1", **settings: str) -> None:
        self.binary = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:{_SBIN}")
        if not self.binary:
            pytest.skip("sshd: not installed (Debian: apt-get install openssh-server)")
        self.folder, self.address, self.port = folder, address, free_port()
        folder.mkdir(parents=True, exist_ok=True)
        #: Private key that the server accepts.
        self.key = folder / "user_key"
        self.public = keygen(folder / "host_key")
        (folder / "authorized_keys").write_text(f"{keygen(self.key)}\n")
        self._configure(settings)
        self._process: subprocess.Popen[bytes] | None = None

    def _configure(self, settings: Mapping[str, str]) -> None:
        lines = {
            "Port": str(self.port),
            "ListenAddress": self.address,
            "HostKey": str(self.folder / "host_key"),
            "AuthorizedKeysFile": str(self.folder / "authorized_keys"),
            "PidFile": "none",
            "UsePAM": "no",
            "StrictModes": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
            "Subsystem": "sftp internal-sftp",
            "PrintMotd": "no",
            "MaxStartups": "100",
            **settings,
        }
        (self.folder / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in lines.items()))

    def start(self) -> Sshd:
        """Start the server and return when it answers."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        assert self.binary
        with (self.folder / "sshd.log").open("ab") as log:
            command = [self.binary, "-D", "-e", "-f", str(self.folder / "sshd_config")]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(self._answers, 60)
        return self

    def _answers(self) -> bool:
        assert self._process and self._process.poll() is None, (self.folder / "sshd.log").read_text()
        try:
            with socket.create_connection((self.address, self.port), 1) as probe:
                probe.settimeout(5)
                return probe.recv(4) == b"SSH-"
        except OSError:
            return False

    def processes(self) -> list[psutil.Process]:
        """Return the server and all its descendants: its connections and their commands."""
        if self._process is None or self._process.poll() is not None:
            return []
        server = psutil.Process(self._process.pid)
        return [server, *server.children(recursive=True)]

    def connections(self) -> int:
        """Return the number of connections accepted so far."""
        return (self.folder / "sshd.log").read_text().count("Accepted publickey")

    def die(self) -> None:
        """Kill the server and its connections, as in a power failure. Their commands run until they notice."""
        servers = [each for each in self.processes() if each.name() == "sshd"]
        for each in servers:
            each.send_signal(signal.SIGKILL)
        if self._process:
            self._process.wait(30)

    def stop(self) -> None:
        """Stop the server and all its commands."""
        for each in reversed(self.processes()):
            try:
                each.kill()
            except psutil.NoSuchProcess:
                continue
        if self._process:
            self._process.wait(30)

    @property
    def known(self) -> str:
        """Return the server's line for known_hosts."""
        return f"[{self.address}]:{self.port} {self.public.rpartition(' ')[0]}\n"

    def node(self, name: str, **more: str) -> str:
        """Return the server's lines for cluster.yaml."""
        given = {
            "name": name,
            "host": self.address,
            "port": str(self.port),
            "user": getuser(),
            "key_file": str(self.key),
            **more,
        }
        return "  - " + "\n    ".join(f"{key}: {value}" for key, value in given.items()) + "\n"
