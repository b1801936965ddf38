"""Tests profiles with real processes: samples of several hosts, kills during recording, and the collected files."""

from __future__ import annotations

import contextlib
import gzip
import json
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import fetch
from tests.integration.live import Live, until
from tests.integration.test_cli import run
from tests.integration.test_coming_from import PROFILED, PYTHON_PROFILED
from threads_cluster import Cluster
from threads_protocol import manifest

HZ = 10


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start workers on two hosts, one of which connects only to the coordinator. Two workers share the other host."""
    folder = tmp_path_factory.mktemp("profiles")
    live = Live(folder, workers=0, lanes=1, ARTIFACT_URL=f"file://{folder}/artifacts")
    try:
        live.start_redis()
        live.start_coordinator()
        for number, host in enumerate(("one", "one", "two")):
            begin(live, number, host)
        live.wait_ready(3)
        yield live
    finally:
        live.stop()


def begin(live: Live, number: int, host: str) -> None:
    live.start_worker(number, over_api=host == "two", HOST_ID=host, PROFILE_DIR=str(live.folder / host))


def start(live: Live, name: str, **more: Any) -> Any:
    answer = live.post("/api/profiles", {"name": name, "hz": HZ, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


def profile(live: Live, name: str) -> Any:
    return live.get(f"/api/profiles/{name}")


def sampled(live: Live, name: str, hosts: set[str], samples: int = 1) -> Any:
    """Return the profile when each of these hosts has a growing recording with enough samples."""

    def there() -> Any:
        found = profile(live, name)
        rows = [row for row in found["recordings"] if row["state"] == "recording" and row["samples"] >= samples]
        return {row["host"] for row in rows} >= hosts and found

    return until(there, 120)


def done(live: Live, name: str) -> Any:
    return until(lambda: (found := profile(live, name))["state"] == "done" and found, 150)


def lines(live: Live, found: Any) -> dict[str, list[Any]]:
    """Return the lines of each recording in a profile's artifact, keyed by name."""
    entries = manifest.entries(octets(live, f"/api/artifacts/{found['artifact_id']}/manifest"))
    files = {entry.path: octets(live, f"/api/files/{entry.sha}") for entry in entries}
    assert json.loads(files.pop("profile.json"))["name"] == found["name"]
    return {
        path.removesuffix(".jsonl.gz"): [json.loads(line) for line in gzip.decompress(data).split(b"\n") if line]
        for path, data in files.items()
    }


def octets(live: Live, path: str) -> bytes:
    answer = fetch.get(live.url() + path, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.content


def samplers(live: Live, worker: str) -> list[psutil.Process]:
    found = []
    for child in psutil.Process(live.processes[worker].pid).children():
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            found += [child] * ("jobs.worker.telemetry.sampler" in child.cmdline())
    return found


def test_hosts_are_sampled_once_each_and_a_killed_workers_samples_come_home(cluster: Live) -> None:
    start(cluster, "kills")
    before = sampled(cluster, "kills", {"one", "two"}, samples=2 * HZ)
    assert len([row for row in before["recordings"] if row["host"] == "one"]) == 1, "two workers, one host"
    [killed] = [row["worker"] for row in before["recordings"] if row["host"] == "one"]
    [own] = [row["name"] for row in before["recordings"] if row["host"] == "one"]
    cluster.kill(killed)
    other = {"worker-0": "worker-1", "worker-1": "worker-0"}[killed]
    until(
        lambda: [row for row in profile(cluster, "kills")["recordings"] if row["worker"] == other and row["samples"]],
        120,
    )
    assert cluster.post("/api/profiles/kills/stop").status_code == 200
    found = done(cluster, "kills")
    read = lines(cluster, found)
    assert {row["name"] for row in found["recordings"]} == read.keys() and len(read) == 3
    for name, (head, *rows) in read.items():
        ticks = [row for row in rows if "t" in row]
        assert len(ticks) >= (2 * HZ if name == own else 1) and head["hz"] == HZ
        assert "cpu" in ticks[0] and all(b["t"] > a["t"] for a, b in pairwise(ticks))
        if "end" in rows[-1]:
            assert rows[-1]["samples"] == len(ticks)
    until(lambda: not any(list((cluster.folder / host).iterdir()) for host in ("one", "two")))


def test_kills_of_a_sampler_and_of_the_coordinator_lose_no_recording(cluster: Live) -> None:
    start(cluster, "sampler", hosts=["two"])
    sampled(cluster, "sampler", {"two"}, samples=HZ)
    [process] = samplers(cluster, "worker-2")
    process.kill()
    until(lambda: len(profile(cluster, "sampler")["recordings"]) == 2, 120)
    # The coordinator is killed between the end and what is sent; everybody goes on where it was.
    cluster.post("/api/profiles/sampler/stop")
    cluster.kill("coordinator-0")
    cluster.start_coordinator()
    found = done(cluster, "sampler")
    assert sorted(row["state"] for row in found["recordings"]) == ["kept", "kept"]
    assert len(lines(cluster, found)) == 2
    until(lambda: not samplers(cluster, "worker-2"))


def test_the_words_for_those_who_come_from_elsewhere_work_in_their_order(cluster: Live, tmp_path: Path) -> None:
    start_it, stop_it, analyze_it = ([*shlex.split(typed)[1:]] for typed in PROFILED)
    code, _, err = run(cluster, *start_it)
    assert code == 0, err
    sampled(cluster, start_it[2], {"one", "two"})
    code, _, err = run(cluster, *stop_it)
    assert code == 0, err
    plot = tmp_path / analyze_it[-1]
    code, out, err = run(cluster, *analyze_it[:-1], str(plot))
    assert code == 0, err
    assert "one" in out and plot.read_bytes().startswith(b"%PDF")


def test_a_block_of_python_is_profiled_as_the_page_says(cluster: Live) -> None:
    [typed] = PYTHON_PROFILED
    with Cluster(cluster.url(), "") as connection:
        with eval(typed, {"Cluster": lambda: connection}) as profile:  # noqa: S307 - a line of the page
            sampled(cluster, profile.name, {"one", "two"})
        assert {row["host"] for row in profile.summary()["devices"]} == {"one", "two"}
