"""Artifacts on two coordinators with one folder behind the real nginx: uploads in bundles and parts while one dies."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.store.files import PART_BYTES
from tests import fetch
from tests.integration.live import TOP, Live, running, until
from tests.integration.nginx_bench import Front, before
from threads_cluster.client import api

FILES = 3000


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start two coordinators at two addresses with the same port, without workers."""
    store = tmp_path_factory.mktemp("store")
    folder = tmp_path_factory.mktemp("artifacts")
    with running(folder, workers=0, coordinators=2, own_addresses=True, ARTIFACT_URL=f"file://{store}") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def proxy(live: Live) -> Iterator[Front]:
    """Start nginx with its default limits."""
    with before(live.addresses, live.ports[0]) as running_front:
        yield running_front


@pytest.fixture
def cluster(proxy: Front) -> Iterator[api.Cluster]:
    with api.Cluster(proxy.api) as connected:
        yield connected


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Return a folder with FILES files of 1 to 8 KB."""
    root = tmp_path / "work"
    root.mkdir()
    for number in range(FILES):
        path = root / f"{number % 50:02}" / f"{number}.bin"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(1000 + 7 * number % 7000))
    return root


def same(one: Path, other: Path) -> bool:
    files = [{p.relative_to(root): p.read_bytes() for p in root.rglob("*") if p.is_file()} for root in (one, other)]
    return files[0] == files[1]


def calls(proxy: Front) -> list[tuple[str, str]]:
    """Return methods and paths of the requests that nginx has forwarded."""
    return [(line["method"], line["path"]) for line in proxy.lines()]


def test_three_thousand_files_go_through_nginx_once(
    cluster: api.Cluster, proxy: Front, work: Path, tmp_path: Path
) -> None:
    first = cluster.artifacts.put(work, name="work")
    assert (first["sent_files"], first["artifact"]["files"]) == (FILES, FILES)
    changed = work / "07" / "7.bin"
    changed.write_bytes(b"changed")
    until(lambda: calls(proxy)[-1] == ("POST", "/api/artifacts"))  # nginx notes a call once it is answered
    seen = len(calls(proxy))
    second = cluster.artifacts.put(work, name="work")
    assert (second["sent_files"], second["sent_bytes"]) == (1, 7)
    noted = until(lambda: (noted := calls(proxy)[seen:])[-1:] == [("POST", "/api/artifacts")] and noted)
    assert noted == [("POST", "/api/missing-files"), ("PUT", "/api/file-bundle"), ("POST", "/api/artifacts")]
    assert cluster.artifacts.fetch("work", tmp_path / "got")["fetched_files"] == FILES
    assert same(work, tmp_path / "got")


@pytest.mark.alone
def test_run_sends_three_thousand_files_within_twenty_seconds_and_then_the_one_that_changed(
    live: Live, proxy: Front, work: Path
) -> None:
    environment = live.user("read", "submit", "run") | {"CLUSTER_URL": proxy.api}

    def run() -> str:
        command = [
            sys.executable,
            "-m",
            "threads_cluster",
            "run",
            "--files",
            str(work),
            "--queue",
            "--no-wait",
            "--",
            "true",
        ]
        ran = subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        assert live.post(f"/api/jobs/{ran.stdout.strip()}/cancel").status_code == 200
        return ran.stderr

    began, size = time.monotonic(), sum(path.stat().st_size for path in work.rglob("*.bin"))
    assert f"uploaded 3,000 files, {size:,} bytes of 3,000 files\n" in run()
    assert time.monotonic() - began <= 20
    (work / "07" / "7.bin").write_bytes(b"altered")
    assert "uploaded 1 file, 7 bytes of 3,000 files\n" in run()


def test_a_large_file_survives_the_death_of_a_coordinator_between_its_parts(
    live: Live, cluster: api.Cluster, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "large.bin").write_bytes(os.urandom(5 * PART_BYTES + 11))
    done: list[int] = []

    def progress(so_far: int, _total: int) -> None:
        done.append(so_far)
        if so_far == 2 * PART_BYTES:
            live.kill("coordinator-0")

    try:
        row = cluster.artifacts.put(work, progress=progress)["artifact"]
        assert done[-1] == 5 * PART_BYTES + 11
        assert cluster.artifacts.fetch(row["artifact_id"], tmp_path / "got")["fetched_bytes"] == done[-1]
        assert same(work, tmp_path / "got")
    finally:
        live.start_coordinator(0)


def test_a_coordinator_with_another_folder_does_not_start_and_says_why(live: Live, tmp_path: Path) -> None:
    live.kill("coordinator-1")
    shared = live.environment["ARTIFACT_URL"]
    live.environment["ARTIFACT_URL"] = f"file://{tmp_path}"
    try:
        live.run_coordinator(1)
        assert live.processes.pop("coordinator-1").wait(120) == 2
        last = until(lambda: live.log("coordinator-1").splitlines()[-1])
        assert "mount one shared folder" in last and "redis-cli del ct:filestore" in last
    finally:
        live.environment["ARTIFACT_URL"] = shared
        live.start_coordinator(1)


def test_what_is_too_large_is_refused_before_it_is_read(proxy: Front) -> None:
    headers = {"Content-Type": "application/octet-stream"}
    answer = fetch.put(f"{proxy.api}/api/file-bundle", content=b"x" * (18 << 20), headers=headers, timeout=30)
    assert (answer.status_code, answer.headers["content-type"]) == (413, "application/problem+json")
    answer = fetch.put(f"{proxy.api}/api/file-bundle", content=b"x" * (9 << 20), headers=headers, timeout=30)
    assert answer.status_code == 413 and "over 8519680 bytes" in answer.json()["detail"]


def test_metrics_have_what_is_stored(live: Live, cluster: api.Cluster, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(os.urandom(1000))
    cluster.artifacts.put(tmp_path)
    lines = [line.split() for line in live.metrics().splitlines() if line.startswith("cluster_artifact_")]
    figures = {name: float(value) for name, value in lines}
    assert figures.keys() == {
        f'cluster_artifact_{what}{{state="{state}"}}' for what in ("bytes", "files") for state in ("stored", "loose")
    }
    assert figures['cluster_artifact_bytes{state="stored"}'] > 1000
    assert figures['cluster_artifact_files{state="stored"}'] >= 1
