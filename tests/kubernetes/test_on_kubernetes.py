"""Tests the cluster on Kubernetes in this order: exact results, scaling, failures, updates, backups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kubernetes.cluster import LOAD, OVERLAY, Cluster
from tests.stack.load import Load
from tests.stack.stack import ROOT, eventually

#: Timeout in seconds for steps that wait for pods, which start slowly on a busy machine.
pytestmark = pytest.mark.timeout(900)
#: Parameters of a job that takes three workers on two cores some seconds.
LONG = {"start_number": 1, "number_count": 2_000_000_000}
#: Published values: the first numbers below 10^9 with the greatest delay and with the greatest peak.
DELAY_RECORD, PEAK_RECORD = (670617279, 986), (319804831, 1414236446719942480)

#: A file of each image that is changed for an update, keyed by pod name.
CHANGES = {"coordinator": "coordinator/__init__.py", "cpu-worker": "cpu_worker/__init__.py"}


@pytest.fixture(scope="module")
def kept(cluster: Cluster) -> str:
    """Return a job that finished before any failure."""
    job = cluster.submit("collatz", **LONG)
    cluster.result(job)
    return job


@pytest.fixture(scope="module")
def undisturbed(cluster: Cluster, kept: str) -> dict[str, object]:
    return cluster.result(kept)


def test_an_exact_result_comes_through_the_front(cluster: Cluster) -> None:
    result = cluster.result(cluster.submit("collatz", start_number=1, number_count=10**9))
    assert int(result["count"]) == 10**9
    assert (int(result["delay"]["max"]["n"]), int(result["delay"]["max"]["value"])) == DELAY_RECORD
    assert (int(result["peak"]["max"]["n"]), int(result["peak"]["max"]["value"])) == PEAK_RECORD


def test_a_simulation_gives_the_digest_of_the_reference(cluster: Cluster) -> None:
    golden = json.loads((ROOT / "jobs/kinds/thread/golden.json").read_text())
    assert cluster.result(cluster.submit("thread", seed=1))["digest"] in json.dumps(golden)


def test_the_pages_come_and_the_api_asks_for_a_token(cluster: Cluster) -> None:
    assert "text/html" in cluster.http.get("/").headers["content-type"]
    assert cluster.http.get("/api/status", headers={"Authorization": ""}).status_code == 401


def test_a_second_start_changes_nothing(cluster: Cluster) -> None:
    before = cluster.kubectl("get", "pods", "-o", "name")
    cluster.start(3, load=LOAD)
    assert cluster.kubectl("get", "pods", "-o", "name") == before


def test_scaling_reaches_the_number_fails_no_request_and_restarts_no_coordinator(cluster: Cluster) -> None:
    before = cluster.pods("coordinator")
    with Load(cluster.url, threads=4, pause=0.2, headers=cluster.headers) as load:
        cluster.deploy("scale", "5")
        eventually(lambda: cluster.live_workers() == 5, 60, "five workers live")
        cluster.deploy("scale", "3")
        eventually(lambda: cluster.live_workers() == 3, 90, "three workers live")
    assert load.failures == [] and load.requests > 100
    assert cluster.pods("coordinator") == before


def test_a_rolling_update_of_all_but_redis_fails_no_request_and_loses_nothing(
    cluster: Cluster, undisturbed: dict[str, object]
) -> None:
    before = {name: cluster.pods(name) for name in ("redis", "web", "nginx", *CHANGES)}
    with Load(cluster.url, threads=4, pause=0.2, headers=cluster.headers) as load:
        jobs = [cluster.submit("collatz", **LONG) for _ in range(2)]
        cluster.await_progress(jobs[0])
        update(cluster)
        results = [cluster.result(job) for job in jobs]
        eventually(lambda: not cluster.ending(), 90, "old pods have ended", every=1)
    after = {name: cluster.pods(name) for name in before}
    assert [name for name in before if set(after[name]) & set(before[name])] == ["redis"], "all others are new"
    assert results == [undisturbed, undisturbed]
    assert load.failures == [] and load.requests > 100
    ends = {cluster.get(f"/api/jobs/{one}", wait_seconds=5)["state"] for one in load.jobs}
    assert ends == {"done"}, "none that was acknowledged is lost"


def update(cluster: Cluster) -> None:
    """Update like users after a change of the code if this run builds the images; otherwise only restart the pods.

    Pages and nginx are always restarted, because building and loading their images takes long.
    """
    restarted = ["web", "nginx"] if LOAD else ["web", "nginx", "coordinator", "cpu-workers"]
    cluster.kubectl("rollout", "restart", *(f"deployment/{name}" for name in restarted))
    if LOAD:
        for file in CHANGES.values():
            with (cluster.folder / file).open("a") as source:
                source.write("# A change.\n")
        cluster.start(3, load=True)
    for name in restarted:
        cluster.kubectl("rollout", "status", f"deployment/{name}", "--timeout=170s")


def test_a_worker_killed_in_mid_job_changes_nothing(cluster: Cluster, undisturbed: dict[str, object]) -> None:
    job = cluster.submit("collatz", **LONG)
    cluster.await_progress(job)
    cluster.kill(cluster.pods("cpu-worker")[0])
    assert cluster.result(job) == undisturbed
    cluster.settle()


def test_the_death_of_the_leader_changes_nothing(cluster: Cluster, undisturbed: dict[str, object]) -> None:
    leader = eventually(cluster.leader, 20, "a coordinator leads")
    job = cluster.submit("collatz", **LONG)
    cluster.await_progress(job)
    cluster.kill(leader)
    assert cluster.result(job) == undisturbed
    assert eventually(cluster.leader, 30, "another leads") != leader
    cluster.settle()


def test_the_death_of_redis_loses_nothing_acknowledged(cluster: Cluster, undisturbed: dict[str, object]) -> None:
    job = cluster.submit("collatz", **LONG)
    cluster.await_progress(job)
    cluster.kill("redis-0")
    cluster.kubectl("rollout", "status", "statefulset/redis", "--timeout=150s")
    eventually(lambda: cluster.http.get("/ready").status_code == 200, 60, "coordinators are ready again")
    assert cluster.result(job) == undisturbed
    cluster.settle()


def test_status_logs_and_report_tell_and_keep_secrets(cluster: Cluster) -> None:
    status = json.loads(cluster.deploy("status", "--json").stdout)["kubernetes"]
    assert status["workloads"]["coordinator"] == {"ready": 3, "wanted": 3}
    assert status["api"]["workers"]["live"] == 3 + status["workloads"].get("runner", {"wanted": 0})["wanted"]
    # kubectl 1.20 shows no metrics while a finished pod is still listed.
    eventually(
        lambda: "coordinator" in cluster.deploy("logs", "coordinator", check=False).stdout,
        90,
        "logs are there",
        every=1,
    )
    report = cluster.deploy("report").stdout
    assert "## Throughput" in report and cluster.headers["Authorization"].split()[1] not in report


def test_a_backup_brings_everything_back_after_a_cleanup(
    cluster: Cluster, kept: str, undisturbed: dict[str, object]
) -> None:
    cluster.deploy("backup", "kept.tar.gz")
    cluster.deploy("cleanup", "--yes")
    assert "threads-cluster-test" not in cluster.kubectl("get", "namespaces")
    cluster.start(1, load=LOAD)
    assert cluster.http.get(f"/api/jobs/{kept}").status_code == 404
    cluster.deploy("restore", "kept.tar.gz", "--yes")
    assert cluster.get(f"/api/jobs/{kept}/result")["result"] == undisturbed


def test_what_an_old_version_cannot_show_is_said(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    served = set(cluster.kubectl("api-versions").split())
    missing = sorted({"policy/v1", "autoscaling/v2"} - served)
    if missing:
        lowered = (ROOT / OVERLAY / "kustomization.yaml").read_text() if Path(ROOT, OVERLAY).is_dir() else ""
        assert "cannot be" in lowered, "the overlay says what it lowers"
        with capsys.disabled():
            print(f"\nnot shown on this Kubernetes: {', '.join(missing)}, Pod Security, enforced network policies")
