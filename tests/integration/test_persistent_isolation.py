"""Tests that a unit of a persistent program finds nothing that a unit of another tenant left."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from jobs.store import Store
from jobs.store.tenancy import tokens
from jobs.store.tenancy.tenants import Tenant
from tests.integration.live import Live, until
from threads_cluster import Cluster

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("python3", path=os.defpath) is None,
    reason="runners need Linux, and programs of other users need the system's Python",
)

ADMIN = "an-admin-token-of-this-test-0123456789"
#: Text that units of tenant a leave wherever they can. Its command lines do not contain it.
MARK = "left-by-tenant-a"
#: Program that executes the item of each unit, and answers with the variable `found`.
PROGRAM = """
import builtins, json, os, pathlib, socket, subprocess, threading, time
ours = socket.socket(fileno=0)
for line in ours.makefile():
    exec(json.loads(line)["item"])
    ours.sendall(json.dumps({"value": found}).encode() + b"\\n")
"""
#: Leave the mark in the environment, in globals, in files, on stdout, in processes and in a thread that prints it.
LEAVE = """
mark = os.environ["PASSWORD"]
os.environ["MARK"] = builtins.MARK = mark
pathlib.Path("file").write_text(mark)
pathlib.Path(os.environ["TMPDIR"], mark).mkdir(exist_ok=True)
subprocess.Popen(["sleep", "300"], env={"MARK": mark})
def show():
    for _ in range(10_000):
        print(mark, flush=True)
        time.sleep(0.01)
threading.Thread(target=show, daemon=True).start()
found = os.getpid()
"""
#: Collect everything that a unit can read: its environment and globals, and all processes and files of the runner.
LOOK = """
def read(path):
    try:
        return path.read_bytes().decode(errors="replace") if path.is_file() else str(path)
    except OSError:
        return ""
home = pathlib.Path.home()
found = [dict(os.environ), sorted(map(str, vars(builtins))), os.listdir("."), str(globals().get("mark"))]
found += [read(path) for path in pathlib.Path("/proc").glob("[0-9]*/environ")]
for top, folders, files in os.walk(home.parents[2]):
    found += [top, *folders, *(read(pathlib.Path(top, name)) for name in files)]
found = [os.getpid(), json.dumps(found)[:900_000]]
"""


@contextmanager
def clients(folder: Path, **settings: Any) -> Iterator[tuple[Cluster, Cluster]]:
    """Start a cluster with a runner of two slots, and yield the clients of two tenants."""
    with tempfile.TemporaryDirectory(prefix="runner-") as place:
        Path(place).chmod(0o711)
        stored: dict[str, Any] = {
            "ARTIFACT_URL": f"file://{folder}/artifacts",
            "SECRETS_KEY": "k" * 40,
            "CLUSTER_TOKEN": ADMIN,
        }
        live = Live(folder, workers=0, **stored)
        try:
            live.start_redis()
            live.start_coordinator()
            live.start_runner(0, 2, RUNNER_DIR=place, **settings)
            live.wait_ready(1)
            with client(live, "a") as a, client(live, "b") as b:
                yield a, b
        finally:
            live.stop()


def client(live: Live, tenant: str) -> Cluster:
    store, minted = Store(live.redis()), tokens.mint()
    store.tenants.put(Tenant(name=tenant))
    assert store.tokens.create(minted, name=tenant, scopes=("read", "submit", "run"), tenant=tenant) == "new"
    return Cluster(live.url(), minted.text)


def start(cluster: Cluster, *items: str, **more: Any) -> str:
    command = ["python3", "-uc", {"literal": PROGRAM}]
    parameters = {"command": command, "persistent": True, "items": list(items), "retries": {"max": 0}, **more}
    job: str = cluster.submit("command", parameters)["job_id"]
    return job


def run(cluster: Cluster, *items: str, **more: Any) -> list[dict[str, Any]]:
    job = start(cluster, *items, **more)
    cluster.wait(job, timeout=120)
    return list(cluster.programs.units(job))


def look(cluster: Cluster) -> int:
    """Check that a unit of the tenant finds no mark, and return the PID of its program."""
    [unit] = run(cluster, LOOK)
    assert unit["state"] == "done", unit
    pid, found = cluster.programs.value(unit)
    assert "PATH" in found and MARK not in found
    assert MARK not in json.dumps(unit)
    return int(pid)


def is_marked() -> bool:
    """Return True if a process has the mark in its environment, which only LEAVE starts."""
    processes = psutil.process_iter(["environ"])
    return any(MARK in (process.info["environ"] or {}).get("MARK", "") for process in processes)


def test_a_unit_finds_nothing_of_another_tenant_on_a_shared_runner(tmp_path: Path) -> None:
    with clients(tmp_path) as (a, b):
        a.put_secret("PASSWORD", MARK)
        left, seen = run(a, LEAVE, LOOK, secrets=["PASSWORD"])
        assert MARK in a.programs.value(seen)[1], "the program of the same user finds it"
        assert Path(f"/proc/{left['value']}").exists(), "the program waits"
        look(b)
        assert not Path(f"/proc/{left['value']}").exists(), "it ends before a unit of another tenant starts"


@pytest.mark.skipif(os.geteuid() != 0, reason="RUNNER_UIDS needs root")
def test_tenants_with_own_users_run_at_once_and_find_nothing_of_each_other(tmp_path: Path) -> None:
    with clients(tmp_path, RUNNER_UIDS="61186-61187") as (a, b):
        a.put_secret("PASSWORD", MARK)
        slow = start(a, LEAVE + "time.sleep(3600)", secrets=["PASSWORD"])
        until(is_marked)
        pid = look(b)
        [eater] = run(b, "found = b'x' * (300 << 20); time.sleep(60)", requirements={"memory_mib": 100})
        assert (eater["state"], eater["reason"]) == ("dead", "memory")
        assert look(b) != pid, "another memory limit needs another program"
        assert a.job(slow)["state"] == "running"
        a.cancel(slow)
        a.wait(slow, timeout=120)
        look(b)
