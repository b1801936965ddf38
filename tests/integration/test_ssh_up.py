"""Tests `cluster up` and `down` on three hosts with real SSH servers: they join, compute, lose one host, and leave."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import kernels
from tests.integration.live import until
from tests.integration.sshd import Sshd
from tests.integration.test_joining import Door, door
from threads_cluster import errors
from threads_cluster.cli import main as cli
from threads_cluster.ssh import up

pytestmark = pytest.mark.slow
__all__ = ["door"]

NAMES = ("gpu1", "gpu2", "gpu3")


@dataclass(frozen=True)
class Hosts:
    """Servers by name, and the folder of cluster.yaml."""

    folder: Path
    servers: dict[str, Sshd]

    def root(self, name: str) -> Path:
        return self.folder / name / "root"

    def processes(self, name: str) -> list[psutil.Process]:
        """Return the processes in the checkout of a host."""
        found = []
        for each in psutil.process_iter():
            with suppress(psutil.Error):
                if each.cwd().startswith(str(self.root(name))):
                    found.append(each)
        return found

    def kill(self, name: str) -> None:
        """Kill all these processes, including newly started ones."""
        while several := self.processes(name):
            for each in several:
                with suppress(psutil.Error):
                    each.kill()
            psutil.wait_procs(several, 30)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("ssh_up")
    setting = f"NUMBA_CACHE_DIR={kernels.CACHE}"
    servers = {name: Sshd(folder / name, SetEnv=setting).start() for name in NAMES}
    made = Hosts(folder, servers)
    (folder / "known").write_text("".join(server.known for server in servers.values()))
    nodes = [
        server.node(name, python=sys.executable, remote_root=str(made.root(name))) for name, server in servers.items()
    ]
    (folder / "cluster.yaml").write_text(f"ssh: {{known_hosts: {folder}/known, timeout: 60}}\nnodes:\n{''.join(nodes)}")
    yield made
    for name, server in servers.items():
        made.kill(name)
        server.stop()


@pytest.fixture
def command(hosts: Hosts, door: Door, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command in the folder of cluster.yaml, and return its exit code and records."""
    monkeypatch.chdir(hosts.folder)
    monkeypatch.setattr(up, "invitation", lambda _address, _labels: str(door.invited()))

    def call(*words: str) -> tuple[int, dict[str, Any]]:
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, "--json"])
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return int(ended.value.code or 0), {row["host"]: row for row in rows}

    return call


def live(door: Door) -> set[str]:
    return {row["host"] for row in door.live.get("/api/hosts")["hosts"] if row["live"]}


def worker_events(door: Door, worker: str) -> list[str]:
    """Return the changes of a worker, oldest first."""
    events = [fields for _, fields in door.live.redis().xrange("ct:events")]
    return [fields[b"state"].decode() for fields in events if fields.get(b"worker") == worker.encode()]


def test_three_hosts_join_compute_lose_one_and_leave(hosts: Hosts, door: Door, command: Any) -> None:
    code, rows = command("up")
    assert (code, {row["state"] for row in rows.values()}) == (0, {"up"}), rows
    assert "gpu1 with 1 worker(s) for https://127.0.0.1:" in rows["gpu1"]["detail"]
    assert (hosts.root("gpu1") / "threads-cluster/deploy-cluster.sh").is_file()
    until(lambda: live(door) == set(NAMES), 180)
    code, rows = command("up", "--host", "gpu2")
    assert (code, [row["state"] for row in rows.values()]) == (0, ["already up"])

    job = door.live.submit("collatz", {"start_number": "1", "number_count": "2000000000"})
    until(lambda: door.live.job(job)["done"], 60)
    hosts.kill("gpu3")
    result = door.live.result(job, 250)
    assert (result["count"], result["delay"]["max"]) == (2000000000, {"n": 1674652263, "value": 1008})

    code, rows = command("up", "--host", "gpu3")
    assert (code, [row["state"] for row in rows.values()]) == (0, ["up"]), (
        "what has joined goes on, without an invitation"
    )
    code, rows = command("down")
    assert (code, {row["state"] for row in rows.values()}) == (0, {"down"}), rows
    until(lambda: not [each for name in NAMES for each in hosts.processes(name)], 60)
    changes = {name: worker_events(door, f"{name}-cpu-1") for name in NAMES}
    assert {name: states[-1] for name, states in changes.items()} == dict.fromkeys(NAMES, "left")
    assert "lost" not in changes["gpu1"] + changes["gpu2"], changes
    assert not {f"{name}-cpu-1" for name in NAMES} & door.tokens()
    code, rows = command("down", "--host", "gpu1")
    assert (code, rows["gpu1"]["state"]) == (0, "not joined")


def test_a_host_that_fails_leaves_the_others_alone(
    hosts: Hosts, command: Any, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (hosts.folder / "cluster.yaml").read_text()
    dead = "  - {name: dead, host: 127.0.0.1, port: 1}\n"
    (hosts.folder / "cluster.yaml").write_text(text + dead)
    try:
        code, rows = command("down", "--host", "dead", "--host", "gpu1")
        assert code == 1 and rows["gpu1"]["state"] == "not joined"
        assert (rows["dead"]["state"], rows["dead"]["detail"]) == ("failed", "not reachable: connection refused")
        wrong = str(door.invited()).replace("tc_", "tc_a", 1)[:-1]
        monkeypatch.setattr(up, "invitation", lambda _address, _labels: wrong)
        code, rows = command("up", "--host", "gpu1")
        assert code == 1 and rows["gpu1"]["state"] == "failed" and "join failed: " in rows["gpu1"]["detail"], rows
    finally:
        (hosts.folder / "cluster.yaml").write_text(text)


def test_without_a_cluster_here_nothing_is_invited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "deploy"
    program.mkdir()
    (program / "__init__.py").touch()
    (program / "local.py").write_text("import sys; sys.exit('error: no local cluster of this checkout is running.')")
    monkeypatch.setattr(up, "CHECKOUT", tmp_path)
    with pytest.raises(errors.ClientError, match="no local cluster of this checkout is running"):
        up.invitation(None)
    (program / "local.py").write_text("print('box:3443/-/tc_x')")
    assert up.invitation("box") == "box:3443/-/tc_x"
    with pytest.raises(errors.ClientError, match="needs a checkout"):
        up.checkout()
