"""Tests runners without coordinators: two attempts of a unit never run at the same time."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.live import TOP, Live, until
from tests.integration.proxy import Link, Proxy

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="runners need Linux")

TOKEN = "t" * 40
#: Seconds within which a unit of a runner that is cut off begins elsewhere: 35, as docs/programs.md promises, and what
#: other tests beside this one take.
RETAKEN_SECONDS = 35 + 25
#: Lease duration of a program in seconds, for tests that wait for the expiry, instead of 30.
SHORT_LEASE = 9
SHORTENED = f"import jobs.store.server.functions\njobs.store.functions.PROGRAM_TTL_MS = {SHORT_LEASE * 1000}\n"
#: Notes the time, by the clock of the machine, twenty times a second until it is told to end; later attempts end soon.
TICKING = """
import os, sys, time
marks, until = sys.argv[1], time.monotonic() + 1
try:
    os.mkdir(f"{marks}/begun")
    until += 600
except FileExistsError:
    pass
with open(f"{marks}/{os.getpid()}", "a", buffering=1) as ticks:
    while time.monotonic() < until and not os.path.exists(f"{marks}/end"):
        print(time.monotonic(), file=ticks)
        time.sleep(0.05)
"""


class HttpProxy(Proxy):
    """Proxy between a runner and a coordinator."""

    def _overhear(self, link: Link, data: bytes) -> None:
        """Repeat nothing, because the traffic is not the Redis protocol."""


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    (tmp_path / "marks").mkdir()
    return tmp_path / "marks"


def ticks(marks: Path) -> list[list[float]]:
    """Return the times at which each attempt was running, first attempt first."""
    found = [[float(line) for line in path.read_text().split()] for path in marks.iterdir() if path.name.isdigit()]
    return sorted(times for times in found if times)


def stands_still(marks: Path) -> bool:
    """Return True if an attempt exists and is suspended."""
    try:
        states = {each.status() for each in programs(marks)}
    except psutil.NoSuchProcess:
        return False
    return states == {psutil.STATUS_STOPPED}


def begin(live: Live, marks: Path) -> str:
    job = live.submit("command", {"command": [sys.executable, "-c", TICKING, str(marks)]})
    until(lambda: ticks(marks))
    return job


def programs(marks: Path) -> list[psutil.Process]:
    return [each for each in psutil.process_iter(["cmdline"]) if str(marks) in (each.info["cmdline"] or [])]


def cluster(folder: Path, **environment: Any) -> Live:
    live = Live(folder, workers=0, CLUSTER_TOKEN=TOKEN, ARTIFACT_URL=f"file://{folder}/artifacts", **environment)
    live.start_redis()
    live.start_coordinator()
    return live


def test_a_unit_of_a_runner_that_is_cut_off_runs_elsewhere_counts_once_and_never_twice_at_a_time(
    tmp_path: Path, marks: Path
) -> None:
    live = cluster(tmp_path)
    proxy = HttpProxy(live.ports[0])
    try:
        proxy.start()
        live.start_runner(0, 1, WORKER_API=f"http://127.0.0.1:{proxy.port}")
        live.wait_ready(1)
        job = begin(live, marks)
        live.start_runner(1, 1)
        live.wait_ready(2)
        proxy.disturb("half-open")
        cut = time.monotonic()
        row = live.result(job, RETAKEN_SECONDS + 15)
        first, second = ticks(marks)
        assert second[0] - cut < RETAKEN_SECONDS
        assert first[-1] < second[0], "the first attempt ran while the second one did"
        assert (row["units"], row["workers"]) == (1, {"runner-1": 1})
        proxy.heal()
        until(lambda: not programs(marks))
        assert [times[-1] for times in ticks(marks)] == [first[-1], second[-1]], "nothing ran afterwards"
        assert live.result(job) == row
        again = live.submit("command", {"command": ["true"], "requirements": {"host": "host-0"}})
        assert live.result(again)["workers"] == {"runner-0": 1}
    finally:
        live.stop()
        proxy.stop()


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start a cluster with shorter leases of programs, and a runner with one slot."""
    folder = tmp_path_factory.mktemp("short")
    (folder / "sitecustomize.py").write_text(SHORTENED)
    live = cluster(folder, PYTHONPATH=f"{folder}:{TOP}")
    try:
        live.start_runner(0, 1)
        live.wait_ready(1)
        yield live
    finally:
        live.stop()


def test_a_program_goes_on_and_is_committed_after_redis_and_coordinators_were_gone_for_longer_than_its_lease(
    short: Live, marks: Path
) -> None:
    job = begin(short, marks)
    # While its disk is slow, Redis keeps what it was told for up to two seconds before it writes it.
    until(lambda: short.redis().info("persistence")["aof_buffer_length"] == 0)
    gone = time.monotonic()
    short.kill("redis")
    short.kill("coordinator-0")
    until(lambda: stands_still(marks))
    assert ticks(marks)[0][-1] - gone > SHORT_LEASE / 2, "it did not run on for most of its lease"
    time.sleep(max(0.0, gone + SHORT_LEASE + 2 - time.monotonic()))
    short.start_redis()
    short.start_coordinator()
    until(lambda: not stands_still(marks))
    (marks / "end").touch()
    assert short.result(job)["attempts"] == 1
    assert len(ticks(marks)) == 1


def test_a_program_goes_on_after_its_runner_was_stopped_for_most_of_its_lease(short: Live, marks: Path) -> None:
    job = begin(short, marks)
    runner = short.processes["runner-0"]
    runner.send_signal(signal.SIGSTOP)
    try:
        until(lambda: stands_still(marks))
    finally:
        runner.send_signal(signal.SIGCONT)
    until(lambda: not stands_still(marks))
    (marks / "end").touch()
    assert short.result(job)["attempts"] == 1
    assert len(ticks(marks)) == 1
