"""Tests that the thread kernel equals the reference, and that both match theory, with fixed seeds."""

from __future__ import annotations

import copy
import json
import math
import random
import subprocess
import sys
from fractions import Fraction
from functools import reduce
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from jobs import errors
from jobs.kinds import registry
from jobs.kinds.thread import cpu_reduction, partials, reference_draws, rows, sizes, tables
from jobs.kinds.thread import parameters as asked
from jobs.kinds.thread import report_estimates as estimates
from jobs.kinds.thread.cpu_draws import JIT, bin_of, internal, options
from jobs.models import Device, Plan
from tests.contract.thread_bench import (
    FREE,
    POLICIES,
    cell,
    computed,
    definition,
    kernel,
    law,
    planned,
    poisson,
    reference,
    replicas,
    result,
    total,
    z_of,
)

GOLDEN = json.loads((registry.folder("thread") / "golden.json").read_text())["entries"]


# The kernel and the reference

SHAPES = st.sampled_from(["constant", "linear"])
SPAWNS = st.one_of(
    st.builds(lambda k: {"distribution": "fixed", "children": k}, st.integers(0, 2)),
    st.builds(
        lambda k, q, shape: {"distribution": "binomial", "children": k, "probability": q / k, "shape": shape},
        st.integers(1, 6),
        st.sampled_from([0, 0.3, 0.8, 1]),
        SHAPES,
    ),
    st.builds(
        lambda law, mean, shape: {"distribution": law, "mean": mean, "shape": shape},
        st.sampled_from(["geometric", "poisson"]),
        st.sampled_from([0, 0.7, 1.3]),
        SHAPES,
    ),
    st.just({"distribution": "pmf", "probabilities": [0.4, 0.3, 0, 0.3]}),
)
WORKS = st.sampled_from(
    [
        {"distribution": "fixed", "mean_us": 0.001},
        {"distribution": "fixed", "mean_us": 2},
        {"distribution": "uniform", "min_us": 0.001, "max_us": 0.003},
        {"distribution": "uniform", "min_us": 3, "max_us": 1e6},
        {"distribution": "exponential", "mean_us": 0.001},
        {"distribution": "exponential", "mean_us": 4},
        {"distribution": "hyperexponential", "mean_us": 3, "scv": 20},
        {"distribution": "empirical", "quantiles_us": [1, 1, 2, 9]},
        {"distribution": "pareto", "mean_us": 3, "alpha": 1.2, "max_ratio": 1000},
    ]
)
ARRIVALS = st.one_of(
    st.just({"process": "batch"}),
    st.builds(poisson, st.sampled_from([20, 300, 5e5]), st.integers(0, 11)),
)
MODELS = st.fixed_dictionaries(
    {
        "seed": st.one_of(st.integers(0, 3), st.integers(0, 2**53 - 1)),
        "thread_count": st.integers(1, 12),
        "max_depth": st.integers(0, 4),
        "cores": st.one_of(st.sampled_from([1, 2, 8, 63, 64]), st.integers(1, 64)),
        "policy": st.sampled_from(
            [(policy, join) for policy in POLICIES for join in ("none", "suspend")]
            + [("fifo", "block"), ("lifo", "block")]
        ),
        "arrival": ARRIVALS,
        "spawn": SPAWNS,
        "work": WORKS,
        "dispatch_cost_us": st.sampled_from([0, 0.001, 1]),
        "spawn_cost_us": st.sampled_from([0, 0.1]),
        "steal_cost_us": st.sampled_from([0.1, 1, 1.003]),
        "replicas": st.just(3),
    }
)


@given(MODELS, st.sampled_from([0, 0.001, 0.6]), st.booleans(), st.sampled_from([1, 1.001, 2.5]))
@settings(max_examples=200)
def test_kernel_equals_reference(model: dict[str, Any], join_cost: float, tight: bool, quantum: float) -> None:
    """kernel(spec) == reference(spec), to the last key, for every small model; `tight`: spawns are refused.

    Check 19: the reference steps through every attempt to steal, the kernel passes over those that must fail.
    """
    scheduler, join = model.pop("policy")
    model |= {"scheduler": scheduler, "join": join, "join_cost_us": 0 if join == "none" else join_cost}
    if scheduler == "round_robin":
        model["quantum_us"] = quantum
    if model["arrival"]["process"] == "poisson":
        model["arrival"]["warmup_roots"] %= model["thread_count"]
    if model["work"].get("max_us") == 1e6:
        # The reference steps through every attempt and every slice.
        model |= {"steal_cost_us": 1000.0} | ({"quantum_us": 1000.0} if scheduler == "round_robin" else {})
    plan = planned(**model)
    if tight:
        plan = planned(**model, max_threads=max(model["thread_count"], plan.spec["expected_threads"]))
    assert computed(plan) == reference.run(plan.spec, 0, plan.total)


@pytest.mark.parametrize("entry", GOLDEN, ids=lambda entry: f"seed{entry['parameters']['seed']}")
def test_kernel_gives_the_golden_sums(entry: dict[str, Any]) -> None:
    plan = planned(**entry["parameters"])
    found = computed(plan)["cells"]
    assert len(found) == len(entry["cells"])
    for number, expected in enumerate(entry["cells"]):
        part = found[str(number)]
        assert {name: total(part, name) for name in expected["sum"]} == expected["sum"]
        assert f"{part['digest']:016x}" == expected["digest"]


@pytest.mark.parametrize("entry", GOLDEN[:3] + GOLDEN[9:13], ids=lambda entry: f"seed{entry['parameters']['seed']}")
def test_reference_gives_the_golden_sums(entry: dict[str, Any]) -> None:
    plan = planned(**entry["parameters"])
    found = reference.run(plan.spec, 0, plan.total)["cells"]
    for number, expected in enumerate(entry["cells"]):
        part = found[str(number)]
        assert {name: total(part, name) for name in expected["sum"]} == expected["sum"]
        assert f"{part['digest']:016x}" == expected["digest"]


def test_sums_beyond_63_bits_are_exact() -> None:
    """100,000 roots of a second each on one core wait 5e18 ns together: the closed form, its square, its digest."""
    count, work = 100_000, 10**9
    plan = planned(thread_count=count, max_depth=0, cores=1, replicas=3, work=law("fixed", mean_us=1e6), **FREE)
    part = cell(plan)
    waits, sojourns = work * count * (count - 1) // 2, work * count * (count + 1) // 2
    assert waits > 2**62
    assert (total(part, "sum_wait_ns"), total(part, "sum_sojourn_ns")) == (3 * waits, 3 * sojourns)
    assert (total(part, "sum_wait_ns", "sumsq"), total(part, "sum_sojourn_ns", "sumsq")) == (
        3 * waits**2,
        3 * sojourns**2,
    )
    assert part["products"] == [3 * waits * count, 3 * (count - 1) * count, 3 * sojourns * count]
    assert total(part, "mean_ready_queue") == 3 * ((waits << 20) // (count * work))
    row = dict(zip(rows.COLUMNS, [value // 3 for value in part["sum"]], strict=True))
    hashes = [rows.digest(0, replica, row, [count]) for replica in range(3)]
    assert part["digest"] == sum(hashes) % 2**64


@given(st.integers(0, 2**62 - 1), st.integers(1, 2**62 - 1), st.integers(0, 2**15))
def test_compiled_quotients_are_exact(over: int, under: int, high: int) -> None:
    if (over << 20) // under < 2**62:
        assert cpu_reduction.ratio(over, under) == (over << 20) // under
    wide = (high << 62) + over
    if (wide << 20) // under < 2**62:
        assert cpu_reduction.wide_ratio(high, over, under) == (wide << 20) // under


@given(
    st.one_of(st.integers(0, 2**63 - 1), st.integers(0, 62).flatmap(lambda bit: st.sampled_from([2**bit - 1, 2**bit])))
)
def test_histogram_bins_hold_their_values(value: int) -> None:
    low, high = rows.bin_edges(rows.bin_of(value))
    assert low <= value <= high
    assert high - low <= value / 64
    assert bin_of(value) == rows.bin_of(value) < rows.BINS


# Leases


def sweep(**parameters: Any) -> Plan:
    shape = {
        "thread_count": 20,
        "max_depth": 4,
        "replicas": 25,
        "cores": [1, 4],
        "scheduler": list(POLICIES),
    }
    return planned(**{**shape, **parameters})


SWEEP = sweep()
WHOLE = computed(SWEEP)


@given(st.lists(st.integers(0, SWEEP.total), max_size=5), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_any_cut_merged_in_any_order_gives_the_whole(cuts: list[int], dice: random.Random) -> None:
    edges = [0, *sorted(cuts), SWEEP.total]
    parts = [computed(SWEEP, lo, hi) for lo, hi in pairwise(edges)]
    dice.shuffle(parts)
    while len(parts) > 1:
        left, right = parts.pop(dice.randrange(len(parts))), parts.pop()
        before = copy.deepcopy((left, right))
        parts.append(json.loads(json.dumps(definition.merge(left, right))))
        assert (left, right) == before
    assert parts[0] == WHOLE


def test_merge_is_associative_commutative_and_has_a_neutral() -> None:
    first, second, third = (computed(SWEEP, lo, hi) for lo, hi in ((0, 9), (9, 55), (55, 200)))
    merge = definition.merge
    assert merge(merge(first, second), third) == merge(first, merge(second, third)) == WHOLE
    assert merge(first, second) == merge(second, first) != first
    assert merge({}, first) == merge(first, {}) == first
    assert merge({}, {}) == {}


@pytest.mark.parametrize("batch_size", [1, 2, 7, 24, 65_536])
def test_batch_size_never_changes_a_partial(batch_size: int) -> None:
    assert computed(sweep(batch_size=batch_size)) == WHOLE


def test_ticks_name_the_next_unit_and_can_stop() -> None:
    spec, seen = sweep(batch_size=10).spec, []

    def tick(unit: int) -> bool:
        seen.append(unit)
        return unit < 35

    upto, partial = kernel.run(spec, 3, 90, tick)
    # A chunk starts with few replicas and ends with its cell; none has more than 10.
    assert seen == sorted(set(seen))
    assert all(b - a <= 10 for a, b in pairwise([3, *seen]))
    assert seen[-1] == upto >= 35 > seen[-2]
    assert partial == computed(SWEEP, 3, upto)


def test_a_lease_of_nothing_is_empty() -> None:
    assert kernel.run(SWEEP.spec, 5, 5, lambda _: True) == (5, {})
    assert reference.run(SWEEP.spec, 5, 5) == {}


def test_violations_are_counted() -> None:
    good = dict.fromkeys(rows.ROW, 0) | {"work_ns": 80, "busy_ns": 80, "span_ns": 30, "makespan_ns": 40}

    def found(row: dict[str, int], again: int = 0, greedy: bool = True) -> list[int]:
        return rows.violations(rows.Measured(row=row, by_depth=[], ready_ns=0, again_ns=again, greedy=greedy), 2)

    assert found(good) == found(good | {"busy_ns": 85}, again=5) == [0, 0, 0]
    for change, expected in (
        ({"busy_ns": 79}, [1, 0, 0]),
        ({"makespan_ns": 39}, [0, 1, 0]),
        ({"span_ns": 41}, [0, 1, 0]),
        ({"makespan_ns": 56}, [0, 0, 1]),
    ):
        row, counts = good | change, [0, 0, 0]
        cpu_reduction.violations.py_func([row[name] for name in rows.ROW], 0, 2, True, counts)
        assert found(row) == counts == expected
    assert found(good | {"makespan_ns": 56}, greedy=False) == [0, 0, 0]


# Laws and tables


def mixture(t: float) -> float:
    """Balanced two-branch law of mean 100 us and squared coefficient of variation 4."""
    often = (1 + math.sqrt(3 / 5)) / 2
    return 1 - often * math.exp(-2 * often * t / 1e5) - (1 - often) * math.exp(-2 * (1 - often) * t / 1e5)


def heavy(t: float, alpha: float, most: float) -> float:
    """Pareto's law cut at `most`, of mean 100 us."""
    low, high = 0.0, 1e5
    for _ in range(100):
        least = (low + high) / 2
        mean = least**alpha / (1 - (least / most) ** alpha) * alpha / (alpha - 1)
        mean *= least ** (1 - alpha) - most ** (1 - alpha)
        low, high = (least, high) if mean < 1e5 else (low, least)
    return 0.0 if t < least else min(1.0, (1 - (least / t) ** alpha) / (1 - (least / most) ** alpha))


LAWS = [
    (law("exponential", mean_us=100), lambda t: 1 - math.exp(-t / 1e5)),
    (law("uniform", min_us=50, max_us=150), lambda t: min(1.0, max(0.0, (t - 5e4) / 1e5))),
    (law("hyperexponential", mean_us=100, scv=4), mixture),
    (
        law("empirical", quantiles_us=[10, 20, 90]),
        lambda t: min(1.0, max(0, t - 1e4) / 2e4, 0.5 + max(0, t - 2e4) / 1.4e5),
    ),
    (law("pareto", mean_us=100, alpha=1.5, max_ratio=1000), lambda t: heavy(t, 1.5, 1e8)),
]


@pytest.mark.parametrize(
    ("work", "distribution"), LAWS, ids=lambda each: each["distribution"] if type(each) is dict else ""
)
def test_work_follows_its_law(work: dict[str, Any], distribution: Any) -> None:
    """One root on one core: its sojourn is its work. Kolmogorov-Smirnov at the bins' edges, and the mean."""
    count = 200_000
    plan = planned(thread_count=1, max_depth=0, replicas=count, cores=1, dispatch_cost_us=0, work=work)
    part, seen = cell(plan), 0
    for index, times in partials.pairs(part["sojourn"]):
        seen += times
        assert abs(seen / count - distribution(rows.bin_edges(index)[1] + 0.5)) < 2.2 / math.sqrt(count)
    assert abs(z_of(part, "work_ns", tables.mean_work(plan.spec["work"]))) < 4.5


def test_the_logarithm_is_right_to_four_units() -> None:
    dice = random.Random(1)
    words = [0, 1, 2, 3, 2**63 - 1, 2**63, 2**64 - 1] + [
        dice.getrandbits(64) >> dice.randrange(64) for _ in range(5000)
    ]
    for word in words:
        exact = 64 * math.log(2) - math.log(word | 1)
        assert abs(reference_draws.negative_log(word) - exact * 2**24) < 4


def test_offspring_tables_are_the_laws() -> None:
    def table(depth: int, **spawn: Any) -> dict[str, Any]:
        return planned(thread_count=1, max_depth=depth, spawn=spawn).spec["offspring"]

    binomial = table(5, distribution="binomial", children=3, probability=0.25)
    assert binomial == {"values": [0, 3], "thresholds": [[3 * 2**30, 2**32]]}
    assert table(2, distribution="pmf", probabilities=[0.5, 0, 0.5])["thresholds"] == [[2**31, 2**31, 2**32]]
    poisson = table(1, distribution="poisson", mean=1)["thresholds"][0]
    assert poisson[:2] == [round(2**32 / math.e), round(2**33 / math.e)]
    geometric = table(1, distribution="geometric", mean=16)
    assert float(tables.mean_offspring(geometric, 0)) == pytest.approx(16 * (1 - (16 / 17) ** 64), abs=1e-6)
    for name in ("geometric", "poisson"):
        linear = table(4, distribution=name, mean=2, shape="linear")
        means = [float(tables.mean_offspring(linear, depth)) for depth in range(4)]
        assert means == pytest.approx([2, 1.5, 1, 0.5], abs=1e-6)


def test_microseconds_round_half_to_even_as_written() -> None:
    assert [tables.nanoseconds(each) for each in (0.0005, 0.0015, 0.0025, 0.1, 1e6)] == [0, 2, 2, 100, 10**9]


# The result


def test_the_result_is_made_of_the_partial_alone() -> None:
    text = json.dumps(WHOLE)
    found = definition.result(SWEEP.spec, json.loads(text))
    assert json.dumps(found, allow_nan=False) == json.dumps(definition.result(SWEEP.spec, WHOLE))
    assert (found["type"], found["model_version"], found["replicas"]) == ("thread", 2, 25)
    assert found["parameters"] == SWEEP.parameters
    assert [(each["cell"], each["cores"], each["scheduler"]) for each in found["cells"]] == [
        (number, *cell) for number, cell in enumerate(product((1, 4), POLICIES))
    ]
    assert int(found["digest"], 16) == sum(part["digest"] for part in WHOLE["cells"].values()) % 2**64
    assert found["threads_simulated"] == sum(total(part, "threads") for part in WHOLE["cells"].values())
    assert all(set(each["invariants"].values()) == {0} for each in found["cells"])


def test_examples_name_the_shortest_and_the_longest_replica() -> None:
    found = definition.result(SWEEP.spec, WHOLE)["cells"][5]
    spans = [row["makespan_ns"] for row in replicas(SWEEP)[125:150]]
    assert found["examples"] == {
        "fastest": {"replica": spans.index(min(spans)), "makespan_us": min(spans) / 1000},
        "slowest": {"replica": spans.index(max(spans)), "makespan_us": max(spans) / 1000},
    }


def test_deadlocks_are_counted_apart() -> None:
    """A deadlocked replica is in no metric; its share has Wilson's interval, its time a mean."""
    shape = {"join": "block", "scheduler": "fifo", "cores": 4, "thread_count": 3, "max_depth": 3, "replicas": 200}
    plan = planned(**shape, spawn=law("binomial", children=2, probability=0.3))
    found, part = result(plan)["cells"][0], cell(plan)
    stuck = found["outcomes"]["deadlocked"]
    assert 20 < stuck < 180
    assert found["outcomes"]["completed"] == 200 - stuck
    rest = [row for row in replicas(plan) if row["makespan_ns"]]
    assert len(rest) == 200 - stuck
    assert found["metrics"]["makespan_us"]["mean"] == pytest.approx(
        sum(row["makespan_ns"] for row in rest) / len(rest) / 1000
    )
    assert sum(each[1] for each in found["histograms"]["makespan_ns"]["bins"]) == len(rest)
    assert found["latency"]["thread_wait_us"]["count"] == sum(row["n_measured"] for row in rest)
    chance = found["deadlock"]["probability"]
    assert chance["mean"] == stuck / 200
    middle, z = (stuck + 1.92072941) / 203.84145882, 1.95996398
    half = z / 203.84145882 * math.sqrt(stuck * (200 - stuck) / 200 + z * z / 4)
    assert chance["ci"] == pytest.approx((middle - half, middle + half))
    assert found["deadlock"]["time_us"]["mean"] == pytest.approx(part["stuck"][0] / stuck / 1000)
    assert "deadlocked" in found["examples"]
    assert not found["theory"][0]["applies"]
    assert result(plan)["warnings"] == [
        (
            f"{stuck} of 200 replicas on 4 cores with fifo deadlocked and are counted "
            "only in the fields outcomes and deadlock"
        )
    ]


def test_when_every_replica_deadlocks_there_is_nothing_else() -> None:
    plan = planned(
        join="block", scheduler="lifo", cores=2, thread_count=2, max_depth=1, replicas=7, spawn=law("fixed", children=1)
    )
    found = json.loads(json.dumps(result(plan), allow_nan=False))["cells"][0]
    assert found["outcomes"] == {"completed": 0, "deadlocked": 7, "capped": 0}
    assert (found["metrics"], found["latency"], found["theory"], found["threads_by_depth"]) == ({}, {}, [], [])
    assert found["deadlock"]["probability"]["mean"] == 1
    assert found["examples"]["deadlocked"]["replica"] == 0


def test_overload_is_told_when_submitted_and_in_the_result() -> None:
    plan = planned(arrival=poisson(100), thread_count=20, max_depth=0, cores=[4, 64], replicas=2)
    told = "offered load 2.52 of 4 cores is at least 1, so waits grow with thread_count"
    assert plan.notes == (told,)
    assert result(plan)["warnings"] == [told]


def test_metrics_are_those_of_the_replicas() -> None:
    plan = planned(thread_count=30, max_depth=4, replicas=40, cores=4, confidence=0.9)
    found = definition.result(plan.spec, computed(plan))["cells"][0]
    spans = sorted(row["makespan_ns"] / 1000 for row in replicas(plan))
    metric, mean = found["metrics"]["makespan_us"], sum(spans) / 40
    deviation = math.sqrt(sum((each - mean) ** 2 for each in spans) / 39)
    assert (metric["min"], metric["max"]) == pytest.approx((spans[0], spans[-1]))
    assert (metric["mean"], metric["stdev"]) == pytest.approx((mean, deviation))
    half = 1.6848751 * deviation / math.sqrt(40)
    assert metric["ci"] == pytest.approx((mean - half, mean + half))
    assert metric["p50"] == pytest.approx(spans[19], rel=0.016)
    waits = found["latency"]["thread_wait_us"]
    assert waits["count"] == sum(row["n_measured"] for row in replicas(plan))
    assert waits["mean"] == pytest.approx(sum(row["sum_wait_ns"] for row in replicas(plan)) / waits["count"] / 1000)
    assert waits["ci"][0] < waits["mean"] < waits["ci"][1]
    assert found["metrics"]["efficiency"]["mean"] == pytest.approx(found["metrics"]["speedup"]["mean"] / 4)


def test_one_replica_has_no_interval_and_missing_cells_are_left_out() -> None:
    found = definition.result(SWEEP.spec, computed(SWEEP, 30, 31))
    assert [(each["cores"], each["replicas"]) for each in found["cells"]] == [(1, 1)]
    metric = found["cells"][0]["metrics"]["makespan_us"]
    assert (metric["ci"], metric["stdev"]) == (None, None)
    assert definition.result(SWEEP.spec, {})["cells"] == []


def test_large_sums_travel_as_decimal_strings_and_refusals_are_told() -> None:
    plan = planned(thread_count=500, max_depth=3, replicas=50, max_threads=1480, work=law("fixed", mean_us=1e5))
    answer = result(plan)
    found = answer["cells"][0]
    assert int(found["exact"]["sum"]["makespan_ns"]) == total(cell(plan), "makespan_ns") > 0
    assert isinstance(found["exact"]["sumsq"]["makespan_ns"], str)
    capped = found["outcomes"]["capped"]
    assert 0 < capped < 50
    assert found["outcomes"]["completed"] == 50 - capped
    assert answer["warnings"][0].startswith(
        f"{capped} of 50 replicas on 8 cores with work_stealing reached max_threads"
    )
    assert not found["theory"][0]["applies"]


@pytest.mark.parametrize(
    ("level", "freedom", "expected"),
    [
        (0.95, 1, 12.7062047),
        (0.95, 2, 4.30265273),
        (0.99, 7, 3.49948330),
        (0.95, 10, 2.22813885),
        (0.9999, 1, 6366.19767),
        (0.95, 60, 2.00029782),
        (0.5, 3, 0.76489233),
        (0.95, 10**7, 1.95996422),
    ],
)
def test_students_quantiles(level: float, freedom: int, expected: float) -> None:
    assert estimates.student(level, freedom) == pytest.approx(expected, rel=1e-7)


def test_intervals_of_quotients_cover() -> None:
    """The pooled mean wait of 200 jobs of 30 replicas lies in about 95 of 100 intervals."""
    shape = {"thread_count": 20, "max_depth": 3, "cores": 4, "scheduler": "fifo"}
    truth_part = cell(planned(**shape, seed=99, replicas=60_000))
    truth = Fraction(total(truth_part, "sum_wait_ns"), total(truth_part, "n_measured")) / 1000
    hits = 0
    for seed in range(200):
        plan = planned(**shape, seed=seed, replicas=30)
        low, high = definition.result(plan.spec, computed(plan))["cells"][0]["latency"]["thread_wait_us"]["ci"]
        hits += low <= truth <= high
    assert 178 <= hits <= 199


# What is refused

NOT_WHOLE = [-1, 1.5, "abc", "1.0", float("nan"), True, None, [], {}, 10**400]
BAD_FIELDS = [
    *(("thread_count", value, "1..1000000") for value in (0, 1_000_001)),
    *(("max_depth", value, "0..64") for value in (65,)),
    *(("replicas", value, "1..16777216") for value in (0, 2**24 + 1)),
    *(("seed", value, "0..9007199254740991") for value in (2**53,)),
    *(
        ("cores", value, "1..64")
        for value in (0, 65, True, 1.5, "abc", [], [8, 8], [1, 65], list(range(1, 18)), 10**400, None)
    ),
    *(("scheduler", value, "work_stealing") for value in ("cfs", "", 1, [], ["fifo", "fifo"], ["fifo", "cfs"], None)),
    *(("join", value, "suspend") for value in ("wait", True, 1)),
    *(("max_threads", value, "1..4194304") for value in (0, 4_194_305)),
    *(("batch_size", value, "1..65536") for value in (0, 65_537)),
    *(("stack_kib", value, "0..1000000") for value in (-1, 1e7, "1", True, float("nan"), float("inf"), 10**400)),
    *(("confidence", value, "0.5..0.9999") for value in (0.4, 1, "0.9", True, float("nan"))),
    *(("dispatch_cost_us", value, "0..10000") for value in (-0.1, 1e5, "1", True, float("nan"), float("inf"), 10**400)),
    *(("spawn_cost_us", value, "0..10000") for value in (-0.1, 1e5)),
    *(("join_cost_us", value, "0..10000") for value in (-0.1, 1e5)),
    *(("steal_cost_us", value, "0.01..10000") for value in (0, 0.001, 1e5)),
    *(
        (name, value, "integer")
        for name in ("thread_count", "max_depth", "replicas", "max_threads")
        for value in NOT_WHOLE[1:3]
    ),
]
BAD_OBJECTS: list[tuple[dict[str, Any], tuple[str, ...], str]] = [
    ({"no_such_key": 1}, ("no_such_key",), "Extra inputs"),
    ({"spawn": law("zipf")}, ("spawn",), "geometric"),
    ({"spawn": {}}, ("spawn",), "distribution"),
    ({"spawn": law("fixed", children=65)}, ("spawn", "fixed", "children"), "0..64"),
    ({"spawn": law("fixed", children=2, shape="linear")}, ("spawn", "fixed", "shape"), "Extra inputs"),
    ({"spawn": law("binomial", children=2, probability=1.1)}, ("spawn", "binomial", "probability"), "0..1"),
    ({"spawn": law("geometric", mean=16.5)}, ("spawn", "geometric", "mean"), "0..16"),
    ({"spawn": law("poisson", mean=-1)}, ("spawn", "poisson", "mean"), "0..16"),
    ({"spawn": law("poisson", mean=1, shape="cyclic")}, ("spawn", "poisson", "shape"), "linear"),
    ({"spawn": law("pmf", probabilities=[0.5, 0.4])}, ("spawn", "pmf", "probabilities"), "got a sum of 0.9"),
    ({"spawn": law("pmf", probabilities=[1 / 66] * 66)}, ("spawn", "pmf", "probabilities"), "65"),
    ({"work": law("fixed", mean_us=0)}, ("work", "fixed", "mean_us"), "0.001..1000000"),
    ({"work": law("uniform", min_us=5, max_us=4)}, ("work", "uniform", "max_us"), "at least min_us"),
    ({"work": law("hyperexponential", mean_us=1, scv=0.5)}, ("work", "hyperexponential", "scv"), "1..100"),
    ({"work": law("hyperexponential", mean_us=1e6, scv=100)}, ("work", "hyperexponential", "scv"), "1.2e+07"),
    ({"work": law("pareto", mean_us=1, alpha=1.05 - 1e-9, max_ratio=9)}, ("work", "pareto", "alpha"), "1.05..10"),
    ({"work": law("pareto", mean_us=1e5, alpha=2, max_ratio=1e4)}, ("work", "pareto", "max_ratio"), "1e+08"),
    ({"work": law("empirical", quantiles_us=[1, 3, 2])}, ("work", "empirical", "quantiles_us"), "got 2.0 at 2"),
    ({"work": law("empirical", quantiles_us=[1])}, ("work", "empirical", "quantiles_us"), "2"),
    ({"thread_count": 10, "max_threads": 9}, ("max_threads",), "10..4194304"),
    ({"scheduler": "work_stealing", "join": "block"}, ("join",), "block requires scheduler fifo or lifo"),
    ({"scheduler": ["fifo", "round_robin"], "join": "block"}, ("join",), "round_robin"),
    ({"join": "none", "join_cost_us": 1}, ("join_cost_us",), "join is none"),
    ({"quantum_us": 5}, ("quantum_us",), "only for scheduler round_robin"),
    ({"scheduler": "round_robin", "quantum_us": 0.5}, ("quantum_us",), "1..1000000"),
    ({"cores": list(range(1, 10)), "scheduler": list(asked.SCHEDULERS)}, ("scheduler",), "36 cells"),
    ({"thread_count": 5, "arrival": {"process": "poisson", "rate_per_ms": 1, "warmup_roots": 5}}, ("arrival",), "0..4"),
    ({"arrival": {"process": "batch", "rate_per_ms": 1}}, ("arrival", "batch", "rate_per_ms"), "Extra inputs"),
    ({"arrival": {"process": "poisson", "rate_per_ms": 0}}, ("arrival", "poisson", "rate_per_ms"), "0.0001..1000000"),
    ({"trace": {"replica": 4}, "replicas": 4}, ("trace",), "below 4"),
    ({"trace": {"replica": 0, "max_events": 250_001}}, ("trace", "max_events"), "1..250000"),
]


def refusal(parameters: dict[str, Any]) -> tuple[tuple[Any, ...], str]:
    with pytest.raises(ValidationError) as caught:
        definition.parameters.model_validate(parameters)
    first = caught.value.errors()[0]
    return first["loc"], first["msg"]


@pytest.mark.parametrize(("name", "value", "words"), BAD_FIELDS)
def test_bad_values_are_refused_by_name_and_bound(name: str, value: Any, words: str) -> None:
    loc, message = refusal({name: value})
    assert loc == (name,)
    assert words in message


@pytest.mark.parametrize("name", ["thread_count", "max_depth", "replicas", "max_threads"])
@pytest.mark.parametrize("value", NOT_WHOLE, ids=lambda value: repr(value)[:9])
def test_only_integers_are_integers(name: str, value: Any) -> None:
    assert refusal({name: value})[0] == (name,)


@pytest.mark.parametrize(("parameters", "loc", "words"), BAD_OBJECTS)
def test_bad_objects_and_rules_between_fields_are_refused(parameters: Any, loc: tuple[str, ...], words: str) -> None:
    found, message = refusal(parameters)
    assert found == loc
    assert words in message


@pytest.mark.parametrize(
    ("parameters", "field", "words"),
    [
        (
            {"scheduler": "round_robin", "quantum_us": 1, "work": law("fixed", mean_us=1e5)},
            "quantum_us",
            "mean work 100000 us is 1e+05 slices of 1 us; the maximum is 10000",
        ),
        (
            {"scheduler": "round_robin", "quantum_us": 1, "work": law("fixed", mean_us=9e3), "thread_count": 100_000},
            "quantum_us",
            "expected 4.11e+09 slices per replica (457051 threads of 9e+03 slices of 1 us); the maximum is 1e+09",
        ),
        (
            {
                "scheduler": ["fifo", "round_robin"],
                "max_threads": 4_194_304,
                "max_depth": 14,
                "work": law("fixed", mean_us=1),
            },
            "max_threads",
            "a replica may need 805210560 bytes (4194304 threads); the maximum is 536870912",
        ),
        ({"arrival": poisson(1e-4), "thread_count": 1_000_000, "max_depth": 0}, "work", "2^56 ns"),
        (
            {"spawn": law("fixed", children=2), "max_depth": 17},
            "max_threads",
            "expected 2.62e+08 threads per replica (1000 roots, mean 2 children, depth 17) exceeds max_threads 1000000",
        ),
        ({"spawn": law("fixed", children=64), "max_depth": 64}, "max_threads", "limit 4194304"),
        ({"replicas": 2**24, "thread_count": 100_000}, "replicas", "core-hours"),
        ({"max_threads": 4_194_304, "work": law("exponential", mean_us=1e6)}, "work", "2^56 ns"),
    ],
)
def test_what_cannot_run_is_refused_when_planned(parameters: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        planned(**parameters)
    assert caught.value.field == f"parameters.{field}"
    assert words in caught.value.detail


def test_plans_are_recorded_resubmitted_and_small() -> None:
    """The seed is drawn once; the widest tables fit a lease."""
    drawn = {definition.plan(definition.parameters()).spec["seed"] for _ in range(3)}
    assert len(drawn) == 3
    quantiles = [1000 + index / 3 for index in range(1024)]
    spawn = law("geometric", mean=1.2, shape="linear")
    plan = planned(thread_count=1, max_depth=64, spawn=spawn, work=law("empirical", quantiles_us=quantiles))
    assert planned(**plan.parameters) == plan
    assert len(json.dumps(plan.spec)) < 64 * 1024
    assert planned(cores="8", replicas="12").total == 12


def test_expected_cost_follows_the_threads() -> None:
    small, large = planned(replicas=10), planned(replicas=1000, cores=[8, 8 + 56])
    assert 150 < large.cpu_seconds / small.cpu_seconds < 400
    assert (small.mode, sweep().mode) == ("work_stealing", "sweep")
    turns = {"scheduler": "round_robin", "work": law("fixed", mean_us=1000), "replicas": 10}
    assert planned(**turns, quantum_us=1).cpu_seconds > 50 * planned(**turns).cpu_seconds
    assert sizes.replica_bytes(sweep().spec) < 100_000 * 96
    assert small.devices == (Device.GPU, Device.CPU)
    assert planned(**turns, quantum_us=1).devices == (Device.CPU,)  # too many slices for a GPU
    assert (
        planned(max_threads=4_194_304, work=law("fixed", mean_us=1)).max_lease_seconds > small.max_lease_seconds >= 30
    )


def test_the_definition_loads_no_numpy() -> None:
    code = "import sys, jobs.kinds.thread.definition; print([m for m in ('numpy', 'numba') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_where_numba_must_count_references_it_does() -> None:
    assert options(lambda _: False) == {"nogil": True, "error_model": "numpy"}
    assert options() == options(lambda _: True) == {**options(lambda _: False), "_nrt": False}


def test_where_numba_must_make_wrappers_it_does() -> None:
    assert internal(lambda _: False) == JIT
    assert internal() == {**JIT, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def test_everything_is_described() -> None:
    schema = definition.parameters.model_json_schema()
    groups = [schema["properties"], *(each["properties"] for each in schema["$defs"].values())]
    plain = [
        name for group in groups for name, field in group.items() if "const" not in field and "description" not in field
    ]
    assert plain == []
    assert len(reduce(lambda left, right: left | right, groups)) > 25
