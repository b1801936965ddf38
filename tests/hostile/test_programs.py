"""Tests harmful programs: each is limited, its exit reason is reported, and the cluster keeps answering."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import fetch
from tests.integration.live import Live, until

pytestmark = pytest.mark.alone
TOKEN = "an-admin-of-hostile-programs"
SLOTS = 2
#: Bytes that one program writes. Of 2_000_000_000, by hand, it takes some minutes: a runner reads at most 10 MiB/s.
LOG_BYTES = 50_000_000
#: Users as which the runner executes programs, one per slot.
UIDS = (61_000, 61_001)
#: Program that starts processes as fast as possible, beyond the limit for programs but few enough for this machine.
_BOMB = """
import os, time
for _ in range(20_000):
    try:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    except OSError:
        pass
time.sleep(60)
"""
_HOG = "held = []\nwhile True: held.append(bytearray(b'x' * (16 << 20)))"
#: Program that prints all readable environments and files of other processes.
_SPY = """
import os, sys
out = sys.stdout.buffer
def show(path):
    try:
        with open(path, 'rb') as opened:
            out.write(opened.read(1 << 20))
    except OSError:
        pass
for pid in filter(str.isdigit, os.listdir('/proc')):
    if int(pid) != os.getpid():
        for name in ('environ', 'cmdline'):
            show(f'/proc/{pid}/{name}')
        try:
            for fd in os.listdir(f'/proc/{pid}/fd'):
                show(f'/proc/{pid}/fd/{fd}')
        except OSError:
            pass
for top in sys.argv[1:]:
    for folder, _, names in os.walk(top):
        for name in names:
            show(os.path.join(folder, name))
out.write(b'the end')
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Create a folder that other users can enter.

    pytest's own folders do not suit: each further pytest process of this user closes their parent to other users.
    """
    with tempfile.TemporaryDirectory(prefix="hostile-programs-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Live]:
    """Start a coordinator and a runner with a separate user per slot."""
    artifacts = f"file://{folder / 'artifacts'}"
    live = Live(folder, workers=0, CLUSTER_TOKEN=TOKEN, ARTIFACT_URL=artifacts)
    try:
        live.start_redis()
        live.start_coordinator()
        live.start_runner(slots=SLOTS, RUNNER_UIDS="-".join(map(str, UIDS)))
        until(lambda: live.get("/api/status")["workers"]["ready"] == 1, 60)
        yield live
    finally:
        live.stop()


def program(code: str, *arguments: str) -> list[str]:
    return [shutil.which("python3", path=os.defpath) or sys.executable, "-c", code, *arguments]


def ended(cluster: Live, job: str, seconds: float = 60) -> dict[str, Any]:
    """Return the job when it has finished. In the meantime, the cluster must answer within two seconds."""

    def look() -> Any:
        started = time.monotonic()
        found = cluster.job(job)
        assert time.monotonic() - started < 2, "the cluster does not answer in time"
        return found["state"] in ("done", "failed", "cancelled") and found

    found: dict[str, Any] = until(look, seconds)
    return found


def the_unit(cluster: Live, job: str) -> Any:
    [row] = cluster.get(f"/api/jobs/{job}/units")["units"]
    return row


def alive(job: str) -> list[psutil.Process]:
    """Return the running processes of a job's programs."""
    there = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("CLUSTER_JOB_ID") == job and process.status() != psutil.STATUS_ZOMBIE:
                there.append(process)
    return there


def log_of(cluster: Live, job: str, **query: Any) -> bytes:
    answer = fetch.get(f"{cluster.url()}/api/jobs/{job}/logs/0", params=query, headers=cluster.headers(), timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.content


def test_a_fork_bomb_ends_and_leaves_nothing(cluster: Live) -> None:
    job = cluster.submit("command", {"command": program(_BOMB), "retries": {"max": 0}})
    assert ended(cluster, job)["state"] == "failed"
    row = the_unit(cluster, job)
    assert (row["state"], row["reason"]) == ("dead", "processes")
    assert not alive(job)


def test_a_program_that_takes_more_memory_than_it_asked_for_ends(cluster: Live) -> None:
    parameters = {"command": program(_HOG), "requirements": {"memory_mib": 200}, "retries": {"max": 0}}
    job = cluster.submit("command", parameters)
    assert ended(cluster, job)["state"] == "failed"
    assert the_unit(cluster, job)["reason"] == "memory"


def test_a_log_of_any_length_is_kept_in_part_and_takes_no_memory(cluster: Live) -> None:
    text = f"head -c {LOG_BYTES} /dev/zero | tr '\\0' x; echo the end"
    processes = {name: psutil.Process(cluster.processes[name].pid) for name in ("runner-0", "coordinator-0", "redis")}
    before = {name: process.memory_info().rss for name, process in processes.items()}
    most = dict(before)
    job = cluster.submit("command", {"command": text, "retries": {"max": 0}})
    while (found := cluster.job(job))["state"] not in ("done", "failed"):
        most = {name: max(most[name], process.memory_info().rss) for name, process in processes.items()}
        time.sleep(0.2)
    assert found["state"] == "done", found
    assert all(most[name] - before[name] < 100 << 20 for name in most), (before, most)
    log = b"".join(log_of(cluster, job, **{"from": at, "limit": 4 << 20}) for at in range(0, 12 << 20, 4 << 20))
    dropped = re.search(rb"\n\[([0-9]+) bytes were dropped here\]\n", log)
    assert dropped and len(log) - len(dropped[0]) + int(dropped[1]) == LOG_BYTES + len("the end\n")
    assert 9_000_000 < len(log) < 10_000_000 and log.endswith(b"xthe end\n")


def test_a_program_that_ignores_sigterm_and_hides_its_children_is_gone_when_its_job_is_cancelled(cluster: Live) -> None:
    code = "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 300 & sleep 300' & sleep 300; sleep 300"
    job = cluster.submit("command", {"command": code, "grace_seconds": 1})
    until(lambda: len(alive(job)) >= 4, 30)
    assert cluster.post(f"/api/jobs/{job}/cancel").status_code == 200
    assert cluster.job(job)["state"] in ("cancelling", "cancelled")
    assert ended(cluster, job)["state"] == "cancelled"
    assert not alive(job), "cancelled is said when nothing runs"


def test_a_job_that_no_runner_fits_holds_up_nobody_and_says_why(cluster: Live) -> None:
    odd = cluster.submit("command", {"command": ["true"], "requirements": {"gpus": 4, "labels": ["nowhere"]}})
    others = [cluster.submit("command", {"command": ["true"]}) for _ in range(100)]
    for job in others:
        assert ended(cluster, job)["state"] == "done"
    waits = cluster.job(odd)
    assert waits["state"] == "queued"
    assert "4 GPUs" in waits["waiting_because"], waits
    assert cluster.post(f"/api/jobs/{odd}/cancel").status_code == 200


def test_a_program_finds_no_credential(cluster: Live) -> None:
    """Credentials of the runner, its guards and the cluster are not in environments, descriptors or files."""
    token = psutil.Process(cluster.processes["runner-0"].pid).environ()["WORKER_TOKEN"]
    job = cluster.submit("command", {"command": program(_SPY, str(cluster.folder)), "retries": {"max": 0}})
    assert ended(cluster, job)["state"] == "done"
    seen = log_of(cluster, job)
    assert seen.endswith(b"the end")
    for secret in (token, TOKEN):
        assert secret.encode() not in seen


def test_one_slot_reads_nothing_of_what_another_runs(cluster: Live) -> None:
    first = cluster.submit("command", {"command": "echo $WORD > kept; sleep 4", "env": {"WORD": "a-private-word"}})
    until(lambda: cluster.job(first)["state"] == "running", 30)
    work = str(cluster.folder / "runner-0")
    job = cluster.submit("command", {"command": program(_SPY, work), "retries": {"max": 0}})
    assert ended(cluster, job)["state"] == "done"
    assert b"a-private-word" not in log_of(cluster, job)
    assert ended(cluster, first)["state"] == "done"


def test_units_of_a_runner_that_was_killed_are_counted_once_and_soon_run_again(cluster: Live, folder: Path) -> None:
    marks = folder / "marks"
    marks.mkdir()
    marks.chmod(0o777)
    command = f"date +%s.%N > {marks}/$CLUSTER_UNIT-$$; sleep 3; echo $CLUSTER_UNIT > $CLUSTER_RESULT"
    job = cluster.submit("command", {"command": command, "count": 4})
    until(lambda: len([path for path in marks.iterdir() if path.stat().st_size]) == SLOTS, 30)
    cluster.kill("runner-0")
    killed = time.time()
    cluster.start_runner(slots=SLOTS, RUNNER_UIDS="-".join(map(str, UIDS)))
    found = ended(cluster, job)
    assert found["state"] == "done", (found, cluster.get(f"/api/jobs/{job}/units"))
    assert starts(marks)[SLOTS] - killed < 5
    units = cluster.get(f"/api/jobs/{job}/units")
    assert units["counts"]["done"] == 4
    assert [row["value"] for row in units["units"]] == [0, 1, 2, 3]
    assert len(starts(marks)) == 4 + SLOTS, "each unit ran once, those of the runner that died twice"


def starts(folder: Path) -> list[float]:
    """Return the start times of units in order."""
    return sorted(float(path.read_text()) for path in folder.iterdir())
