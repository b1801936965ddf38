"""A host behind NAT joins over TLS, loses its network while it computes, and reconnects by itself.

The test has three network namespaces: the cluster's, a router's that masquerades, and the host's. Nothing can connect
to the host, and the host can connect only to the cluster's HTTPS endpoint. With CUT_SECONDS=55 the network is down for
a minute.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psutil
import pytest

from deploy.local import processes
from deploy.local.joining import invitation
from deploy.local.joining.invitation import Invitation
from tests import kernels
from tests.integration.live import TOP
from tests.integration.test_local_cluster import START_SECONDS, Checkout, copied, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

#: Seconds for which the network stays down after the host counts as lost, which takes five seconds.
CUT_SECONDS = float(os.environ.get("CUT_SECONDS", "3"))
CLUSTER, HOST = "10.77.1.2", "10.77.2.2"
API = 3000
_CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)"


class Networks:
    """The network namespaces."""

    def __init__(self) -> None:
        mark = f"{os.getpid() % 100_000:05}"
        self.cluster, self.router, self.host = (f"{name}{mark}" for name in ("tcc", "tcr", "tch"))

    def make(self) -> None:
        """Create the namespaces, with a router that hides the host."""
        for name in (self.cluster, self.router, self.host):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for name, network in ((self.cluster, "10.77.1"), (self.host, "10.77.2")):
            ip("link", "add", "up0", "netns", name, "type", "veth", "peer", "name", name, "netns", self.router)
            for place, link, end in ((name, "up0", 2), (self.router, name, 1)):
                ip("-n", place, "addr", "add", f"{network}.{end}/24", "dev", link)
                ip("-n", place, "link", "set", link, "up")
        ip("-n", self.host, "route", "add", "default", "via", "10.77.2.1")
        self.on_router("sysctl", "-qw", "net.ipv4.ip_forward=1")
        self.on_router("iptables", "-t", "nat", "-A", "POSTROUTING", "-o", self.cluster, "-j", "MASQUERADE")

    def remove(self) -> None:
        for name in (self.host, self.router, self.cluster):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def on_router(self, *command: str) -> None:
        done = subprocess.run(["ip", "netns", "exec", self.router, *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def cut(self) -> None:
        """Let the router drop all packets silently."""
        self.on_router("iptables", "-I", "FORWARD", "-j", "DROP")

    def mend(self) -> None:
        self.on_router("iptables", "-D", "FORWARD", "-j", "DROP")

    def reaches(self, namespace: str, address: str, port: int) -> bool:
        command = ["ip", "netns", "exec", namespace, shutil.which("python3") or "python3", "-c", _CONNECT]
        return subprocess.run([*command, address, str(port)], capture_output=True).returncode == 0


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


@pytest.fixture(scope="module")
def networks() -> Iterator[Networks]:
    made = Networks()
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if lacking := [name for name in ("ip", "iptables", "sysctl") if not shutil.which(name)]:
        pytest.skip(f"{', '.join(lacking)}: not installed (Debian: apt-get install iproute2 iptables procps)")
    try:
        made.make()
        yield made
    finally:
        made.remove()


class Machine:
    """A checkout in a network namespace."""

    def __init__(self, checkout: Checkout, namespace: str) -> None:
        self.checkout, self.namespace = checkout, namespace
        self.said = checkout.path / "said"
        self._starter: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str, line: str = "") -> None:
        """Start a command of the script that keeps running. `line` is its stdin."""
        with self.said.open("wb") as said:
            command = ["ip", "netns", "exec", self.namespace, *self.checkout.command(*arguments)]
            self._starter = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=said, stderr=said, start_new_session=True
            )
        assert self._starter.stdin is not None
        self._starter.stdin.write(f"{line}\n".encode())
        self._starter.stdin.close()

    def says(self, words: str) -> bool:
        assert self._starter is not None and (words in self.said.read_text() or self._starter.poll() is None), (
            self.said.read_text()
        )
        return words in self.said.read_text()

    def run(self, *command: str, seconds: float = 120.0, line: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["ip", "netns", "exec", self.namespace, *command],
            cwd=self.checkout.path,
            input=f"{line}\n",
            capture_output=True,
            text=True,
            timeout=seconds,
        )

    def script(self, *arguments: str, line: str = "") -> subprocess.CompletedProcess[str]:
        return self.run(*self.checkout.command(*arguments), line=line)

    def stop(self) -> None:
        if self._starter and self._starter.poll() is None:
            self._starter.send_signal(signal.SIGTERM)
            self._starter.wait(90)
        processes.stop_marked(f"@{self.checkout.folder}")

    def asked(self, *arguments: str) -> Any:
        """Return the output of the `cluster` command. Its cluster is the one on this machine."""
        done = self.run(*self.checkout.client("--url", f"http://127.0.0.1:{API}", *arguments, "--json"))
        assert done.returncode == 0, done.stderr
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        return answers[0] if len(answers) == 1 else answers


@pytest.fixture(scope="module")
def machines(networks: Networks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Machine, Machine]]:
    """Return the running cluster's machine, and a machine that can join."""
    folder = tmp_path_factory.mktemp("nat")
    here = Machine(copied(folder / "here"), networks.cluster)
    there = Machine(copied(folder / "there"), networks.host)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_CACHE_DIR", str(kernels.CACHE))
        try:
            here.start("local", "--no-samples", "--runner", "--port", str(API))
            until(lambda: here.says("cluster is up"), START_SECONDS)
            yield here, there
        finally:
            there.stop()
            here.stop()


def invited(here: Machine, *options: str) -> Invitation:
    done = here.script("invite", "--address", CLUSTER, *options)
    assert done.returncode == 0, done.stderr
    line, token = done.stdout.splitlines()
    pinned = re.search(rf"{CLUSTER}:\d+/[0-9a-f]{{64}}", line)
    assert pinned, line
    return invitation.parse(f"{pinned[0]}/{token}")


def host(here: Machine) -> Any:
    rows = here.asked("hosts")
    return next((row for row in (rows if isinstance(rows, list) else [rows]) if row["host"] == "attic"), None)


def collatz(here: Machine, count: int) -> str:
    return str(here.asked("submit", "collatz", "--start-number", "1", "--number-count", str(count))["job_id"])


def result(here: Machine, job: str) -> Any:
    # A single command waits, because repeated commands would take CPU time from the workers.
    ended = here.run(*here.checkout.client("--url", f"http://127.0.0.1:{API}", "watch", job), seconds=300)
    assert ended.returncode == 0, ended.stderr
    return here.asked("result", job)["result"]


def computed_by(here: Machine, job: str, worker: str) -> int:
    share = here.asked("job", job)["usage"]["workers"].get(worker)
    return int(share["units"]) if share else 0


def computing(here: Machine) -> int:
    """Return the process that computes on the host."""
    rows = here.asked("host", "attic")["worker_rows"]
    return int(next(row["pid"] for row in rows if row["id"] == "attic-cpu-1"))


def test_a_host_behind_nat_joins_is_cut_off_comes_back_and_leaves(
    networks: Networks, machines: tuple[Machine, Machine]
) -> None:
    here, there = machines
    good = invited(here)
    # An invalid invitation joins nothing and is not used up.
    for bad, words in (
        (replace(good, token=f"{good.token[:-43]}{'x' * 43}"), "was used or has expired"),
        (replace(good, fingerprint="0" * 64), "does not match the invitation"),
    ):
        refused = there.script("join", bad.pinned, line=bad.token)
        assert refused.returncode == 1 and words in refused.stderr, refused.stderr
    short = invited(here, "--ttl", "1s")

    there.start("join", good.pinned, "--runner", "--name", "attic", line=good.token)
    until(lambda: there.says("all workers are connected to the cluster"), START_SECONDS)
    _only_the_door_is_reached(networks, here, there)

    before = until(lambda: (row := host(here)) and len(row["workers"]) == 2 and row["live"] and row, 60)
    assert sorted(before["workers"]) == ["attic-cpu-1", "attic-runner-1"]
    _a_service_there_answers(here)
    pid = computing(here)
    small = 2_000_000_000
    first = collatz(here, small)
    result(here, first)
    seconds = max(0.5, here.asked("job", first)["seconds"])
    count = int(small / seconds * (CUT_SECONDS + 8))

    job = collatz(here, count)
    until(lambda: computed_by(here, job, "attic-cpu-1"), 60)
    networks.cut()
    try:
        until(lambda: not host(here)["live"], 60)  # Other workers have taken over its leases by now.
        time.sleep(CUT_SECONDS)
    finally:
        networks.mend()
    until(lambda: host(here)["live"], 90)
    exact = result(here, job)

    again = collatz(here, count)
    assert result(here, again) == exact and int(exact["count"]) == count
    assert computed_by(here, again, "attic-cpu-1") > 0, "it works again"
    assert computing(here) == pid, "the same process has come back"

    left = there.script("leave")
    assert left.returncode == 0 and "has left" in left.stderr, left.stderr
    assert not psutil.pid_exists(pid)
    until(lambda: not host(here)["live"], 60)
    for used in (good, short):
        refused = there.script("join", used.pinned, line=used.token)
        assert refused.returncode == 1 and "was used or has expired" in refused.stderr, refused.stderr


def _a_service_there_answers(here: Machine) -> None:
    """Check a service on the host. The coordinator reaches it through the tunnel that the host has opened."""
    url = f"http://127.0.0.1:{API}"
    program = ["{python}", str(TOP / "benchmarks" / "load" / "paced_engine.py"), "{port}"]
    serve = ["serve", "--engine", "http", "--name", "far", "--host", "attic", "--wait", "--", *program]
    served = here.run(*here.checkout.client("--url", url, *serve), seconds=300)
    assert served.returncode == 0, served.stderr
    token = here.asked("token", "create", "principal", "--scopes", "infer")["token"]
    answer = here.run(
        "curl",
        "-sS",
        f"{url}/v1/completions",
        "-H",
        f"Authorization: Bearer {token}",
        "-H",
        "Content-Type: application/json",
        "-d",
        '{"model": "far", "prompt": "once", "max_tokens": 1}',
    )
    assert json.loads(answer.stdout).get("choices") == [{"text": " tok"}], (answer.stdout, answer.stderr)
    here.asked("service", "delete", "far")


def _only_the_door_is_reached(networks: Networks, here: Machine, there: Machine) -> None:
    configuration = (here.checkout.folder / "redis.conf").read_text()
    redis = int(re.search(r"^port (\d+)", configuration, re.MULTILINE)[1])  # type: ignore[index]
    door = json.loads((here.checkout.folder / "door.json").read_text())["port"]
    assert networks.reaches(networks.cluster, "127.0.0.1", redis), "it is there"
    assert networks.reaches(networks.host, CLUSTER, door)
    for port in (redis, API):
        assert not networks.reaches(networks.host, CLUSTER, port)
        assert not networks.reaches(networks.host, "127.0.0.1", port)
    routes = here.run("ip", "route", "get", HOST)
    assert routes.returncode != 0, "the cluster has no way to a host behind NAT"
    kept = [path for path in (there.checkout.folder / "joined").rglob("*") if path.is_file()]
    assert not any(b"redis://" in path.read_bytes() for path in kept)
