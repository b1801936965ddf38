"""Tests hosts over real SSH servers: simultaneous checks, kept connections, verified keys, and broken connections."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.integration.live import TOP, until
from tests.integration.sshd import Sshd, keygen
from tests.ports import free_port
from threads_cluster.ssh import health, probe
from threads_cluster.ssh.configuration import ClusterConfig
from threads_cluster.ssh.pool import CHANNELS, Pool
from threads_cluster.ssh.probe import Health
from threads_cluster.ssh.refusals import HostTrouble

#: A ProxyCommand that connects when as many processes of its kind have started as its second argument says.
_TOGETHER = """\
import os, pathlib, socket, sys, threading, time
folder, count, host, port = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
(folder / str(os.getpid())).touch()
while len(list(folder.iterdir())) < count:
    time.sleep(0.01)
end = socket.create_connection((host, port))
def send():
    while data := os.read(0, 65536):
        end.sendall(data)
threading.Thread(target=send, daemon=True).start()
while data := end.recv(65536):
    os.write(1, data)
"""


class Hosts:
    """Two servers and their configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.one, self.two = (Sshd(folder / name).start() for name in ("one", "two"))
        self.known = folder / "known_hosts"
        self.known.write_text(self.one.known + self.two.known)

    def config(self, *nodes: str, patience: float = 60, ssh: str = "") -> Path:
        """Write a cluster.yaml into a new folder, and return its path."""
        path = self.folder / f"{len(list(self.folder.iterdir()))}" / "cluster.yaml"
        path.parent.mkdir()
        path.write_text(
            f"remote_root: {path.parent}/remote\nssh: {{known_hosts: {self.known}, timeout: {patience}{ssh}}}\n"
            f"health_check: {{timeout: {patience}}}\nnodes:\n{''.join(nodes)}"
        )
        return path


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    made = Hosts(tmp_path_factory.mktemp("ssh"))
    yield made
    made.one.stop()
    made.two.stop()


def asked(path: Path) -> list[Health]:
    """Return the states of a configuration's hosts."""

    async def ask() -> list[Health]:
        pool = Pool(ClusterConfig.from_yaml(path))
        try:
            return await health.check_nodes(pool)
        finally:
            await pool.close()

    return asyncio.run(ask())


def ran(folder: Path, *words: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """Return the outcome of the `cluster` command in a folder without a cluster."""
    environment = {
        "PYTHONPATH": str(TOP),
        "HOME": str(folder),
        "PATH": "/usr/bin:/bin",
        "PYTHONWARNINGS": "error",
        "CLUSTER_URL": "http://127.0.0.1:1",
    }
    command = [sys.executable, "-m", "threads_cluster", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds)


def test_health_says_how_each_host_is_and_which_is_best(hosts: Hosts) -> None:
    path = hosts.config(hosts.one.node("gpu1"), hosts.two.node("gpu2"), "  - {name: gone, host: 127.0.0.1, port: 1}\n")
    done = ran(path.parent, "health")
    assert done.returncode == 0, done.stderr
    head, rule, one, two, gone = done.stdout.splitlines()
    assert (head, rule) == ("Cluster Health Status:", "─" * 50)
    for name, line in (("gpu1", one), ("gpu2", two)):
        assert line.startswith(f"{name:<20} ") and "CPU: " in line and "Score: " in line and "Memory: " in line
    assert sum(line.endswith("  best") for line in (one, two)) == 1
    assert gone.split()[:3] == ["gone", "✗", "UNHEALTHY"] and "connection refused" in gone
    assert (
        "showing only the hosts of cluster.yaml" in done.stderr
        and "next: gone: check whether this works:" in done.stderr
    )
    rows = [json.loads(line) for line in ran(path.parent, "health", "--json").stdout.splitlines()]
    assert [row["name"] for row in rows] == ["gpu1", "gpu2", "gone"]
    assert [row["reachable"] for row in rows] == [True, True, False] and sum(row["best"] for row in rows) == 1
    assert rows[0]["cpus"] >= 1 and rows[0]["memory_total_bytes"] > rows[0]["memory_used_bytes"] > 0


def test_hosts_are_asked_at_once(hosts: Hosts, tmp_path: Path) -> None:
    """Each host waits for all others before it connects, so sequential checks would wait forever."""
    begun, proxy = tmp_path / "begun", tmp_path / "proxy.py"
    begun.mkdir()
    proxy.write_text(_TOGETHER)
    command = f"{sys.executable} {proxy} {begun} 10 %h %p"
    path = hosts.config(*(hosts.one.node(f"gpu{number}", proxy_command=command) for number in range(10)))
    assert [each.reason for each in asked(path) if not each.reachable] == []


def test_connections_are_kept_and_carry_several_commands(hosts: Hosts) -> None:
    path = hosts.config(hosts.one.node("gpu1"))
    before = hosts.one.connections()

    async def ask() -> None:
        pool = Pool(ClusterConfig.from_yaml(path))
        node = pool.config.nodes[0]
        for _ in range(5):
            assert (await probe.check_host(pool, node)).reachable
        until(lambda: hosts.one.connections() == before + 1)
        together = asyncio.Barrier(2 * CHANNELS + 4)

        async def one() -> None:
            async with pool.channel(node) as connection:
                await together.wait()
                assert (await connection.run("cat", input=b"x", encoding=None)).stdout == b"x"

        await asyncio.gather(*(one() for _ in range(together.parties)))
        await pool.close()

    asyncio.run(ask())
    # Eight commands over each connection, of the ten that sshd allows.
    until(lambda: hosts.one.connections() == before + 3)


def test_no_more_connections_than_the_pool_has(hosts: Hosts) -> None:
    path = hosts.config(hosts.one.node("gpu1"), ssh=", pool_size: 1")
    before = hosts.one.connections()

    async def ask() -> Sequence[Health]:
        pool = Pool(ClusterConfig.from_yaml(path))
        rows = await asyncio.gather(*(probe.check_host(pool, pool.config.nodes[0]) for _ in range(30)))
        await pool.close()
        return rows

    assert all(each.reachable for each in asyncio.run(ask()))
    until(lambda: hosts.one.connections() == before + 1)


def test_a_connection_that_was_lost_is_replaced(hosts: Hosts, tmp_path: Path) -> None:
    server = Sshd(tmp_path / "dying").start()
    hosts.known.write_text(hosts.known.read_text() + server.known)
    path = hosts.config(server.node("gpu1"))

    async def ask() -> None:
        pool = Pool(ClusterConfig.from_yaml(path))
        node = pool.config.nodes[0]
        assert (await probe.check_host(pool, node)).reachable
        server.die()
        assert not (await probe.check_host(pool, node)).reachable
        server.start()
        assert (await probe.check_host(pool, node)).reachable
        await pool.close()

    try:
        asyncio.run(ask())
    finally:
        server.stop()


def refused(path: Path) -> HostTrouble:
    """Return why the first host is not connected."""

    async def ask() -> HostTrouble:
        pool = Pool(ClusterConfig.from_yaml(path))
        try:
            async with pool.channel(pool.config.nodes[0]):
                raise AssertionError("it was connected")
        except HostTrouble as trouble:
            return trouble

    return asyncio.run(ask())


def test_a_key_that_is_not_known_is_refused_with_what_to_do(hosts: Hosts, tmp_path: Path) -> None:
    path = hosts.config(hosts.one.node("gpu1"))
    path.write_text(path.read_text().replace(str(hosts.known), str(tmp_path / "none")))
    trouble = refused(path)
    assert "unknown host key: ssh-ed25519 SHA256:" in str(trouble)
    assert f"ssh-keyscan -p {hosts.one.port} 127.0.0.1 >> {tmp_path}/none" in trouble.next
    assert f"ssh -p {hosts.one.port} -i {hosts.one.key} " in trouble.next


def test_a_changed_key_is_refused(hosts: Hosts, tmp_path: Path) -> None:
    path = hosts.config(hosts.one.node("gpu1"))
    changed = tmp_path / "known"
    changed.write_text(hosts.one.known.replace(hosts.one.public.split()[1], keygen(tmp_path / "key").split()[1]))
    path.write_text(path.read_text().replace(str(hosts.known), str(changed)))
    trouble = refused(path)
    assert "the host key has CHANGED" in str(trouble) and "nothing was sent" in trouble.next
    assert f"ssh-keygen -R '[127.0.0.1]:{hosts.one.port}' -f {changed}" in trouble.next


def test_a_key_that_it_does_not_know_opens_nothing(hosts: Hosts, tmp_path: Path) -> None:
    keygen(tmp_path / "other")
    path = hosts.config(hosts.one.node("gpu1", key_file=str(tmp_path / "other")))
    trouble = refused(path)
    assert "rejected every SSH key of" in str(trouble) and "ssh-copy-id" in trouble.next and not trouble.passing
    path = hosts.config(hosts.one.node("gpu1", key_file=str(tmp_path / "missing")))
    assert "no such file" in str(refused(path))


class Mute:
    """Accepts connections and sends nothing, or a given text."""

    def __init__(self, says: bytes = b"") -> None:
        self.port, self._says = free_port(), says
        self._server = socket.create_server(("127.0.0.1", self.port))
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                end, _ = self._server.accept()
                self._ends.append(end)
                end.sendall(self._says)
            except OSError:
                return

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        for end in (self._server, *self._ends):
            end.close()


@pytest.mark.parametrize("says", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 100_000])
def test_what_is_no_ssh_server_is_given_up(hosts: Hosts, says: bytes) -> None:
    mute = Mute(says)
    try:
        [found] = asked(hosts.config(f"  - {{name: mute, host: 127.0.0.1, port: {mute.port}}}\n", patience=1))
    finally:
        mute.close()
    assert not found.reachable and found.reason, found


def test_nine_dead_hosts_of_ten_hide_none(hosts: Hosts) -> None:
    dead = (f"  - {{name: dead{number}, host: 127.0.0.{number + 1}, port: 1}}\n" for number in range(9))
    found = asked(hosts.config(*dead, hosts.two.node("alive")))
    assert [each.name for each in found if each.reachable] == ["alive"] == [health.choose(found).name]
    with pytest.raises(Exception, match="no host is reachable: dead0 not reachable: connection refused"):
        health.choose(found[:9])


@pytest.mark.parametrize(
    ("forced", "words"),
    [
        ("echo hello", "unexpected output of the health check"),
        ("yes", "unexpected output of the health check"),
        ("false", "unexpected output of the health check"),
        ("printf 'load nan\\ncpus 0\\nend\\n'", "reported no load"),
        ("printf 'load 1e9\\ncpus 99999999999999999999\\nend\\n'", "reported no load"),
        ("sleep 600", "no response within"),
    ],
)
def test_a_host_that_lies_is_not_believed(tmp_path: Path, forced: str, words: str) -> None:
    server = Sshd(tmp_path / "liar", ForceCommand=forced).start()
    try:
        known = tmp_path / "known"
        known.write_text(server.known)
        path = tmp_path / "cluster.yaml"
        patience = 3 if "sleep" in forced else 60
        path.write_text(
            f"ssh: {{known_hosts: {known}}}\nhealth_check: {{timeout: {patience}}}\nnodes:\n{server.node('liar')}"
        )
        [found] = asked(path)
    finally:
        server.stop()
    assert not found.reachable and words in found.reason, found


def test_a_host_that_has_joined_is_judged_by_what_its_workers_tell() -> None:
    row = {
        "host": "attic",
        "live": True,
        "load1": 4.0,
        "cpus": 8,
        "devices": [{"utilization_ratio": 0.5}],
        "memory_used_bytes": 1,
        "memory_total_bytes": 4,
    }
    config = ClusterConfig.model_validate({"nodes": ["attic", "cellar"]})
    [found, lost, silent] = health.from_cluster(
        [row, {"host": "cellar", "live": False}, {"host": "new", "live": True, "load1": None, "cpus": None}],
        config.health_check,
    )
    assert (found.score, found.gpu_percent, found.healthy) == (200.0, 50.0, True)
    assert not lost.reachable and "lost" in health.line(lost, None)
    assert silent.healthy and silent.score is None and health.best([silent]) is None
    over_ssh = Health(name="attic", source="ssh", reachable=True, score=1.0)
    assert [each.source for each in health.merge([over_ssh], [found, lost])] == ["ssh", "joined"]


def test_bad_files_are_refused_by_the_command(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("nodes: [gpu1]\nssh: {timeout: soon}\n")
    done = ran(tmp_path, "health")
    assert done.returncode == 2 and "cluster.yaml:2: ssh.timeout: " in done.stderr and done.stdout == ""
    done = ran(tmp_path, "health", "--config", "other.yaml")
    assert done.returncode == 2 and "other.yaml: cannot be read" in done.stderr
