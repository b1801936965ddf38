"""Tests dependent jobs on a real cluster while processes are killed, and the output of the command."""

from __future__ import annotations

from typing import Any

from tests.integration.live import Live, until
from tests.integration.test_cli import run

UNITS = {"units": 20, "seconds_per_unit": 0.02}


def submit(cluster: Live, **more: Any) -> str:
    job: str = cluster.post("/api/submit", {"type": "faulty", "parameters": UNITS, **more}).json()["job_id"]
    return job


def states(cluster: Live, jobs: list[str]) -> list[str]:
    return [cluster.job(job)["state"] for job in jobs]


def test_a_diamond_survives_the_deaths_of_a_worker_and_of_a_coordinator(cluster: Live) -> None:
    """Each job runs once, after the jobs on which it depends."""
    first = submit(cluster)
    middle = [submit(cluster, after=[first]) for _ in range(4)]
    last = submit(cluster, after=middle)
    after = submit(cluster, after_any=[last])
    until(lambda: cluster.job(first)["progress"] > 0.2, every=0.02)
    cluster.kill("worker-0")
    cluster.start_worker(0)
    until(lambda: cluster.job(first)["state"] == "done")
    cluster.kill("coordinator-0")
    cluster.start_coordinator(0)
    until(lambda: cluster.job(after)["state"] == "done", 120)
    rows = {job: cluster.job(job) for job in (first, *middle, last, after)}
    assert {row["state"] for row in rows.values()} == {"done"}
    assert all(rows[job]["started"] >= rows[first]["ended"] for job in middle)
    assert rows[last]["started"] >= max(rows[job]["ended"] for job in middle)
    assert rows[after]["started"] >= rows[last]["ended"]


def test_the_command_line_names_what_waits_and_what_helps(cluster: Live) -> None:
    root = submit(cluster, parameters={"units": 4000, "seconds_per_unit": 0.05})
    code, out, err = run(cluster, "submit", "faulty", "--units", "3", "--after", root)
    child = out.strip()
    assert code == 0 and err.startswith("blocked; watch it with")
    assert f"blocked: waits for 1 job: {root} (" in run(cluster, "job", child)[1]
    assert child in run(cluster, "jobs", "--state", "blocked")[1]
    assert [line.split() for line in run(cluster, "relations", root)[1].splitlines()[1:]] == [
        ["before", child, "blocked"]
    ]
    code, _, err = run(cluster, "delete", root)
    assert code == 2
    assert run(cluster, "cancel", root)[0] == 0
    until(lambda: states(cluster, [root, child]) == ["cancelled", "skipped"])
    code, _, err = run(cluster, "retry", child)
    assert code == 2 and f"cluster retry {root}" in err
    code, _, err = run(cluster, "watch", child)
    assert code == 1 and f"skipped: job {root}, on which it depends, was cancelled" in err
    code, out, err = run(cluster, "submit", "faulty", "--units", "3", "--after", child, "--after-any", root)
    assert code == 0 and "skipped" in err and out.strip() in run(cluster, "relations", root)[1]
    assert run(cluster, "retry", root)[0] == 0
    until(lambda: states(cluster, [child, out.strip()]) == ["blocked", "blocked"])
    assert run(cluster, "cancel", child, root)[0] == 0
    code, _, err = run(cluster, "submit", "faulty", "--units", "3", "--after", "nobody")
    assert code == 2 and "after: job nobody does not exist" in err
