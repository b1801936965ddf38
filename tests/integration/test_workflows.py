"""Tests workflows on a real cluster: the examples of their page, and kills of coordinators and Redis."""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import fetch
from tests.integration.live import Live, until
from tests.unit.collector import Collector
from tests.unit.workflow_bench import workflow_text

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="runners need Linux")

TOKEN = "t" * 40
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "workflows.md").read_text()
EXAMPLES = [text for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if text.startswith("name:")]
ENDS = ("done", "failed", "cancelled")


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as one:
        yield one


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Live]:
    """Start two coordinators that export spans, a CPU worker and a runner with two slots."""
    folder = tmp_path_factory.mktemp("workflows")
    made = Live(
        folder,
        workers=1,
        coordinators=2,
        CLUSTER_TOKEN=TOKEN,
        ARTIFACT_URL=f"file://{folder}/artifacts",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
    )
    with tempfile.TemporaryDirectory(prefix="runner-") as place:
        Path(place).chmod(0o711)
        try:
            made.start_redis()
            made.start_coordinator(0)
            made.start_coordinator(1)
            made.start_worker(0)
            made.start_runner(0, 2, RUNNER_DIR=place)
            made.wait_ready(2)
            yield made
        finally:
            made.stop()


def submit(live: Live, text: str, replica: int = 0) -> str:
    headers = {**live.headers(), "Content-Type": "application/yaml"}
    answer = fetch.post(f"{live.url(replica)}/api/workflows", content=text.encode(), headers=headers, timeout=30)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["workflow_id"])


def scheduled(live: Live, text: str) -> str:
    """Add the page's schedule with other times, and return the workflow that the leader submits."""
    assert (
        'cluster schedule add nightly --cron "0 3 * * *" --timezone Europe/Berlin -- workflow submit nightly.yaml'
        in PAGE
    )
    added = live.post("/api/schedules", {"name": "nightly", "every_seconds": 10, "workflow": text})
    assert added.status_code == 201, added.text
    row = until(lambda: (row := live.get("/api/schedules/nightly"))["last_workflow_id"] and row)
    assert live.post("/api/schedules/nightly/pause").status_code == 200
    return str(row["last_workflow_id"])


def course(live: Live, workflow: str, replica: int = 0) -> Any:
    return live.get(f"/api/workflows/{workflow}", replica)


def ended(live: Live, workflow: str, seconds: float = 120.0) -> Any:
    return until(lambda: (row := course(live, workflow))["state"] in ENDS and row, seconds, every=0.1)


def test_the_examples_of_the_page_run(live: Live) -> None:
    names = [re.search(r"name: (.*)", text)[1] for text in EXAMPLES]  # type: ignore[index]
    assert names == ["sweep", "verified-records", "nightly"]
    sweep, records = (submit(live, text) for text in EXAMPLES[:2])
    nightly = scheduled(live, EXAMPLES[2])
    until(lambda: course(live, records)["state"] == "waiting", 60)
    assert live.post(f"/api/workflows/{records}/actions/ok/approve").status_code == 200
    for workflow in (sweep, records, nightly):
        row = ended(live, workflow)
        assert row["state"] == "done", row
    published = live.get(f"/api/workflows/{sweep}/actions/publish")
    assert live.get("/api/artifacts/sweep-report")["artifact_id"] == published["result"]["artifact"]
    files = fetch.get(
        f"{live.url()}/api/artifacts/sweep-report/manifest", headers=live.headers(), timeout=30
    ).text.splitlines()
    assert '"value.json",11,' in files[1], "4 + 9 + 25"
    shown = live.get("/api/schedules/nightly")
    assert (shown["last_workflow_id"], shown["last_workflow_state"]) == (nightly, "done") and shown["submitted"] >= 1
    assert {live.get(f"/api/artifacts/{name}")["files"] for name in ("collatz-records", "nightly")} >= {1}


#: Command that writes its arguments as its value.
SHOW = """[python3, -c, 'import json, os, sys; json.dump(sys.argv[1:], open(os.environ["CLUSTER_RESULT"], "w"))', """


def test_values_reach_programs_as_they_are(live: Live) -> None:
    values = ["{unit}", "a{unit}b", "{item}", "${each.value}", {"k": "{unit}"}]
    # A text of a workflow cannot hold them: validation refuses them.
    hidden = json.dumps(json.dumps(values).translate(str.maketrans("{}$", "<>%")))
    line = """'echo "$1" | tr "<>%" "{}\\$" > "$CLUSTER_RESULT"'"""
    workflow = submit(
        live,
        workflow_text(
            f"values, action_type: command, command: [sh, -c, {line}, x, {hidden}]",
            f"each, action_type: command, foreach: '${{values.value}}', command: {SHOW} '${{item}}', '{{unit}}']",
            f"all, action_type: command, command: {SHOW} '${{values.value}}']",
        ),
    )
    row = ended(live, workflow)
    assert row["state"] == "done", row
    written = [each if isinstance(each, str) else '{"k":"{unit}"}' for each in values]
    jobs = live.get(f"/api/workflows/{workflow}/actions/each")["item_jobs"]
    assert [units(live, job["job_id"])[0]["value"] for job in jobs] == [[text, "0"] for text in written]
    job = next(action["job_id"] for action in row["actions"] if action["action_id"] == "all")
    assert [json.loads(text) for text in units(live, job)[0]["value"]] == [values]


def units(live: Live, job: str) -> Any:
    return live.get(f"/api/jobs/{job}/units")["units"]


def test_whoever_is_killed_nothing_runs_twice_or_too_early(live: Live) -> None:
    """Layers of jobs, some with references, run while leading coordinators and Redis are killed."""
    rng = random.Random(7)
    actions, before = [], list[str]()
    for layer in range(5):
        layer_names = [f"a{layer}-{number}" for number in range(3)]
        for name in layer_names:
            words = f'"{rng.choice(before)}"' if before else "start"
            late = f'"${{{rng.choice(before)}.value}}"' if before and rng.random() < 0.5 else words
            program = "[sh, -c, 'sleep 0.2; echo $CLUSTER_JOB_ID | tr -d - | wc -c > $CLUSTER_RESULT', x, " + late + "]"
            actions.append(
                f"{name}, action_type: command, parameters: {{command: {program}, retries: {{max: 20}}}}, "
                f"dependencies: [{', '.join(before)}]"
            )
        before = layer_names
    workflow = submit(live, workflow_text(*actions))
    for victim in ("coordinator-0", "redis", "coordinator-1"):
        time.sleep(rng.uniform(0.2, 1.2))
        if victim == "redis":  # while its disk is slow, it keeps what it was told before it writes it
            until(lambda: live.redis().info("persistence")["aof_buffer_length"] == 0)
        live.kill(victim)
        if victim == "redis":
            live.start_redis()
        else:
            live.run_coordinator(int(victim[-1]))
    live.wait_coordinator(0)
    live.wait_coordinator(1)
    row = ended(live, workflow, 120)
    assert row["state"] == "done", row
    by_id = {action["action_id"]: action for action in row["actions"]}
    for action in row["actions"]:
        assert all(by_id[name]["ended"] <= action["started"] for name in action["dependencies"]), action
    own = [job for job in live.get("/api/jobs?limit=500")["jobs"] if workflow in job["job_id"]]
    assert len(own) == len(actions) == len({job["job_id"] for job in own})
    assert {job["state"] for job in own} == {"done"}


def test_a_workflow_of_a_kernel_and_a_program_is_one_trace(live: Live, collector: Collector) -> None:
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    text = workflow_text(
        "numbers, action_type: collatz, start_number: 1, number_count: 300000000",
        "program, dependencies: [numbers], action_type: command, "
        r"""command: [sh, -c, 'echo \"$TRACEPARENT\" > $CLUSTER_RESULT']""",
        name="traced",
    )
    headers = {"Content-Type": "application/yaml", "traceparent": f"00-{trace}-{span}-01", **live.headers()}
    answer = fetch.post(f"{live.url(1)}/api/workflows", content=text.encode(), headers=headers, timeout=30)
    assert answer.status_code == 202, answer.text
    assert answer.headers["traceparent"].startswith(f"00-{trace}-")
    row = ended(live, answer.json()["workflow_id"])
    assert row["state"] == "done", row
    names = {"POST /api/workflows", "job collatz", "job command"}
    until(lambda: names <= {one.name for one in collector.of(trace)}, 60)  # each coordinator sends its own
    spans = collector.of(trace)
    by_name = {one.name: one for one in spans}
    asked, numbers, program = (by_name[name] for name in ("POST /api/workflows", "job collatz", "job command"))
    assert asked.parent == span and {numbers.parent, program.parent} == {asked.span}
    lanes = [one for one in spans if one.name == "compute" and one.parent == numbers.span]
    assert sum(one.attributes["cluster.units"] for one in lanes) == 300_000_000
    assert {one.attributes["cluster.worker"] for one in lanes} == {"worker-0"}
    inside = [one for one in spans if one.parent in (numbers.span, program.span)]
    assert {one.name for one in inside} == {"queue", "compute", "result"}
    job = program.attributes["cluster.job.id"]
    [unit] = live.get(f"/api/jobs/{job}/units")["units"]
    assert unit["value"] == f"00-{trace}-{program.span}-01" and live.job(job)["trace_id"] == trace
