"""Simulations of recursively spawned threads on a finite machine; the model is in README.md."""

from __future__ import annotations

import math
import secrets
from fractions import Fraction
from typing import Any

from jobs import errors
from jobs.kinds.thread import report, tables, theory
from jobs.kinds.thread.merging import merge
from jobs.kinds.thread.parameters import DEFAULT_QUANTUM_US, MAX_THREADS, Parameters
from jobs.models import Device, Partial, Plan, Spec

__all__ = ["EXAMPLE", "MODEL_VERSION", "SUMMARY", "Parameters", "merge", "plan", "result"]

MODEL_VERSION = 1
SUMMARY = "Monte-Carlo simulation of recursively spawned threads on a finite machine"
EXAMPLE: dict[str, Any] = {"thread_count": 50, "max_depth": 5, "replicas": 64, "cores": 4, "seed": 1}

#: What kernels simulate of what `Parameters` describes.
SIMULATED: dict[str, tuple[str, ...]] = {
    "scheduler": ("fifo", "work_stealing"),
    "join": ("none", "suspend"),
    "work": ("fixed", "uniform", "exponential", "hyperexponential", "empirical"),
    "arrival": ("batch",),
}
#: Times stay below 2^56 ns, so that a time and a core's number fit one word and cores x time another.
_LONGEST_BITS = 56
_MOST_THREADS = 10**12
#: Nanoseconds of one CPU core per simulated thread: a constant and a share per simulated core; and per replica.
_THREAD_NS = {"fifo": (38.0, 0.25), "work_stealing": (42.0, 1.0)}
_REPLICA_NS = 600.0


def plan(parameters: Parameters) -> Plan:
    """Compiles the distributions, checks that the job is finite and simulated, and lays the cells out."""
    _check_quantum(parameters)
    _check_simulated(parameters)
    seed = secrets.randbelow(2**53) if parameters.seed is None else parameters.seed
    resolved = parameters.model_copy(update={"seed": seed})
    spec = _spec(resolved)
    expected = sum(theory.threads_by_depth(spec["offspring"], parameters.thread_count, parameters.max_depth))
    _check_size(parameters, spec, Fraction(expected))
    modes = {scheduler for _, scheduler in parameters.cells}
    longest = max(_seconds(spec["most_threads"], *cell) for cell in parameters.cells)
    return Plan(
        total=len(parameters.cells) * parameters.replicas,
        spec=spec,
        parameters=spec["parameters"],
        devices=(Device.CPU,),
        cpu_seconds=parameters.replicas * sum(_seconds(float(expected), *cell) for cell in parameters.cells),
        mode=modes.pop() if len(modes) == 1 else "sweep",
        max_lease_seconds=30 + 50 * longest,
    )


def result(spec: Spec, partial: Partial) -> dict[str, Any]:
    """The job's `result`: a function of the spec and of the merged partial, nothing else."""
    return {"type": "thread", "model_version": MODEL_VERSION, **report.report(spec, partial)}


def _seconds(threads: float, cores: int, scheduler: str) -> float:
    """Rough seconds of one replica on one CPU core."""
    fixed, per_core = _THREAD_NS[scheduler]
    return (threads * (fixed + per_core * cores) + _REPLICA_NS) / 1e9


def _spec(parameters: Parameters) -> dict[str, Any]:
    offspring = tables.offspring(parameters.spawn, parameters.max_depth)
    roots, depth = parameters.thread_count, parameters.max_depth
    return {
        "parameters": parameters.model_dump(mode="json"),
        "seed": parameters.seed,
        "replicas": parameters.replicas,
        "cells": [[cores, scheduler] for cores, scheduler in parameters.cells],
        "thread_count": roots,
        "max_depth": depth,
        "max_threads": parameters.max_threads,
        "most_threads": theory.most_threads(offspring, roots, depth, parameters.max_threads),
        "join": parameters.join,
        "offspring": offspring,
        "work": tables.work(parameters.work),
        "dispatch_ns": tables.nanoseconds(parameters.dispatch_cost_us),
        "spawn_ns": tables.nanoseconds(parameters.spawn_cost_us),
        "join_ns": tables.nanoseconds(parameters.join_cost_us),
        "steal_ns": tables.nanoseconds(parameters.steal_cost_us),
        "batch_size": parameters.batch_size,
        "expected_threads": math.ceil(sum(theory.threads_by_depth(offspring, roots, depth))),
    }


def _check_quantum(parameters: Parameters) -> None:
    schedulers = [scheduler for _, scheduler in parameters.cells]
    if "round_robin" not in schedulers or parameters.work.distribution == "pareto":
        return
    quantum = parameters.quantum_us or DEFAULT_QUANTUM_US
    mean = float(tables.mean_work(tables.work(parameters.work)) / 1000)
    if mean / quantum > 1e4:
        detail = f"mean work {mean:.6g} us is {mean / quantum:.3g} slices of {quantum:.6g} us; at most 10000"
        raise errors.InvalidRequest(f"parameters.quantum_us: {detail}", field="parameters.quantum_us")


def _check_simulated(parameters: Parameters) -> None:
    schedulers = dict.fromkeys(scheduler for _, scheduler in parameters.cells)
    asked = {
        "scheduler": tuple(schedulers),
        "join": (parameters.join,),
        "work": (parameters.work.distribution,),
        "arrival": (parameters.arrival.process,),
    }
    for field, values in asked.items():
        for value in values:
            if value not in SIMULATED[field]:
                _refuse(field, f"{value} is not simulated yet; use {' or '.join(SIMULATED[field])}")
    if parameters.trace is not None:
        _refuse("trace", "a trace is not recorded yet; use null")


def _check_size(parameters: Parameters, spec: Spec, expected: Fraction) -> None:
    if expected > parameters.max_threads:
        means = [float(tables.mean_offspring(spec["offspring"], depth)) for depth in range(parameters.max_depth)]
        _refuse(
            "max_threads",
            f"expected {float(expected):.3g} threads per replica ({parameters.thread_count} roots, mean "
            f"{max(means):.3g} children, depth {parameters.max_depth}) exceeds max_threads {parameters.max_threads}; "
            f"lower max_depth, thread_count or spawn mean, or raise max_threads (limit {MAX_THREADS})",
        )
    threads = float(expected) * parameters.replicas * len(parameters.cells)
    if threads > _MOST_THREADS:
        hours = parameters.replicas * sum(_seconds(float(expected), *cell) for cell in parameters.cells) / 3600
        _refuse(
            "replicas",
            f"{threads:.3g} threads (replicas x expected threads x cells) exceed {_MOST_THREADS:.0e}, "
            f"about {hours:.3g} core-hours; lower replicas, cells, thread_count, max_depth or the spawn mean",
        )
    _check_time(spec)


def _check_time(spec: Spec) -> None:
    costs = spec["dispatch_ns"] + spec["join_ns"] + max(spec["offspring"]["values"]) * spec["spawn_ns"]
    longest = tables.longest_work(spec["work"]) + costs
    if (spec["most_threads"] * longest).bit_length() > _LONGEST_BITS:
        _refuse(
            "work",
            f"{spec['most_threads']} threads of up to {longest} ns each can pass 2^{_LONGEST_BITS} ns of simulated "
            "time; lower the work, the costs or max_threads",
        )


def _refuse(field: str, detail: str) -> None:
    raise errors.InvalidRequest(f"parameters.{field}: {detail}", field=f"parameters.{field}")
