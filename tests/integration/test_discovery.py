"""Tests that another machine receives a coordinator's announcements, with two connected network namespaces."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.live import TOP, until

CLUSTER, OTHER = "10.78.3.1", "10.78.3.2"


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


@pytest.fixture(scope="module")
def networks() -> Iterator[tuple[str, str]]:
    """Return the names of the cluster's network and of the other one."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root and iproute2")
    names = tuple(f"{name}{os.getpid() % 100_000:05}" for name in ("tda", "tdb"))
    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("link", "add", "link0", "netns", names[0], "type", "veth", "peer", "name", "link0", "netns", names[1])
        for name, address in zip(names, (CLUSTER, OTHER), strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "link0")
            ip("-n", name, "link", "set", "link0", "up")
        yield names[0], names[1]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def coordinator(network: str, said: Path, **environment: str) -> subprocess.Popen[bytes]:
    """Start a coordinator without Redis, which an announcement does not need."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    own = {"AUTH": "required", "METRICS_PORT": "0", "REDIS_URL": "redis://127.0.0.1:1/0", **kept, **environment}
    with said.open("wb") as log:
        command = ["ip", "netns", "exec", network, sys.executable, "-m", "coordinator"]
        return subprocess.Popen(command, cwd=TOP, env=own, stdout=log, stderr=log)


def discovered(network: str) -> list[dict[str, Any]]:
    words = "from threads_cluster.cli.main import main; main()"
    command = ["ip", "netns", "exec", network, sys.executable, "-c", words, "discover", "--seconds", "1", "--json"]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_one_that_listens_for_others_is_heard_there_and_one_on_loopback_is_not(
    networks: tuple[str, str], tmp_path: Path
) -> None:
    here, there = networks
    open_one = coordinator(here, tmp_path / "open", BIND="0.0.0.0", COORDINATOR_PORT="3000")
    closed = coordinator(here, tmp_path / "closed", BIND="127.0.0.1", COORDINATOR_PORT="3001")
    try:
        until(lambda: b"announced by mDNS as" in (tmp_path / "open").read_bytes(), 120)
        until(lambda: b"Application startup complete" in (tmp_path / "closed").read_bytes(), 120)
        [row] = until(lambda: discovered(there), 120)
        assert row["url"] == f"http://{CLUSTER}:3000" and row["token_needed"] is True
        assert b"announced" not in (tmp_path / "closed").read_bytes()
        open_one.send_signal(signal.SIGTERM)
        assert open_one.wait(60) is not None
        until(lambda: discovered(there) == [], 120)
    finally:
        for one in (open_one, closed):
            one.kill()
            one.wait()
