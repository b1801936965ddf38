"""Tests jobs with programs over HTTP on a real Redis: permissions, references, and unit records."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from coordinator.jobs.caches.unit_cache import UnitCache
from jobs.kinds import programs as program
from jobs.kinds import registry
from jobs.kinds.command.definition import KIND
from jobs.store.work import lease_tokens
from jobs.worker import execution
from tests.unit.artifact_bench import TOKEN, Bench, sha_of

DATA = b"1\n2\n"


class Runner:
    """A runner as seen by its requests: each slot is a lane."""

    def __init__(self, bench: Bench, job: str) -> None:
        self.leases, self.results, self.job = bench.store.leases, bench.store.results, job
        self.store = bench.store

    def lease(self, want: int = 1, worker: str = "runner-1", lane: str = "0") -> Any:
        return self.leases.lease(self.job, lease_tokens.new(), want=want, worker=worker, lane=f"{worker}/{lane}")

    def end(self, lease: Any, worker: str = "runner-1", values: Any = None, keep: bool = False) -> Any:
        units = range(lease.lo, lease.hi)
        part = program.finished_partial(lease.lo, worker, [1500] * len(units), [lease.errors + 1] * len(units), values)
        encoded = execution.encode(part)
        return self.leases.commit(
            self.job, lease.token, lease.hi, encoded, ms=1500, worker=worker, device="runner", keep=keep
        )

    def fail(self, lease: Any, most: int = 0, **row: Any) -> None:
        row = {
            "unit": lease.lo,
            "exit": 3,
            "reason": "",
            "seconds": 0.5,
            "attempt": lease.errors + 1,
            "worker": "runner-1",
            "error": "exit code 3",
            **row,
        }
        assert self.leases.fail_unit(
            self.job, lease.token, "exit code 3", most=most, wait_ms=60_000, row=json.dumps(row)
        )


@pytest.fixture
def bench(redis_url: str, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(redis_url, tmp_path / "store", secrets_key="1" * 32)
    yield made
    made.close()


def submit(bench: Bench, parameters: dict[str, Any], token: str = "", **more: Any) -> httpx.Response:
    body = {"type": "command", "parameters": parameters, **more}
    return bench.ask("POST", "/api/submit", body, token=token or TOKEN)


def submitted(bench: Bench, **parameters: Any) -> Runner:
    answer = submit(bench, {"command": ["true"], **parameters})
    assert answer.status_code == 202, answer.text
    return Runner(bench, answer.json()["job_id"])


def refused(answer: httpx.Response, status: int, field: str, *words: str) -> None:
    problem = answer.json()
    assert (answer.status_code, problem["field"]) == (status, field), problem
    for word in words:
        assert word in problem["detail"], problem


def units(bench: Bench, runner: Runner, query: str = "") -> dict[str, Any]:
    answer = bench.ask("GET", f"/api/jobs/{runner.job}/units{query}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def states(bench: Bench, runner: Runner) -> list[Any]:
    found: list[Any] = bench.ask("GET", f"/api/jobs/{runner.job}/unit-states").json()["runs"]
    return found


# -- who may submit what ----------------------------------------------------------------------------------------------


def test_a_token_needs_the_scope_run(bench: Bench) -> None:
    for scopes in (("read", "submit"), ("read", "submit", "operate")):
        answer = submit(bench, {"command": ["true"]}, bench.token("default", *scopes))
        refused(
            answer,
            403,
            "Authorization",
            "the scope run",
            f"the token has {', '.join(sorted(scopes))}",
            "cluster token create NAME --scopes read,submit,run",
        )
    assert submit(bench, {"command": ["true"]}, bench.token("default", "submit", "run")).status_code == 202


def test_without_tokens_nobody_runs_a_program(redis_url: str, tmp_path: Path) -> None:
    from coordinator import app
    from jobs.settings import Settings

    bench = Bench(redis_url, tmp_path / "store")
    bench.bridge.http_transport = httpx.ASGITransport(app.create(Settings(redis_url=redis_url)))
    answer = bench.ask("POST", "/api/submit", {"type": "command", "parameters": {"command": ["true"]}}, token="")
    bench.close()
    refused(answer, 403, "Authorization", "this request has no token", "cluster login")


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_programs_run_on_runners_alone(bench: Bench, device: str) -> None:
    refused(submit(bench, {"command": ["true"]}, device=device), 422, "device", "runs on runners", "requirements")
    refused(submit(bench, {"command": ["true"]}, gpu_preferred=True), 422, "gpu_preferred", "requirements")


def test_a_job_is_in_a_queue_of_runners(bench: Bench) -> None:
    for device in (None, "runner", "any"):
        answer = submit(bench, {"command": ["echo", "{unit}"], "count": 5}, device=device, priority="high")
        job = bench.ask("GET", f"/api/jobs/{answer.json()['job_id']}").json()
        assert (job["queue"], job["total"], job["type"]) == ("runner.high", 5, "command")
        assert job["device"] == "runner"
    other = {"type": "collatz", "parameters": {"start_number": 1, "number_count": 1}, "device": "runner"}
    refused(bench.ask("POST", "/api/submit", other), 422, "device", "cannot run on device runner")


def test_every_kind_says_where_it_runs(bench: Bench) -> None:
    kinds = {kind["type"]: kind["devices"] for kind in bench.ask("GET", "/api/job-types").json()["kinds"]}
    assert kinds["command"] == ["runner"]
    submittable = [kind for kind in registry.names() if not registry.definition(kind).is_for_leader]
    assert kinds == {kind: list(registry.devices(kind)) for kind in submittable}


def test_secrets_must_be_there(bench: Bench) -> None:
    answer = submit(bench, {"command": ["true"], "secrets": ["KEY", "OTHER"]})
    refused(answer, 404, "parameters.secrets", "no secret KEY, OTHER", "cluster secret set KEY")
    for name in ("KEY", "OTHER"):
        bench.ask("PUT", f"/api/secrets/{name}", {"value": "hunter2-hunter2"})
    runner = submitted(bench, secrets=["KEY", "OTHER"])
    job = bench.ask("GET", f"/api/jobs/{runner.job}")
    assert job.json()["parameters"]["secrets"] == ["KEY", "OTHER"] and "hunter2" not in job.text
    refused(
        submit(bench, {"command": ["true"], "secrets": ["KEY"]}, bench.token("other", "submit", "run")),
        404,
        "parameters.secrets",
        "tenant other has no secret KEY",
    )


def test_so_many_different_requirements_wait_at_once(bench: Bench) -> None:
    jobs = [
        {"type": "command", "parameters": {"command": ["true"], "requirements": {"labels": [f"l{number}"]}}}
        for number in range(257)
    ]
    answers = bench.ask("POST", "/api/submit-batch", {"jobs": jobs}).json()["answers"]
    assert all("job_id" in answer for answer in answers[:256])
    last = answers[256]["error"]
    assert (last["status"], last["field"]) == (429, "parameters.requirements") and "256 different" in last["detail"]
    bench.ask("POST", f"/api/jobs/{answers[0]['job_id']}/cancel")
    assert submit(bench, jobs[256]["parameters"]).status_code == 202  # type: ignore[arg-type]


def test_a_job_that_waits_says_what_is_lacking(bench: Bench) -> None:
    runner = submitted(bench, requirements={"gpus": 4})
    assert "start a runner with" in bench.ask("GET", f"/api/jobs/{runner.job}").json()["waiting_because"]


# -- artifacts --------------------------------------------------------------------------------------------------------


def put(bench: Bench, name: str, data: bytes = DATA, **more: Any) -> str:
    bench.put_file(data, **more)
    answer = bench.commit(["f", "a.txt", len(data), sha_of(data)], name=name, **more)
    return str(answer.json()["artifact"]["artifact_id"])


def test_names_of_artifacts_become_ids_that_the_job_holds(bench: Bench) -> None:
    one, two = put(bench, "tools"), put(bench, "rows", b"3\n")
    runner = submitted(bench, files="tools", items_artifact=two[:8], count=2)
    recorded = bench.ask("GET", f"/api/jobs/{runner.job}").json()["parameters"]
    assert (recorded["files"], recorded["items_artifact"]) == (one, two)
    for artifact in (one, two):
        refused(bench.ask("DELETE", f"/api/artifacts/{artifact}"), 409, "artifact", f"held by job:{runner.job}")
    bench.ask("POST", f"/api/jobs/{runner.job}/cancel")
    assert bench.ask("DELETE", f"/api/jobs/{runner.job}").status_code == 204
    assert bench.ask("DELETE", f"/api/artifacts/{one}").status_code == 204


def test_artifacts_that_are_not_there_are_named(bench: Bench) -> None:
    refused(
        submit(bench, {"command": ["true"], "files": "nosuch"}),
        404,
        "parameters.files",
        "artifact nosuch does not exist",
    )
    put(bench, "theirs", token=bench.token("other"))
    refused(
        submit(bench, {"command": ["true"], "files": "theirs"}),
        404,
        "parameters.files",
        "artifact theirs does not exist",
    )
    bench.put_file(DATA)
    rows = [["f", name, len(DATA), sha_of(DATA)] for name in ("a", "b")]
    bench.commit(*rows, name="two")
    parameters = {"command": ["true"], "items_artifact": "two", "count": 2}
    refused(submit(bench, parameters), 422, "parameters.items_artifact", "two has 2")
    assert submit(bench, {**parameters, "persistent": True}).status_code == 202


def test_a_client_deletes_the_artifacts_of_a_job_that_has_ended(bench: Bench) -> None:
    artifact = put(bench, "calls")
    job = submitted(bench, items_artifact=artifact, count=1).job
    bench.ask("DELETE", f"/api/artifacts/{artifact}?job={job}")
    row = bench.ask("GET", f"/api/artifacts/{artifact}").json()
    assert (row["names"], row["held_by"]) == ([], [f"job:{job}"])
    bench.ask("POST", f"/api/jobs/{job}/cancel")
    refused(bench.ask("DELETE", f"/api/artifacts/{artifact}?job=another"), 409, "artifact", f"held by job:{job}")
    assert bench.ask("DELETE", f"/api/artifacts/{artifact}?job={job}").status_code == 204
    assert bench.ask("GET", f"/api/artifacts/{artifact}").status_code == 404
    assert bench.sums()[:2] == (0, 0)
    assert bench.ask("DELETE", f"/api/jobs/{job}").status_code == 204
    bench.collect()


def test_an_artifact_that_goes_before_the_job_is_written_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(bench, "tools")
    row = bench.trees.find("default", "tools")
    bench.delete("tools")
    monkeypatch.setattr(bench.trees, "find", lambda tenant, name: row)
    answer = submit(bench, {"command": ["true"], "files": "tools"})
    refused(answer, 404, "parameters.files", f"artifact {row.id} was deleted")


def test_a_batch_looks_each_artifact_up_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    put(bench, "tools")
    asked: list[str] = []
    find = bench.trees.find

    def counted(tenant: str, name: str) -> Any:
        asked.append(name)
        return find(tenant, name)

    monkeypatch.setattr(bench.trees, "find", counted)
    good = {"type": "command", "parameters": {"command": ["true"], "files": "tools"}}
    bad = {"type": "command", "parameters": {"command": ["true"], "files": "nosuch"}}
    answers = bench.ask("POST", "/api/submit-batch", {"jobs": [good, bad] * 100}).json()["answers"]
    assert asked == ["tools", "nosuch"]
    assert [answer.get("error", {}).get("status", 202) for answer in answers] == [202, 404] * 100


# -- units ------------------------------------------------------------------------------------------------------------


def test_units_are_shown_in_every_state_of_the_job(bench: Bench) -> None:
    runner = submitted(bench, count=8)
    assert states(bench, runner) == [[0, 8, "waiting"]]
    first = runner.lease(2)
    runner.end(first, values=[{"a": 1}, None])
    runner.fail(runner.lease(), exit=3)
    runner.fail(runner.lease(), most=3, exit=None, reason="timeout")
    batch = runner.lease(2, "runner-2")
    assert states(bench, runner) == [
        [0, 2, "done"],
        [2, 3, "dead"],
        [3, 4, "retrying"],
        [4, 6, "running"],
        [6, 8, "waiting"],
    ]
    found = units(bench, runner)
    assert found["total"] == 8
    assert found["counts"] == {"waiting": 2, "running": 2, "done": 2, "retrying": 1, "dead": 1}
    rows = found["units"]
    assert [row["unit"] for row in rows] == list(range(8))
    assert rows[0] == {
        "unit": 0,
        "state": "done",
        "exit": 0,
        "reason": "",
        "seconds": 1.5,
        "attempts": 1,
        "worker": "runner-1",
        "value": {"a": 1},
        "error": None,
        "artifact": None,
    }
    assert rows[2] == {
        "unit": 2,
        "state": "dead",
        "exit": 3,
        "reason": "",
        "seconds": 0.5,
        "attempts": 1,
        "worker": "runner-1",
        "value": None,
        "error": "exit code 3",
        "artifact": None,
    }
    assert (rows[3]["state"], rows[3]["exit"], rows[3]["reason"]) == ("retrying", None, "timeout")
    assert (rows[4]["worker"], rows[4]["attempts"], rows[5]["worker"]) == ("runner-2", 1, "runner-2")
    assert 0 <= rows[4]["seconds"] < 60 and rows[5]["seconds"] is None
    assert [row["unit"] for row in units(bench, runner, "?state=done&from=1")["units"]] == [1]
    assert [row["unit"] for row in units(bench, runner, "?state=waiting&limit=1")["units"]] == [6]
    assert units(bench, runner, "?from=9007199254740992")["units"] == []
    runner.end(batch, "runner-2")
    bench.ask("POST", f"/api/jobs/{runner.job}/cancel")
    assert bench.ask("GET", f"/api/jobs/{runner.job}").json()["state"] == "cancelled"
    assert units(bench, runner)["counts"]["done"] == 4


def test_a_job_that_failed_is_readable_and_its_dead_units_are_tried_again(bench: Bench) -> None:
    runner = submitted(bench, count=2)
    runner.fail(runner.lease(), seconds=2.5, value=["why"])
    runner.end(runner.lease())
    assert bench.ask("GET", f"/api/jobs/{runner.job}").json()["state"] == "failed"
    rows = units(bench, runner)["units"]
    found = [(row["state"], row["seconds"], row["value"]) for row in rows]
    assert found == [("dead", 2.5, ["why"]), ("done", 1.5, None)]
    refused(
        bench.ask("GET", f"/api/jobs/{runner.job}/result"),
        409,
        "state",
        "the job is failed",
        f"cluster units {runner.job}",
        f"cluster logs {runner.job}",
    )
    so_far = bench.ask("GET", f"/api/jobs/{runner.job}/result?partial=true").json()
    assert (so_far["partial"], so_far["result"]["units"]) == (True, 1)
    assert bench.ask("POST", f"/api/jobs/{runner.job}/retry").status_code == 200
    assert states(bench, runner) == [[0, 1, "waiting"], [1, 2, "done"]]
    assert units(bench, runner)["units"][0]["attempts"] == 1
    again = runner.lease()
    assert units(bench, runner)["units"][0]["attempts"] == 2
    assert runner.end(again).finishing
    assert execution.finish(runner.store, runner.job, "command", {})
    job = bench.ask("GET", f"/api/jobs/{runner.job}").json()
    assert (job["state"], job["error"]) == ("done", None)


def test_a_job_that_is_done_shows_no_error_of_an_attempt_that_was_repeated(bench: Bench) -> None:
    runner = submitted(bench, count=1)
    runner.fail(runner.lease(), most=3)
    assert bench.ask("GET", f"/api/jobs/{runner.job}").json()["error"]
    bench.store.client.zadd(f"ct:job:{runner.job}:retry", {"0:1:0:1": 0})
    assert runner.end(runner.lease()).finishing
    assert execution.finish(runner.store, runner.job, "command", {})
    job = bench.ask("GET", f"/api/jobs/{runner.job}").json()
    assert (job["state"], job["error"]) == ("done", None)
    assert units(bench, runner)["units"][0]["attempts"] == 2


def test_a_job_that_is_done_has_its_result_and_its_units(bench: Bench) -> None:
    runner = submitted(bench, count=3)
    for _ in range(3):
        runner.end(runner.lease(), values=["x"])
    spec = json.loads(runner.results.gather(runner.job).spec or b"{}")
    assert execution.finish(runner.store, runner.job, "command", spec)
    result = bench.ask("GET", f"/api/jobs/{runner.job}/result").json()["result"]
    assert result == {
        "units": 3,
        "seconds": {"sum": 4.5, "least": 1.5, "most": 1.5, "median": 1.5},
        "attempts": 3,
        "workers": {"runner-1": 3},
    }
    assert [row["value"] for row in units(bench, runner)["units"]] == ["x"] * 3
    assert states(bench, runner) == [[0, 3, "done"]]


def test_files_of_units_are_named(bench: Bench) -> None:
    runner = submitted(bench, count=2)
    runner.end(runner.lease())
    runner.fail(runner.lease())
    bench.store.client.hset(f"ct:job:{runner.job}:files", mapping={"0": "a" * 64, "1": "b" * 64})
    assert [row["artifact"] for row in units(bench, runner)["units"]] == ["a" * 64, "b" * 64]


def test_units_of_a_runner_that_died_over_them_say_so(bench: Bench) -> None:
    runner = submitted(bench, count=1)
    for _ in range(4):
        runner.leases.crash(runner.job, runner.lease().token)
    [row] = units(bench, runner)["units"]
    assert (row["state"], row["reason"]) == ("dead", "lost") and "died" in row["error"]


def test_ranges_that_were_given_up_are_shown_by_the_thousand(bench: Bench) -> None:
    runner = submitted(bench, count=3000)
    bench.store.client.rpush(f"ct:job:{runner.job}:dead", *(f"{unit}:{unit + 1}:0:4" for unit in range(2500)))
    bench.store.client.hset(f"ct:job:{runner.job}", "dead|7", "exit code 3")
    for path, shown in ((f"/api/jobs/{runner.job}/dead", 1000), ("/api/dead", 0)):
        jobs = bench.ask("GET", path).json()["jobs"]
        assert [(len(job["ranges"]), job["more_ranges"]) for job in jobs] == [(shown, 2500 - shown)] * bool(shown)
    [job] = bench.ask("GET", f"/api/jobs/{runner.job}/dead").json()["jobs"]
    assert job["ranges"][7] == {"first": 7, "last": 7, "deaths": 0, "errors": 4, "error": "exit code 3"}
    runner.lease()
    [job] = bench.ask("GET", "/api/dead").json()["jobs"]
    assert (len(job["ranges"]), job["more_ranges"]) == (20, 2480)


def test_other_kinds_have_no_rows_of_units(bench: Bench) -> None:
    body = {"type": "collatz", "parameters": {"start_number": 1, "number_count": 10**9}}
    job = bench.ask("POST", "/api/submit", body).json()["job_id"]
    for path in ("units", "unit-states"):
        refused(bench.ask("GET", f"/api/jobs/{job}/{path}"), 404, "job_id", "kind collatz", "no programs")
        refused(bench.ask("GET", f"/api/jobs/nosuch/{path}"), 404, "job_id", "no job nosuch")


def test_units_of_another_tenant_are_those_of_a_job_that_does_not_exist(bench: Bench) -> None:
    runner = submitted(bench)
    for path in ("units", "unit-states"):
        answer = bench.ask("GET", f"/api/jobs/{runner.job}/{path}", token=bench.token("other"))
        refused(answer, 404, "job_id", "no job")


def test_what_is_broken_in_redis_is_said(bench: Bench) -> None:
    runner = submitted(bench, count=3)
    for key, value in (("free", "x"), ("acc", "no json"), ("acc", '{"runs": [{"lo": "a"}]}')):
        client, name = bench.store.client, f"ct:job:{runner.job}:{key}"
        client.rpush(name, value) if key == "free" else client.set(name, value)
        refused(bench.ask("GET", f"/api/jobs/{runner.job}/units"), 409, "job_id", "is corrupt")
        client.delete(name)
    bench.store.client.set(f"ct:job:{runner.job}:dead", "text")
    refused(bench.ask("GET", f"/api/jobs/{runner.job}/unit-states"), 409, "job_id", "is corrupt")


def test_what_is_kept_of_units_is_never_what_they_were(bench: Bench) -> None:
    """After every request of a runner or user, the records equal those of a replica that has never seen the job."""
    runner = submitted(bench, count=12)
    reads = bench.store.unit_reads
    kept, marks = UnitCache(reads), []

    def same() -> None:
        shown = [
            (found.runs(), found.page(reads, runner.job, range(12), 1e9))
            for found in (kept.get(runner.job), UnitCache(reads).get(runner.job))
            if found
        ]
        assert shown[0] == shown[1] and kept.get(runner.job) is kept.get(runner.job)
        marks.append(reads.mark(runner.job))

    same()
    leases = []
    for want in (3, 1, 1, 2):
        leases.append(runner.lease(want))
        same()
    first, second, third, fourth = leases
    part = execution.encode(program.finished_partial(0, "runner-1", [5], [1], ["v"]))
    steps: list[Callable[[], object]] = [
        lambda: runner.leases.commit(
            runner.job, first.token, 1, part, ms=5, worker="runner-1", device="runner", keep=True
        ),
        lambda: runner.end(replace(first, lo=1)),
        lambda: runner.fail(second),
        lambda: runner.fail(third, most=3),
        lambda: runner.leases.split(runner.job, fourth.token, 6),
        lambda: runner.leases.release(runner.job, fourth.token),
        lambda: leases.append(runner.lease(1)),
        lambda: bench.store.jobs.retry_dead(runner.job, 3, KIND.model_version),
        lambda: execution.fold(bench.store, runner.job, "command"),
        lambda: bench.store.jobs.pause(runner.job),
        lambda: bench.store.jobs.cancel(runner.job),
        lambda: runner.leases.release(runner.job, leases[-1].token),
    ]
    for step in steps:
        step()
        same()
    assert len(set(marks)) == len(marks), "each of these calls changed something"
    bench.store.jobs.delete(runner.job)
    assert kept.get(runner.job) is None


def test_a_hundred_thousand_units_are_shown_at_once(bench: Bench) -> None:
    runner = submitted(bench, count=100_000)
    part = program.finished_partial(0, "runner-1", [7] * 50_000, [1] * 50_000)
    lease = runner.lease(50_000)
    assert runner.leases.commit(
        runner.job, lease.token, 50_000, execution.encode(part), ms=1, worker="runner-1", device="runner"
    ).merged
    began = time.process_time()
    assert states(bench, runner) == [[0, 50_000, "done"], [50_000, 100_000, "waiting"]]
    found = units(bench, runner, "?from=49500&limit=1000")
    assert [row["state"] for row in found["units"]] == ["done"] * 500 + ["waiting"] * 500
    assert found["counts"]["waiting"] == 50_000
    assert time.process_time() - began < 5
    assert bench.ask("GET", f"/api/jobs/{runner.job}/units?limit=1001").status_code == 422
    assert bench.ask("GET", f"/api/jobs/{runner.job}/units?from=-1").status_code == 422
    assert bench.ask("GET", f"/api/jobs/{runner.job}/units?state=asleep").status_code == 422
