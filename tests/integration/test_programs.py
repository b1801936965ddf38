"""Tests a runner on a real cluster: programs in its slots, with the worker API only."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from jobs.settings import usable_cores
from tests import fetch
from tests.integration.live import Live, until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="runners need Linux")

#: Its first calls are answered by a cluster that asks for tokens.
TOKEN = "t" * 40
ENDS = ("done", "failed", "cancelled")
#: Seconds that programs sleep, by which processes of this run are known among those of others.
LEFT, KILLED, ENDED = (f"424{digit}.{os.getpid()}" for digit in (1, 2, 3))


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Return a folder for a runner that its programs' users can enter, unlike pytest's folders."""
    with tempfile.TemporaryDirectory(prefix="runner-") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory, place: Path) -> Iterator[Live]:
    """Start a cluster with a runner with two slots and no other worker. A root runner has a user per slot."""
    folder = tmp_path_factory.mktemp("programs")
    users: dict[str, Any] = {"RUNNER_UIDS": "61190-61191"} if os.geteuid() == 0 else {}
    live = Live(
        folder, workers=0, CLUSTER_TOKEN=TOKEN, ARTIFACT_URL=f"file://{folder}/artifacts", RESERVE_SECONDS="2", **users
    )
    try:
        live.start_redis()
        live.start_coordinator()
        start_runner(live, place)
        live.wait_ready(1)
        yield live
    finally:
        live.stop()


def start_runner(live: Live, place: Path) -> None:
    live.start_runner(0, 2, RUNNER_DIR=str(place))


def command(live: Live, argv: list[str] | str, priority: str = "normal", **more: Any) -> str:
    return live.submit("command", {"command": argv, "count": 1, **more}, priority=priority)


def ended(live: Live, job: str) -> Any:
    return until(lambda: (row := live.get(f"/api/jobs/{job}?wait_seconds=5"))["state"] in ENDS and row, 120)


def units(live: Live, job: str) -> list[Any]:
    rows: list[Any] = live.get(f"/api/jobs/{job}/units")["units"]
    return rows


def log(live: Live, job: str, unit: int = 0) -> str:
    """Return a unit's stored log."""
    artifact = units(live, job)[unit]["artifact"]
    assert artifact, "nothing is kept of it"
    lines = octets(live, f"/api/artifacts/{artifact}/manifest").decode().splitlines()[1:]
    [sha] = [entry[3] for entry in map(json.loads, lines) if entry[1] == f"logs/{unit}"]
    return octets(live, f"/api/files/{sha}").decode()


def octets(live: Live, path: str) -> bytes:
    answer = fetch.get(live.url() + path, headers=live.headers(), timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.content


def alive(marker: str) -> list[int]:
    """Return the other processes whose command contains a text."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if any(marker in word for word in words) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


def test_twenty_programs_end_well_and_each_counts_once(programs: Live) -> None:
    result = programs.result(command(programs, ["true"], count=20))
    assert result["units"] == 20
    assert result["workers"] == {"runner-0": 20}


def test_units_that_leave_the_same_large_file_at_once_all_succeed(programs: Live) -> None:
    """The runner has two slots. Units take so long that each lease has only one."""
    line = "sleep 1; yes content | head -c 41943040 > big.bin"
    job = command(programs, ["sh", "-c", line], count=6, outputs=["big.bin"], retries={"max": 0})
    assert programs.result(job)["units"] == 6
    assert all(row["artifact"] for row in units(programs, job))


def test_a_program_that_fails_is_tried_again_and_then_given_up(programs: Live) -> None:
    retries = {"max": 2, "initial_delay_seconds": 0.1, "jitter": False}
    job = command(programs, "echo no >&2; exit 3", retries=retries)
    assert ended(programs, job)["state"] == "failed"
    [unit] = units(programs, job)
    assert (unit["state"], unit["exit"], unit["attempts"]) == ("dead", 3, 3)


def test_a_cancelled_program_and_all_that_it_started_is_dead_when_cancelled_is_said(programs: Live) -> None:
    job = command(programs, f"trap '' TERM; sleep {LEFT} & setsid sleep {LEFT} & wait", grace_seconds=0.5)
    until(lambda: len(alive(LEFT)) >= 3)
    assert programs.post(f"/api/jobs/{job}/cancel").status_code == 200
    assert ended(programs, job)["state"] == "cancelled"
    assert not alive(LEFT)


def test_a_program_finds_no_credential_anywhere(programs: Live) -> None:
    """The program searches its environment, those of its ancestors, and all readable files of the runner."""
    text = (
        "env; p=$PPID; while [ $p -gt 1 ]; do cat /proc/$p/environ /proc/$p/cmdline 2>&1 | tr '\\0' '\\n';"
        " p=$(sed -n 's/^PPid:\\s*//p' /proc/$p/status); done; cd $HOME/../..;"
        " find .. -type f -exec cat {} + 2>/dev/null; true"
    )
    job = command(programs, text)
    programs.result(job)
    written = log(programs, job)
    assert "CLUSTER_JOB_ID" in written
    assert "tc_" not in written and TOKEN not in written and "WORKER_TOKEN=" not in written


def test_a_runner_that_is_killed_leaves_nothing_behind_and_its_units_run_again(programs: Live, place: Path) -> None:
    text = f"cd $CLUSTER_WORKSPACE; test -e begun && exit 0; touch begun; setsid sleep {KILLED} & sleep {KILLED}"
    job = command(programs, text, workspace="killed")
    until(lambda: len(alive(KILLED)) >= 3)
    programs.kill("runner-0")
    until(lambda: not alive(KILLED))
    started = time.monotonic()
    start_runner(programs, place)
    result = programs.result(job)
    assert time.monotonic() - started < 25, "nobody waits for the end of its lease, which takes 30 s"
    assert (result["units"], result["attempts"]) == (1, 1)


def test_a_coordinator_that_is_killed_costs_no_program_its_unit(programs: Live) -> None:
    job = command(programs, "echo begun; sleep 2; echo ended")
    until(lambda: units(programs, job)[0]["state"] == "running")
    programs.kill("coordinator-0")
    programs.start_coordinator()
    assert programs.result(job)["attempts"] == 1
    assert log(programs, job) == "begun\nended\n"


def test_a_runner_that_is_told_to_end_gives_its_unit_back_untried(programs: Live, place: Path) -> None:
    text = f"cd $CLUSTER_WORKSPACE; test -e begun && exit 0; touch begun; trap 'exit 1' TERM; sleep {ENDED} & wait"
    job = command(programs, text, workspace="ended")
    until(lambda: len(alive(ENDED)) >= 2)
    programs.kill("runner-0", signal.SIGTERM)
    start_runner(programs, place)
    assert programs.result(job)["attempts"] == 1


def test_a_job_that_no_runner_fits_holds_up_nobody(programs: Live) -> None:
    job = command(programs, ["true"], requirements={"gpus": 64}, priority="high")
    assert programs.result(command(programs, ["true"], count=100), 240)["units"] == 100
    row = programs.job(job)
    assert row["state"] == "queued" and "64 GPUs" in row["waiting_because"]
    assert programs.post(f"/api/jobs/{job}/cancel").status_code == 200


def test_a_program_that_needs_the_whole_runner_starts_among_an_endless_flow_of_small_ones(programs: Live) -> None:
    # Two that end together would leave room for it before any runner is kept.
    flow = command(programs, "sleep $((6 + CLUSTER_UNIT % 2 * 2))", count=100_000)
    until(lambda: len(units_running(programs)) == 2)
    large = command(programs, ["true"], requirements={"cpus": usable_cores()})
    seen = set[str]()

    def is_kept() -> bool:
        """Both are said, until it starts: of either one is enough at a time."""
        if "runner-0, which is reserved for it" in (programs.job(large)["waiting_because"] or ""):
            seen.add("of the job")
        if programs.get("/api/workers")["workers"][0].get("reserved_for") == large:
            seen.add("of the runner")
        return len(seen) == 2

    until(is_kept)
    assert programs.result(large)["units"] == 1
    assert programs.job(flow)["state"] == "running"
    assert programs.post(f"/api/jobs/{flow}/cancel").status_code == 200
    assert ended(programs, flow)["state"] == "cancelled"


def units_running(live: Live) -> list[Any]:
    running: list[Any] = live.get("/api/workers")["workers"][0].get("running", [])
    return running
