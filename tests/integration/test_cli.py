"""Tests the `cluster` command as a process with a real cluster."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from typing import Any

from tests.integration.live import TOP, Live, until
from threads_cluster.client.api import Cluster

SLOW = ("submit", "faulty", "--seconds-per-unit", "0.05")


def start(cluster: Live, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "CLUSTER_URL": cluster.url(), "PYTHONPATH": str(TOP)}
    command = [sys.executable, "-W", "error", "-m", "threads_cluster", *arguments]
    return subprocess.Popen(
        command, env=environment, cwd=TOP, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def patient(err: str) -> str:
    """Remove lines about a cluster that has not answered for three seconds, as after a restart."""
    return re.sub(r".*(; retrying|; waiting for up to [0-9]+ s more)\n", "", err)


def ran(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, patient(err)


def run(cluster: Live, *arguments: str) -> tuple[int, str, str]:
    return ran(start(cluster, *arguments))


def newest(cluster: Live) -> Any:
    return cluster.get("/api/jobs?limit=1")["jobs"][0]


def test_submit_and_wait_print_one_line_with_the_result(cluster: Live) -> None:
    code, out, err = run(cluster, "submit", "faulty", "--units", "1e3", "--wait", "--json")
    assert (code, err) == (0, "")
    [line] = out.splitlines()
    job = json.loads(line)
    assert (job["state"], job["result"]) == ("done", {"sum": 499500, "count": 1000})


def test_the_id_of_a_submission_goes_through_every_command(cluster: Live) -> None:
    code, out, _ = run(cluster, "submit", "faulty", "--units", "40", "--seconds-per-unit", "0.05")
    job_id = out.strip()
    assert code == 0
    assert run(cluster, "job", job_id)[0] == 0
    assert job_id in run(cluster, "jobs")[1]
    code, out, _ = run(cluster, "watch", job_id, "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert (code, events[-1]["state"], events[-1]["done"]) == (0, "done", 40)
    assert run(cluster, "result", job_id, "--csv")[1] == "name,value\nsum,780\ncount,40\n"
    assert run(cluster, "cancel", job_id)[0] == 2
    assert run(cluster, "delete", job_id)[:2] == (0, f"{job_id} deleted\n")
    assert run(cluster, "job", job_id)[0] == 2


def test_the_trace_of_a_job_has_all_its_units_within_its_time(cluster: Live) -> None:
    job_id = cluster.submit("faulty", {"units": 60, "seconds_per_unit": 0.05})
    cluster.result(job_id)
    code, out, err = run(cluster, "profile", "kernels", job_id, "--output", "-")
    assert code == 0, err
    slices = [event for event in json.loads(out)["traceEvents"] if event.get("cat") == "leases"]
    assert sum(int(each["args"]["units"]) for each in slices) == 60
    assert sum(each["args"]["leases"] for each in slices) >= 2
    runs = next(event for event in json.loads(out)["traceEvents"] if event["name"] == "runs")
    ends = runs["ts"] + runs["dur"]
    assert all(runs["ts"] <= each["ts"] + 2000 and each["ts"] + each["dur"] <= ends + 2000 for each in slices)
    assert "open this file in https://ui.perfetto.dev" in err


def test_a_failed_job_is_exit_code_1_with_its_reason(cluster: Live) -> None:
    code, out, err = run(cluster, "submit", "faulty", "--units", "3", "--fault", "raise", "--at", "1", "--wait")
    assert (code, out) == (1, "")
    assert "asked to" in err


def test_bad_values_are_refused_with_the_name_of_the_flag(cluster: Live) -> None:
    code, out, err = run(cluster, "submit", "faulty", "--units", "0")
    assert (code, out) == (2, "")
    assert "--units" in err and "1..9007199254740992" in err


def test_ctrl_c_leaves_the_job_running(cluster: Live) -> None:
    waiting = start(cluster, *SLOW, "--units", "4000", "--wait")
    assert waiting.stderr
    job_id = next(line for line in waiting.stderr if line.startswith("job ")).removeprefix("job ").strip()
    cluster.wait_for(job_id, "running")
    waiting.send_signal(signal.SIGINT)
    code, out, err = ran(waiting)
    assert (code, out) == (130, "")
    assert f"cluster watch {job_id}" in err
    assert cluster.job(job_id)["state"] == "running"
    assert run(cluster, "cancel", job_id)[0] == 0
    cluster.wait_for(job_id, "cancelled")


def test_waiting_does_not_notice_a_restart_of_the_coordinator(cluster: Live) -> None:
    waiting = start(cluster, *SLOW, "--units", "400", "--wait", "--json")
    watching = None
    try:
        job_id = until(lambda: newest(cluster)["total"] == 400 and newest(cluster)["job_id"])
        watching = start(cluster, "watch", job_id, "--json")
        assert watching.stdout
        assert json.loads(watching.stdout.readline())["state"] in ("queued", "running")
        cluster.kill("coordinator-0")
        cluster.start_coordinator()
        code, out, err = ran(waiting)
        assert (code, err) == (0, "")
        assert json.loads(out)["result"]["count"] == 400
        code, out, err = ran(watching)
        assert (code, err) == (0, "")
        assert json.loads(out.splitlines()[-1])["state"] == "done"
    finally:
        waiting.kill()
        if watching:
            watching.kill()


def test_questions_and_marks_of_any_kind(cluster: Live) -> None:
    job_id = run(cluster, "submit", "faulty", "--units", "9", "--mark-from", "1", "--wait", "--json")[1]
    job_id = json.loads(job_id)["job_id"]
    assert json.loads(run(cluster, "ask", job_id, "first", "units=4")[1]) == {"sum": 6, "count": 4}
    code, _, err = run(cluster, "ask", job_id, "last")
    assert code == 2 and "kind faulty does not support question last; supported: first" in err
    assert run(cluster, "mark", "faulty", "summed")[:2] == (0, "summed  1..9\n")
    code, _, err = run(cluster, "mark", "faulty", "proved")
    assert code == 2 and "its marks are summed" in err


def test_drain_keeps_work_away_until_it_is_over(cluster: Live) -> None:
    [worker] = cluster.get("/api/workers")["workers"]
    assert run(cluster, "drain", worker["id"])[0] == 0
    assert "draining" in run(cluster, "workers")[1]
    job_id = run(cluster, "submit", "faulty", "--units", "2")[1].strip()
    assert cluster.job(job_id)["state"] == "queued"
    assert run(cluster, "drain", worker["id"], "--off")[0] == 0
    assert run(cluster, "watch", job_id)[0] == 0


def test_many_jobs_from_python(cluster: Live) -> None:
    with Cluster(cluster.url(), "") as connection:
        answers = connection.submit_batch([{"type": "faulty", "parameters": {"units": n}} for n in range(1, 51)])
        results = connection.results([one["job_id"] for one in answers], wait_seconds=30)
    assert [one["result"]["count"] for one in results] == list(range(1, 51))


def test_a_job_submitted_twice_with_one_key_is_one_job(cluster: Live) -> None:
    with Cluster(cluster.url(), "") as connection:
        first, second = (connection.submit("faulty", {"units": 7}, idempotency_key="twice") for _ in range(2))
    assert first["job_id"] == second["job_id"]


def test_status_and_kinds(cluster: Live) -> None:
    until(lambda: "1 cpu" in run(cluster, "status")[1])
    assert "faulty" in run(cluster, "kinds")[1]
    assert run(cluster, "version")[1].strip() == cluster.get("/api/status")["version"]


def test_no_cluster_says_how_to_start_one() -> None:
    nowhere = Live(TOP)
    code, out, err = run(nowhere, "status")
    assert (code, out) == (3, "")
    assert "./deploy-cluster.sh local" in err
