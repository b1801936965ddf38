"""Tests the GPU source of the thread simulation on the host against the reference and the CPU kernel."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import reduce
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.kinds import gpu, registry
from jobs.kinds.thread import gpu_simulation
from jobs.models import Device, Plan
from tests.gpu import devices

definition: Any = registry.definition("thread")
reference: Any = registry.reference("thread")
on_cpu: Any = registry.kernel("thread", Device.CPU)
on_gpu: Any = registry.kernel("thread", Device.GPU)

WORKS: list[dict[str, Any]] = [
    {"distribution": "fixed", "mean_us": 10},
    {"distribution": "uniform", "min_us": 1, "max_us": 30},
    {"distribution": "exponential", "mean_us": 100},
    {"distribution": "hyperexponential", "mean_us": 20, "scv": 5},
    {"distribution": "pareto", "mean_us": 50, "alpha": 1.5, "max_ratio": 100},
    {"distribution": "empirical", "quantiles_us": [0.5, 1, 1, 7.5, 100]},
]
SPAWNS: list[dict[str, Any]] = [
    {"distribution": "fixed", "children": 2},
    {"distribution": "binomial", "children": 3, "probability": 0.4},
    {"distribution": "geometric", "mean": 0.9, "shape": "linear"},
    {"distribution": "poisson", "mean": 1.1},
    {"distribution": "pmf", "probabilities": [0.3, 0.5, 0.2]},
]
SCHEDULERS = ("fifo", "lifo", "round_robin", "work_stealing")
MODELS = st.fixed_dictionaries(
    {
        "thread_count": st.integers(1, 30),
        "max_depth": st.integers(0, 5),
        "cores": st.sampled_from([1, 2, 3, 8, 17, 63, 64, [2, 64]]),
        "scheduler": st.sampled_from([*SCHEDULERS, "work_stealing", ["lifo", "work_stealing"]]),
        "join": st.sampled_from(["none", "suspend", "block"]),
        "spawn": st.sampled_from(SPAWNS),
        "work": st.sampled_from(WORKS),
        "dispatch_cost_us": st.sampled_from([0, 0.5]),
        "spawn_cost_us": st.sampled_from([0, 0.2]),
        "join_cost_us": st.sampled_from([0, 0.3]),
        "steal_cost_us": st.sampled_from([2, 50]),
        "quantum_us": st.sampled_from([10, 1000]),
        "arrival": st.sampled_from([None, {"process": "poisson", "rate_per_ms": 300}]),
        "seed": st.integers(0, 2**53 - 1),
        "replicas": st.integers(1, 4),
    }
)


@pytest.fixture(autouse=True, scope="module")
def device() -> Iterator[None]:
    gpu.set_device(devices.device(most_blocks=2, most_threads=3))
    yield
    gpu.set_device(None)


@pytest.fixture(autouse=True)
def nothing_measured() -> None:
    """Forget measurements, so that launches start small."""
    on_gpu.measured_cells.clear()


def go_on(_: int) -> bool:
    return True


def plan(**given: Any) -> Plan:
    found: Plan = definition.plan(definition.parameters.model_validate({"seed": 5, "replicas": 20, **given}))
    return found


def computed(kernel: Any, job: Plan) -> Any:
    upto, partial = kernel.run(job.spec, 0, job.total, go_on)
    assert upto == job.total
    return partial


def sensible(model: dict[str, Any]) -> dict[str, Any]:
    """The model without what its scheduler or its join does not take."""
    schedulers = model["scheduler"] if isinstance(model["scheduler"], list) else [model["scheduler"]]
    if model["join"] == "block":
        model["scheduler"] = [each for each in schedulers if each in ("fifo", "lifo")] or "lifo"
    dropped = {
        "join_cost_us": model["join"] == "none",
        "quantum_us": "round_robin" not in model["scheduler"],
        "arrival": model["arrival"] is None,
    }
    return {name: value for name, value in model.items() if not dropped.get(name)}


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of replicas that the GPU left to a CPU."""
    seen: list[int] = []
    real = gpu_simulation.GpuCell.compute

    def compute(cell: Any, first: int, count: int) -> Any:
        partial, left = real(cell, first, count)
        seen.extend(left)
        return partial, left

    monkeypatch.setattr(gpu_simulation.GpuCell, "compute", compute)
    return seen


@settings(max_examples=50, deadline=None)
@given(MODELS)
def test_every_model_is_the_reference(model: dict[str, Any]) -> None:
    job = plan(**sensible(model))
    assert Device.GPU in job.devices
    assert computed(on_gpu, job) == reference.run(job.spec, 0, job.total)


@settings(max_examples=50, deadline=None)
@given(MODELS, st.sampled_from([0.01, 0.3]), st.sampled_from([1, 3]))
def test_short_attempts_and_slices_are_those_of_cpus(model: dict[str, Any], steal: float, quantum: float) -> None:
    """The reference steps through each of them, which takes minutes."""
    job = plan(**sensible({**model, "steal_cost_us": steal, "quantum_us": quantum}))
    assert computed(on_gpu, job) == computed(on_cpu, job)


@pytest.mark.parametrize("warmup", [0, 15])
@pytest.mark.parametrize("depth", [0, 3])
def test_roots_that_arrive_are_the_reference(depth: int, warmup: int) -> None:
    arrival = {"process": "poisson", "rate_per_ms": 30, "warmup_roots": warmup}
    schedulers = {"scheduler": [*SCHEDULERS], "cores": [1, 4], "quantum_us": 20}
    job = plan(thread_count=60, max_depth=depth, arrival=arrival, replicas=8, **schedulers)
    assert computed(on_gpu, job) == reference.run(job.spec, 0, job.total)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("join", ["none", "suspend"])
def test_a_cap_that_is_reached_refuses_the_same_threads(scheduler: str, join: str) -> None:
    spawn = {"distribution": "binomial", "children": 3, "probability": 0.33}
    job = plan(thread_count=30, max_depth=9, max_threads=330, scheduler=scheduler, join=join, spawn=spawn, replicas=40)
    found = computed(on_gpu, job)
    assert found == computed(on_cpu, job) and found["cells"]["0"]["outcomes"][2] > 0


def test_thousands_of_threads_agree_with_cpus_and_are_left_to_none(left: list[int]) -> None:
    job = plan(scheduler=[*SCHEDULERS], cores=[8, 32], quantum_us=50, replicas=30)
    assert computed(on_gpu, job) == computed(on_cpu, job) and not left


def test_the_room_of_a_replica_follows_its_families() -> None:
    """The default model has one of roots, and 0.4 for each of 4,463 expected threads above max_depth."""
    spec = plan().spec
    assert gpu_simulation.expected_families(spec, "work_stealing") == pytest.approx(1 + 0.4 * 4463, rel=1e-3)


def test_replicas_that_deadlock_leave_nothing_in_the_histograms(left: list[int]) -> None:
    job = plan(thread_count=4, max_depth=4, cores=[5, 64], scheduler=["fifo", "lifo"], join="block", join_cost_us=2)
    found = computed(on_gpu, job)
    assert found == reference.run(job.spec, 0, job.total) and not left
    assert 0 < sum(cell["outcomes"][1] for cell in found["cells"].values()) < job.total


def test_a_replica_of_too_many_steps_is_simulated_on_a_cpu(monkeypatch: pytest.MonkeyPatch, left: list[int]) -> None:
    job = plan(thread_count=20, cores=3, replicas=20)
    monkeypatch.setattr(gpu_simulation, "steps", lambda spec, scheduler: 5)
    assert computed(on_gpu, job) == computed(on_cpu, job) and len(left) > 0


def test_the_specifications_example_has_the_golden_digest(left: list[int]) -> None:
    job = plan(seed=1, replicas=1024, thread_count=1000, max_depth=10, batch_size=256)
    golden = json.loads((registry.folder("thread") / "golden.json").read_text())["entries"]
    (cell,) = next(entry["cells"] for entry in golden if entry["parameters"] == {"seed": 1})
    assert Device.GPU in job.devices
    assert f"{computed(on_gpu, job)['cells']['0']['digest']:016x}" == cell["digest"] and not left


@pytest.mark.parametrize("arrival", [None, {"process": "poisson", "rate_per_ms": 5}])
def test_a_replica_without_room_is_simulated_on_a_cpu_and_counted_once(
    arrival: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for the usual replica only some fail, and what they counted is taken back."""
    more = {"arrival": arrival} if arrival else {}
    job = plan(thread_count=30, max_depth=4, scheduler="fifo", cores=3, replicas=50, **more)
    usual, tried = computed(on_cpu, job), []
    rows = 30 if arrival is None else 55
    real = gpu_simulation.GpuCell.compute

    def compute(cell: Any, first: int, count: int) -> Any:
        found = real(cell, first, count)
        tried.append((len(found[1]), count))
        return found

    monkeypatch.setattr(gpu_simulation, "families", lambda spec, scheduler: rows)
    monkeypatch.setattr(gpu_simulation.GpuCell, "compute", compute)
    assert computed(on_gpu, job) == usual
    assert 0 < sum(small for small, _ in tried) < sum(count for _, count in tried)


def test_any_partition_on_any_device_merges_to_the_same_partial() -> None:
    job, dice = plan(thread_count=40, scheduler=[*SCHEDULERS], cores=[2, 5], replicas=20), random.Random(2)
    cuts = [0, *sorted(dice.sample(range(1, job.total), 7)), job.total]
    parts = [dice.choice((on_gpu, on_cpu)).run(job.spec, lo, hi, go_on)[1] for lo, hi in pairwise(cuts)]
    dice.shuffle(parts)
    assert reduce(definition.merge, parts) == computed(on_gpu, job)


@pytest.mark.parametrize("batch_size", [1, 7])
def test_batch_size_never_changes_a_partial(batch_size: int) -> None:
    model: dict[str, Any] = {"thread_count": 20, "scheduler": "lifo", "replicas": 22}
    assert computed(on_gpu, plan(**model, batch_size=batch_size)) == computed(on_gpu, plan(**model))


def test_told_to_stop_it_keeps_what_it_has() -> None:
    job = plan(thread_count=10, scheduler="fifo", replicas=100, batch_size=8)
    upto, partial = on_gpu.run(job.spec, 3, job.total, lambda unit: unit < 20)
    assert 20 <= upto < job.total and partial == on_cpu.run(job.spec, 3, upto, go_on)[1]


def test_when_memory_runs_out_fewer_replicas_are_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    job = plan(thread_count=20, scheduler="fifo", replicas=50)
    usual, real, asked = computed(on_cpu, job), gpu_simulation.GpuCell.compute, []

    def full(cell: Any, first: int, count: int) -> Any:
        asked.append(count)
        if count > 10:
            raise gpu.OutOfMemory("no room")
        return real(cell, first, count)

    monkeypatch.setattr(gpu_simulation.GpuCell, "compute", full)
    assert computed(on_gpu, job) == usual and max(asked) > 10


@pytest.mark.parametrize(
    ("model", "fits"),
    [
        ({"scheduler": "fifo"}, True),
        ({"scheduler": ["fifo", "lifo"], "join": "none"}, True),
        ({}, True),
        ({"scheduler": ["fifo", "work_stealing"], "batch_size": 256}, True),
        ({"scheduler": "round_robin"}, True),
        ({"scheduler": "round_robin", "quantum_us": 1}, False),
        ({"scheduler": "fifo", "join": "block"}, True),
        ({"cores": 64, "arrival": {"process": "poisson", "rate_per_ms": 1}}, False),
        ({"scheduler": "fifo", "thread_count": 100_000}, False),
        ({"scheduler": "fifo", "trace": {"replica": 0}}, False),
    ],
)
def test_what_does_not_pay_on_a_gpu_is_planned_to_cpus(model: dict[str, Any], fits: bool) -> None:
    job = plan(**model)
    assert (Device.GPU in job.devices) is fits is not bool(job.cpu_only)
