"""Tests that the holder of a lease can read results of the jobs on which its job depends, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.models import ANONYMOUS
from jobs.store import Store, keys
from jobs.store.server.connection import CoordinatorRejects
from jobs.worker.api.api_files import JobFiles, Stale
from tests.contract.api_transport import Served, serve
from tests.contract.fake_runner import Runner, submit, written
from tests.unit.artifact_bench import sha_of
from threads_protocol.manifest import Entry

LARGE = b"x" * (2 << 20)
TREE = {"outputs/0/large": LARGE, "values/1.json": b"[1]", "logs/0": b"log"}


@pytest.fixture
def served(any_redis_url: str, store: Store, tmp_path: Path) -> Iterator[Served]:
    with serve(any_redis_url, store, artifact_url=f"file://{tmp_path}/store", cluster_token="t" * 32) as made:
        yield made


@pytest.fixture
def runner(served: Served, store: Store, tmp_path: Path) -> Runner:
    """Return a runner that holds a lease of job `b`, which runs after job `a` and does not depend on job `c`."""
    runner = Runner(served)
    for job in ("a", "c"):
        submit(store, job, total=3, kind="command")
        finish(store, runner, job, tmp_path)
    submit(store, "b", kind="command", after=("a",))
    runner.takes("b")
    return runner


def finish(store: Store, runner: Runner, job: str, folder: Path) -> None:
    """Run the units of a job: the first one has files, and the second one a large value."""
    runner.takes(job)
    runner.files(job).keep(written(folder / job, {**TREE, "outputs/0/v": job.encode()}), [0, 1])
    run = {"lo": 0, "worker": "r", "ms": [5] * 3, "attempts": [1] * 3, "values": [["v"], {"artifact": True}, 7]}
    text = json.dumps({"runs": [run]}).encode()
    assert runner.api.leases.commit(job, "t", 3, text, ms=1, worker="", device="runner").merged
    assert store.client.hget(keys.job(job), "state") == b"done", "the coordinator finishes a short program"


def fetch(files: JobFiles, sha: str, parent: str, size: int = 1) -> bytes:
    found: dict[str, bytes] = {}
    entry = Entry(kind="f", path="x", size=size, sha=sha)
    files.fetch([entry], lambda sha, pieces: found.update({sha: b"".join(pieces)}), parent)
    return found[sha]


def test_values_and_output_files_of_units_are_read(runner: Runner) -> None:
    files = runner.files("b")
    assert files.results([("a", 2), ("a", 0), ("a", 1), ("a", 2)]) == [
        {"value": 7, "files": []},
        {
            "value": ["v"],
            "files": [["outputs/0/large", len(LARGE), sha_of(LARGE)], ["outputs/0/v", 1, sha_of(b"a")]],
        },
        {"value": {"artifact": True}, "files": [["values/1.json", 3, sha_of(b"[1]")]]},
        {"value": 7, "files": []},
    ]
    assert fetch(files, sha_of(b"a"), "a:0") == b"a"
    assert fetch(files, sha_of(LARGE), "a:0", len(LARGE)) == LARGE


def test_other_jobs_other_units_and_logs_are_refused(runner: Runner) -> None:
    files = runner.files("b")
    for job in ("c", "b", "missing"):
        with pytest.raises(CoordinatorRejects, match=rf"\(403\): units: job b does not depend on job {job}"):
            files.results([("a", 0), (job, 0)])
        with pytest.raises(CoordinatorRejects, match=r"\(403\)"):
            fetch(files, sha_of(b"a"), f"{job}:0")
    for sha, parent in ((sha_of(b"log"), "a:0"), (sha_of(b"a"), "a:1"), (sha_of(b"a"), "")):
        for size in (1, len(LARGE)):
            with pytest.raises(CoordinatorRejects, match=r"\(403\): 1 files are not input files"):
                fetch(files, sha, parent, size)
    with pytest.raises(CoordinatorRejects, match=r"\(422\): units: job a has no unit 3"):
        files.results([("a", 3)])
    for units in ([], [{"job": "a", "unit": 0}] * 101, [{"job": "a"}], [["a", 0]], [{"job": "a", "unit": -1}]):
        body: dict[str, Any] = {"units": units}
        with pytest.raises(CoordinatorRejects, match=r"\(422\)"):
            runner.api.api.octets("POST", "jobs/b/results?lease=t", json.dumps(body).encode())
    with pytest.raises(CoordinatorRejects, match=r"\(422\)"):
        fetch(files, sha_of(b"a"), "a")


def test_results_of_another_tenant_are_refused(served: Served, store: Store, tmp_path: Path) -> None:
    runner = Runner(served)
    submit(store, "a", total=3, kind="command", tenant="theirs")
    finish(store, runner, "a", tmp_path)
    submit(store, "b", kind="command")
    runner.takes("b")
    with pytest.raises(CoordinatorRejects, match=r"\(403\)"):
        runner.files("b").results([("a", 0)])


def test_deleted_results_and_ended_leases_are_reported(served: Served, store: Store, runner: Runner) -> None:
    for files in (Runner(served, "other").files("b"), runner.files("b", "old")):
        with pytest.raises(Stale):
            files.results([("a", 0)])
    files, trees = runner.files("b"), served.app.state.coordinator.cluster.artifacts
    trees.delete("default", str(store.outputs.artifact("a", 0)), ANONYMOUS, job="a")
    with pytest.raises(CoordinatorRejects, match="the output of unit 0 was deleted"):
        files.results([("a", 0)])
    assert store.jobs.delete("a") == ["ok", "done"]
    with pytest.raises(CoordinatorRejects, match=r"\(404\): units: job a was deleted, with its results"):
        files.results([("a", 2)])
    assert runner.api.leases.release("b", "t")
    with pytest.raises(Stale):
        files.results([("a", 2)])


def test_units_that_are_not_done_are_reported(served: Served, store: Store) -> None:
    submit(store, "a", kind="command")
    submit(store, "b", kind="command", after_any=("a",))
    store.jobs.cancel("a")
    store.fleet.wake()
    runner = Runner(served)
    runner.takes("b")
    with pytest.raises(CoordinatorRejects, match=r"\(409\): units: unit 0 of job a is waiting, not done"):
        runner.files("b").results([("a", 0)])
