"""Tests that a trace is Chrome Trace Event JSON of exactly the replica in the statistics."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from jobs.kinds.thread import rows, trace_recorder
from tests.contract.thread_bench import (
    POLICIES,
    computed,
    definition,
    law,
    planned,
    poisson,
    reference,
    result,
    total,
)

SHAPES: list[dict[str, Any]] = [
    *({"scheduler": each} for each in POLICIES),
    *({"scheduler": each, "arrival": poisson(50, 5)} for each in POLICIES),
    {"scheduler": "fifo", "join": "block", "cores": 8, "thread_count": 4},
    {"scheduler": "lifo", "join": "block", "cores": 3, "thread_count": 3},
    {"scheduler": ["fifo", "work_stealing"], "cores": [2, 64], "join": "none"},
]


def shaped(**shape: Any) -> dict[str, Any]:
    base = {"thread_count": 20, "max_depth": 4, "replicas": 9, "cores": 4}
    cost = {} if shape.get("join") == "none" else {"join_cost_us": 3}
    turns = {"quantum_us": 40} if shape.get("scheduler") == "round_robin" else {}
    return base | cost | turns | shape


def traced(replica: int, cell: int = 0, **shape: Any) -> Any:
    """Return the trace of a job's replica, requested like a coordinator does."""
    job = planned(**shaped(**shape)).parameters
    plan = planned(**{**job, "trace": {"cell": cell, "replica": replica}})
    assert plan.total == 1
    assert plan.mode == "trace"
    return result(plan)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape.values()))[:40])
def test_a_trace_is_of_the_replica_that_was_counted(shape: dict[str, Any]) -> None:
    plan = planned(**shaped(**shape))
    for cell in range(len(plan.spec["cells"])):
        unit = 9 * cell + 7
        part = computed(plan, unit, unit + 1)["cells"][str(cell)]
        trace = traced(7, cell, **shape)
        said, slices = trace["otherData"], [each for each in trace["traceEvents"] if each["ph"] == "X"]
        assert said["digest"] == f"{part['digest']:016x}"
        assert (said["truncated"], said["replica"], [said["cores"], said["scheduler"]]) == (
            False,
            7,
            plan.spec["cells"][cell],
        )
        assert said["deadlocked"] == (part["outcomes"][1] == 1)
        if not said["deadlocked"]:
            assert said["until_us"] == total(part, "makespan_ns") / 1000
            busy = sum(each["dur"] for each in slices if each["cat"] not in ("steal", "blocked"))
            assert busy * 1000 == pytest.approx(total(part, "busy_ns"))
            assert len({each["args"]["path"] for each in slices if "path" in each["args"]}) == total(part, "threads")
            steals = [each["args"] for each in slices if each["cat"] == "steal"]
            assert sum(each["ok"] for each in steals) == total(part, "steals")
            assert sum(each["attempts"] for each in steals) <= total(part, "attempts")


def test_slices_of_a_core_never_overlap_and_flows_join_parent_and_child() -> None:
    trace = traced(3, scheduler="round_robin")
    lanes, ends = defaultdict(list), defaultdict(dict)  # type: ignore[var-annotated]
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            lanes[event["tid"]].append((event["ts"], event["ts"] + event["dur"], event["args"]["path"]))
        if event["ph"] in "sf":
            ends[event["id"]][event["ph"]] = event
    for lane in lanes.values():
        lane.sort()
        assert all(first[1] <= second[0] + 1e-6 for first, second in pairwise(lane))
    assert len(ends) > 10
    for child, pair in ends.items():
        assert pair["s"]["ts"] < pair["f"]["ts"]
        start, end = pair["s"], pair["f"]
        assert any(
            low <= start["ts"] < high and path == child.rpartition(".")[0] for low, high, path in lanes[start["tid"]]
        )
        assert any(low == end["ts"] and path == child for low, _, path in lanes[end["tid"]])


def test_counters_are_what_was_measured() -> None:
    plan = planned(**shaped())
    part = computed(plan, 2, 3)["cells"]["0"]
    counts = [each["args"] for each in traced(2)["traceEvents"] if each["ph"] == "C"]
    assert max(each["live"] for each in counts) <= total(part, "peak_live")
    assert max(each["ready"] for each in counts) == total(part, "peak_ready")
    assert max(each["busy"] for each in counts) == 4


def test_every_event_is_of_the_documented_form() -> None:
    """Trace Event Format: every event has ph, pid, tid; complete events ts and dur, flows an id, times in us >= 0."""
    trace = json.loads(json.dumps(traced(0, scheduler="lifo", join="block", thread_count=3), allow_nan=False))
    assert set(trace) == {"displayTimeUnit", "traceEvents", "otherData"}
    needed = {
        "X": {"ts", "dur", "name", "cat", "args"},
        "M": {"name", "args"},
        "C": {"ts", "name", "args"},
        "s": {"ts", "id", "name", "cat"},
        "f": {"ts", "id", "name", "cat", "bp"},
    }
    for event in trace["traceEvents"]:
        assert needed[event["ph"]] | {"ph", "pid", "tid"} == set(event)
        assert event.get("ts", 0) >= 0 <= event.get("dur", 0)
    names = {each["args"]["name"] for each in trace["traceEvents"] if each["ph"] == "M"}
    assert names == {"replica 0: 4 cores, lifo", "core 0", "core 1", "core 2", "core 3"}


def test_a_trace_is_cut_where_it_was_told_to() -> None:
    job = shaped(trace={"replica": 1, "max_events": 50}, thread_count=100)
    found = result(planned(**job))
    assert found["otherData"]["truncated"]
    timed = [each for each in found["traceEvents"] if each["ph"] != "M"]
    assert 50 <= len(timed) <= 50 + 4
    whole = planned(**{**job, "trace": None})
    assert found["otherData"]["digest"] == f"{computed(whole, 1, 2)['cells']['0']['digest']:016x}"
    assert definition.merge(computed(planned(**job)), {}) == computed(planned(**job))


def test_a_trace_may_be_cut_at_every_event() -> None:
    """The trace can be cut also among the slices that are open when the run ends."""
    job = {"seed": 7, "replicas": 1, "cores": 2, "scheduler": "work_stealing", "thread_count": 3}

    def cut(events: int) -> Any:
        plan = definition.plan(definition.parameters.model_validate({**job, "trace": {"max_events": events}}))
        return trace_recorder.trace(plan.spec)["otherData"]["truncated"]

    whole = next(events for events in range(1, 100) if not cut(events))
    assert whole > 20 and all(cut(events) for events in range(1, whole)) and not cut(whole + 1)


def test_kernel_and_reference_trace_alike() -> None:
    for events in (30, 100_000):
        plan = planned(**shaped(trace={"replica": 1, "max_events": events}))
        assert computed(plan) == reference.run(plan.spec, 0, 1)


def test_futile_attempts_are_passed_over() -> None:
    """Sixty threads of a second, one after the other, on 64 cores that steal in 10 ns: 3.8e11 attempts."""
    plan = planned(
        cores=64,
        thread_count=1,
        max_depth=60,
        spawn=law("fixed", children=1),
        steal_cost_us=0.01,
        work=law("fixed", mean_us=1e6),
        replicas=1,
        trace={"replica": 0},
    )
    found = result(plan)
    assert not found["otherData"]["truncated"]
    recorder = trace_recorder.Recorder(plan.spec, 0, 0)
    assert recorder.row()["attempts"] > 3e11
    assert {name: recorder.row()[name] for name in rows.ROW} == recorder.row()


def test_a_trace_of_another_run_is_never_answered() -> None:
    plan = planned(**shaped(trace={"replica": 1}))
    with pytest.raises(RuntimeError, match="digest of the trace is wrong"):
        trace_recorder.trace(plan.spec, 12345)
