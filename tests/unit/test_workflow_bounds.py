"""Tests the limits of what workflows read and fill in: rejected by name before they cost memory, and read once."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc
from typing import Any

import httpx
import pytest

from coordinator.workflows import ended_jobs, engine, results
from coordinator.workflows.documents import document, references, validation
from coordinator.workflows.documents.document import Action, Document
from coordinator.workflows.documents.references import Reference, Unfilled
from coordinator.workflows.ended_jobs import EndedJobs, ReadInterrupted, Source
from coordinator.workflows.planning import JobSeen, Known, Record, State
from coordinator.workflows.results import Results
from jobs.store import workflows
from jobs.store.workflows import JobOutput, OutputSizes
from tests.unit.artifact_bench import TOKEN
from tests.unit.workflow_bench import Flows
from threads_protocol import yaml_texts

MIB = 1 << 20


def plant(flow: Flows, job: str, result: Any, values: list[Any] | None = None) -> None:
    """Finish a job with this result and values of its units, as if it had computed them."""
    flow.end(job)
    flow.store.client.set(f"ct:job:{job}:result", json.dumps(result))
    if values is not None:
        accumulator = json.dumps({"runs": [{"lo": 0, "worker": "r", "ms": [1], "attempts": [1], "values": values}]})
        flow.store.client.set(f"ct:job:{job}:acc", accumulator)


# -- what references fill -------------------------------------------------------------------------------------------


def test_what_references_bring_is_counted_and_held_once() -> None:
    value = ["x" * 1000] * 1000
    look_up = references.limit_look_up(lambda _: value, 2 * MIB)
    filled = references.fill_references(["${a.values}"] * 2, look_up)
    assert filled[0] is filled[1] is value, "one object, however often it is filled in"
    with pytest.raises(
        Unfilled, match=r"exceed the maximum of 2097152 bytes as JSON \(\$\{a.values\} alone has 1003001"
    ):
        references.fill_references("${a.values}", look_up)


def test_size_is_that_of_json_in_utf_8() -> None:
    values: list[Any] = [1, None, "é", {"a": [1, 2.5, "\N{GRINNING FACE}"]}, [], "\ud800"]
    for value in values:
        written = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        assert references.size_of(value) == len(written.encode(errors="surrogatepass"))


@pytest.mark.parametrize("step", ["9" * 5000, "2", "-1", "01x"])
def test_a_step_that_is_no_place_is_refused_in_words(step: str) -> None:
    with pytest.raises(Unfilled, match="it is a list of 2"):
        references.part([1, 2], Reference("a", (step,)))


def test_a_foreach_over_thousands_of_large_results_is_refused_within_memory(flow: Flows) -> None:
    """The text was once filled in before it was measured: 9 GB in the leader, and then in each new leader."""
    many = ", ".join(['"${a.workers}"'] * 9000)
    workflow = flow.submit("a", f"b, action_type: command, foreach: [{many}], command: [run]", "c, dependencies: [b]")
    flow.look(workflow)
    plant(flow, flow.job_of(workflow, "a"), {"workers": ["x" * 100] * 9000})
    tracemalloc.start()
    try:
        flow.look(workflow)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert flow.states(workflow) == {"a": "done", "b": "failed", "c": "skipped"}
    assert "foreach: the values of its references exceed the maximum of 2097152 bytes" in flow.errors(workflow)["b"]
    assert peak < 64 * MIB, f"{peak / MIB:.0f} MiB"


@pytest.mark.parametrize(
    ("action", "bound"),
    [
        ('b, action_type: command, command: [run, "${a.workers}", "${a.workers}"]', MIB),
        ('b, action_type: artifact_publish, name: out, value: ["${a.workers}", "${a.workers}"]', 8 * MIB),
    ],
)
def test_parameters_that_references_make_too_large_are_refused(flow: Flows, action: str, bound: int) -> None:
    workflow = flow.submit("a", action)
    flow.look(workflow)
    plant(flow, flow.job_of(workflow, "a"), {"workers": "x" * (bound - 1000)})
    flow.look(workflow)
    assert f"exceed the maximum of {bound} bytes as JSON" in flow.errors(workflow)["b"]


def test_a_result_that_is_too_large_is_not_read(flow: Flows, monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = flow.submit("a", 'b, action_type: command, command: [run, "${a.workers}"]')
    flow.look(workflow)
    job = flow.job_of(workflow, "a")
    plant(flow, job, {"workers": 1})
    flow.store.client.set(f"ct:job:{job}:result", b'{"workers": "' + b"x" * ended_jobs.MAX_READ + b'"}')
    monkeypatch.setattr(workflows.Workflows, "done_jobs", lambda *_: pytest.fail("it was read"))
    flow.look(workflow)
    assert "a: the results of its job have 8388623 bytes; a reference can read 8388608" in flow.errors(workflow)["b"]


def test_what_is_broken_of_a_result_fails_the_action(flow: Flows) -> None:
    workflow = flow.submit("a", 'b, action_type: command, command: [run, "${a.workers}"]')
    flow.look(workflow)
    plant(flow, flow.job_of(workflow, "a"), {})
    flow.store.client.set(f"ct:job:{flow.job_of(workflow, 'a')}:result", b"{no json")
    flow.look(workflow)
    assert "is corrupt" in flow.errors(workflow)["b"]


# -- items over a workflow ------------------------------------------------------------------------------------------


def test_items_are_counted_over_the_workflow(flow: Flows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MAX_ACTIONS", 9)
    each = 'action_type: command, foreach: "${a.value}", command: [run]'
    workflow = flow.submit("a", f"b, {each}", f"c, {each}, dependencies: [b]")
    flow.look(workflow)
    flow.done(workflow, "a", value=[1, 2, 3, 4])
    flow.done(workflow, *(f"b/{index}" for index in range(4)))
    error = flow.errors(workflow)["c"]
    assert "must be a list of at most 2 items (with all actions and 4 other items 9); got a list of 4" in error
    assert "divide the workflow" in error


def test_bytes_of_items_are_counted_over_the_workflow(flow: Flows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MAX_ITEMS", 300)
    each = 'action_type: command, foreach: "${a.value}", command: [run]'
    workflow = flow.submit("a", f"b, {each}", f"c, {each}")
    flow.look(workflow)
    flow.done(workflow, "a", value=["x" * 98, "y" * 98])
    assert flow.states(workflow) == {"a": "done", "b": "queued", "c": "failed"}
    assert (
        "the items have 203 bytes as JSON and the other items of this workflow 203; the maximum for all items is 300"
        in (flow.errors(workflow)["c"])
    )


def test_a_workflow_of_thousands_of_refused_items_keeps_short_errors(
    flow: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "MANY", 3)
    workflow = flow.submit(
        'a, action_type: command, foreach: [1, 2, 3, 4], command: [run, "${item.' + "x" * 500 + '}"]'
    )
    flow.look(workflow)
    lengths = [len(row["error"]) for row in flow.ask("GET", f"/api/workflows/{workflow}/actions/a").json()["item_jobs"]]
    assert lengths[0] > 500 and lengths[-1] == 100


# -- reading once, in pipelines -------------------------------------------------------------------------------------


class Shelf:
    """Finished jobs, and the number of round trips for reading them."""

    def __init__(self, size: int = 100) -> None:
        self.size = size
        self.trips: list[int] = []

    def done_heads(self, ids: list[str]) -> list[OutputSizes | None]:
        return [OutputSizes(1, self.size, 50) for _ in ids]

    def done_jobs(self, wanted: list[tuple[str, int]]) -> list[JobOutput]:
        if wanted:
            self.trips.append(len(wanted))
        result = json.dumps({"n": "x" * (self.size - 9)}).encode()
        accumulator = b'{"runs":[{"lo":0,"worker":"r","ms":[1],"attempts":[1],"values":["v"]}]}'
        return [JobOutput("done", result, accumulator if units else b"", [None] * units) for _, units in wanted]


class Clock:
    """A clock that advances by a step at each reading."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def of_items(count: int, jobs: Any) -> Results:
    whole = Document(name="t", actions={"b": Action(id="b", type="command", foreach=[])})
    seen = {f"b/{index}": JobSeen(f"f-{index}", "done") for index in range(count)}
    records = {"b": Record(state="expanded", items=(1,) * count)}
    return Results(whole, Known(workflow="w", state=State.RUNNING, attempt=1, jobs=seen, records=records), "w 1", jobs)


def test_ten_thousand_items_are_read_in_few_round_trips_and_once() -> None:
    shelf = Shelf()
    jobs = EndedJobs(shelf, Clock(0.0))  # type: ignore[arg-type]
    given = of_items(10_000, jobs).part(Reference("b", ("results",)))
    assert len(given) == 10_000 and given[9_999]["value"] == "v" and given[0]["job_id"] == "f-0"
    assert shelf.trips == [500] * 20
    of_items(10_000, jobs).part(Reference("b", ("results",)))  # the next look
    assert len(shelf.trips) == 20


def test_one_item_and_their_count_are_not_all_of_them() -> None:
    shelf = Shelf()
    some = of_items(10_000, EndedJobs(shelf, Clock(0.0)))  # type: ignore[arg-type]
    assert some.part(Reference("b", ("count",))) == 10_000
    assert some.part(Reference("b", ("results", "9999", "value"))) == "v"
    with pytest.raises(Unfilled, match=r"b.results has no 10000; it is a list of 10000"):
        some.part(Reference("b", ("results", "10000")))
    assert shelf.trips == [1]


def test_others_have_their_turn_while_many_are_read() -> None:
    shelf = Shelf()
    jobs = EndedJobs(shelf, Clock(0.2))  # type: ignore[arg-type]
    turns = 1
    while True:
        try:
            given = of_items(3_000, jobs).part(Reference("b", ("results",)))
            break
        except ReadInterrupted:
            turns += 1
    assert len(given) == 3_000 and turns > 2
    assert sum(shelf.trips) == 3_000, "each is read once: what was read is kept for the next turn"


def test_readings_that_push_each_other_out_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_jobs, "MAX_BYTES", 800_000)
    shelf = Shelf()
    jobs = EndedJobs(shelf, Clock(0.2))  # type: ignore[arg-type]
    left = {f"w{number} 1" for number in range(3)}
    for _ in range(100):
        for workflow in sorted(left):
            try:
                jobs.read_jobs(workflow, [Source(f"b/{index}", f"{workflow}-{index}", True) for index in range(1500)])
                left.discard(workflow)
            except ReadInterrupted:
                pass
    assert not left


def test_what_all_items_left_is_bounded() -> None:
    shelf = Shelf(size=2000)
    with pytest.raises(Unfilled, match=r"b: the results of its first \d+ items have \d+ bytes; a reference can read"):
        of_items(10_000, EndedJobs(shelf, Clock(0.0))).part(Reference("b", ("results",)))  # type: ignore[arg-type]
    assert sum(shelf.trips) * 2000 <= ended_jobs.MAX_READ


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_jobs, "MAX_BYTES", 10_000)
    jobs = EndedJobs(Shelf(), Clock(0.0))  # type: ignore[arg-type]
    for number in range(100):
        jobs.read_jobs("w", [Source("a", f"j{number}", False)])
        assert sum(job.bytes + 500 for job in jobs.kept_jobs.values()) == jobs.kept_bytes <= 10_000


def test_values_that_one_look_keeps_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MAX_KEPT", 1000)
    some = of_items(100, EndedJobs(Shelf(), Clock(0.0)))  # type: ignore[arg-type]
    for index in range(100):
        some.part(Reference("b", ("results", str(index))))
        assert len(some.kept_results) <= 10


def test_another_workflow_is_looked_at_between_two_turns(flow: Flows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_jobs, "BATCH_SIZE", 2)
    monkeypatch.setattr(ended_jobs, "BATCH_SECONDS", 0.0)
    large = flow.submit("a, foreach: [1, 2, 3, 4, 5, 6]", 'b, action_type: command, command: [run, "${a.results}"]')
    flow.look(large)
    for index in range(6):
        flow.end(flow.job_of(large, f"a/{index}"), value=index)
    assert flow.engine.look(large).again and flow.states(large)["b"] == "waiting"
    small = flow.submit("a")
    flow.look(small)
    assert flow.states(small) == {"a": "queued"}
    flow.look(large)
    given = json.loads(flow.parameters(large, "b")["command"][1])
    assert [one["value"] for one in given] == list(range(6)) and {one["state"] for one in given} == {"done"}


# -- texts ----------------------------------------------------------------------------------------------------------


class Inside:
    """Fake validation, which counts concurrent calls."""

    def __init__(self, meet: int) -> None:
        self.most, self._now = 0, 0
        self._lock, self._meet = threading.Lock(), threading.Barrier(meet)

    def __call__(self, _text: bytes) -> Any:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        self._meet.wait(60)
        with self._lock:
            self._now -= 1
        raise document.InvalidWorkflow(yaml_texts.Complaints([yaml_texts.Complaint(place=yaml_texts.START, text="x")]))


@pytest.mark.parametrize(
    ("size", "path", "at_once"),
    [
        (document.LARGE + 1, "/api/workflows", 1),
        (document.LARGE + 1, "/api/workflows/validate", 1),
        (1000, "/api/workflows", 4),
    ],
)
def test_large_texts_are_validated_one_after_the_other(
    flow: Flows, monkeypatch: pytest.MonkeyPatch, size: int, path: str, at_once: int
) -> None:
    inside = Inside(at_once)
    monkeypatch.setattr(validation, "validate", inside)

    async def post_all() -> list[int]:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/yaml"}
        transport = httpx.ASGITransport(app=flow.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60) as http:
            posts = (http.post(path, content=b"x" * size, headers=headers) for _ in range(4))
            return [answer.status_code for answer in await asyncio.gather(*posts)]

    statuses = asyncio.run(post_all())
    assert set(statuses) <= {200, 422} and inside.most == at_once
