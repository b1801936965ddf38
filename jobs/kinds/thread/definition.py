"""Kind `thread`: simulates recursively spawned threads on a finite machine. README.md describes the model."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, ClassVar

from jobs import errors
from jobs.encoding.json_reader import JsonReader
from jobs.kinds.contract import Kind
from jobs.kinds.thread import partials, report, sizes, tables, theory, titles, trace_windows
from jobs.kinds.thread.parameters import DEFAULT_QUANTUM_US, MAX_THREADS, Parameters
from jobs.kinds.thread.result_schema import RESULT
from jobs.models import Device, Partial, Plan, Spec

#: Maximum number of bits of a simulated time in ns, so that a time and a core number fit in one 64-bit word.
_LONGEST_BITS = 56
_MOST_THREADS = 10**12
#: Maximum number of steps of one simulation run (replica), which then takes about 20 seconds.
_MOST_STEPS = 10**9
#: Maximum memory in bytes of one simulation run (replica), limited by the memory of a worker process.
_MOST_BYTES = 512 * 2**20
#: Maximum expected number of steps of a replica on a GPU, where a single GPU thread simulates the whole replica.
_MOST_GPU_STEPS = 50_000
#: Maximum number of time slices that the mean work of a thread takes.
_MOST_SLICES = 10_000


def _cpu_only(spec: Spec) -> str:
    """Return why the simulation runs of a job are too long for a GPU, or an empty string."""
    steps = max(sizes.steps(spec, *cell) for cell in spec["cells"])
    if steps <= _MOST_GPU_STEPS:
        return ""
    return f"a replica takes about {steps:.3g} steps; a GPU accepts at most {_MOST_GPU_STEPS}"


def _plan_trace(spec: dict[str, Any]) -> Plan:
    """Plan a job that records the trace of one replica.

    The kernel simulates the replica once, and the recorder simulates it again step by step.
    """
    cell = spec["cells"][spec["trace"]["cell"]]
    return Plan(
        total=1,
        spec=spec,
        parameters=spec["parameters"],
        devices=(Device.CPU,),
        cpu_only="traces are recorded on CPUs",
        cpu_seconds=sizes.trace_seconds(spec) + sizes.seconds(spec, spec["expected_threads"], *cell),
        mode="trace",
        max_lease_seconds=120 + 50 * sizes.seconds(spec, spec["most_threads"], *cell),
    )


def _spec(parameters: Parameters, offspring: dict[str, Any], expected: Fraction) -> dict[str, Any]:
    roots, depth = parameters.thread_count, parameters.max_depth
    work, quantum = tables.work(parameters.work), _quantum(parameters)
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
        "work": work,
        "dispatch_ns": tables.nanoseconds(parameters.dispatch_cost_us),
        "spawn_ns": tables.nanoseconds(parameters.spawn_cost_us),
        "join_ns": tables.nanoseconds(parameters.join_cost_us),
        "steal_ns": tables.nanoseconds(parameters.steal_cost_us),
        "quantum_ns": quantum,
        "most_slices": tables.longest_work(work) // quantum + 1 if quantum else 0,
        "arrival": tables.arrival(parameters.arrival),
        "batch_size": parameters.batch_size,
        "expected_threads": math.ceil(expected),
        "trace": None if parameters.trace is None else parameters.trace.model_dump(),
    }


def _quantum(parameters: Parameters) -> int:
    """Return the time slice of round robin in ns, or 0 if no simulated machine uses round robin."""
    if not any(scheduler == "round_robin" for _, scheduler in parameters.cells):
        return 0
    return tables.nanoseconds(parameters.quantum_us or DEFAULT_QUANTUM_US)


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
        seconds = sum(sizes.seconds(spec, float(expected), *cell) for cell in parameters.cells)
        _refuse(
            "replicas",
            f"{threads:.3g} threads (replicas x expected threads x cells) exceed {_MOST_THREADS:.0e}, about "
            f"{parameters.replicas * seconds / 3600:.3g} core-hours; lower replicas, cells, thread_count, max_depth "
            "or the spawn mean",
        )
    _check_slices(spec)
    _check_memory(spec)
    _check_time(spec)


def _check_slices(spec: Spec) -> None:
    if not spec["quantum_ns"]:
        return
    slices, quantum = sizes.slices(spec), spec["quantum_ns"] / 1000
    mean = float(tables.mean_work(spec["work"])) / 1000
    if mean / quantum > _MOST_SLICES:
        _refuse(
            "quantum_us",
            f"mean work {mean:.6g} us is {mean / quantum:.3g} slices of {quantum:.6g} us; the maximum is "
            f"{_MOST_SLICES}",
        )
    if spec["expected_threads"] * slices > _MOST_STEPS:
        _refuse(
            "quantum_us",
            f"expected {spec['expected_threads'] * slices:.3g} slices per replica ({spec['expected_threads']} threads "
            f"of {slices:.3g} slices of {quantum:.6g} us); the maximum is {_MOST_STEPS:.0e}",
        )


def _check_memory(spec: Spec) -> None:
    needed = sizes.replica_bytes(spec)
    if needed > _MOST_BYTES:
        _refuse(
            "max_threads",
            f"a replica may need {needed} bytes ({spec['most_threads']} threads); the maximum is {_MOST_BYTES}. "
            "Lower max_threads",
        )


def _check_time(spec: Spec) -> None:
    costs = spec["dispatch_ns"] * max(1, spec["most_slices"]) + spec["join_ns"]
    longest = tables.longest_work(spec["work"]) + costs + max(spec["offspring"]["values"]) * spec["spawn_ns"]
    arrival = spec["arrival"]
    waiting = tables.last_arrival(arrival, spec["thread_count"]) if arrival else 0
    if (waiting + spec["most_threads"] * longest).bit_length() > _LONGEST_BITS:
        _refuse(
            "work",
            f"{spec['most_threads']} threads of up to {longest} ns each, the last root at {waiting} ns, can exceed "
            f"2^{_LONGEST_BITS} ns of simulated time. Lower the work, the costs or max_threads",
        )


def _refuse(field: str, detail: str) -> None:
    raise errors.InvalidRequest(f"parameters.{field}: {detail}", field=f"parameters.{field}")


class Thread(Kind):
    """Kind that simulates recursively spawned threads on a finite machine."""

    model_version = 2
    summary = "Monte-Carlo simulation of recursively spawned threads on a finite machine."
    example: ClassVar[dict[str, Any]] = {"thread_count": 50, "max_depth": 5, "replicas": 64, "cores": 4, "seed": 1}
    parameters = Parameters
    result_schema = RESULT
    #: The question `trace` accepts the query parameters replica, cell and max_events.
    questions: ClassVar[Mapping[str, str]] = {"trace": "Record one replica as Chrome Trace Event JSON for Perfetto."}
    binaries = trace_windows.BINARIES

    def plan(self, parameters: Parameters) -> Plan:
        """Compile the distributions and plan one unit per replica. Raise InvalidRequest if a limit is exceeded."""
        seed = secrets.randbelow(2**53) if parameters.seed is None else parameters.seed
        resolved = parameters.model_copy(update={"seed": seed})
        offspring = tables.offspring(parameters.spawn, parameters.max_depth)
        expected = theory.expected_threads(offspring, parameters.thread_count, parameters.max_depth)
        spec = _spec(resolved, offspring, expected)
        _check_size(parameters, spec, expected)
        if parameters.trace is not None:
            return _plan_trace(spec)
        seconds = [sizes.seconds(spec, float(expected), *cell) for cell in parameters.cells]
        longest = max(sizes.seconds(spec, spec["most_threads"], *cell) for cell in parameters.cells)
        schedulers = {scheduler for _, scheduler in parameters.cells}
        cpu_only = _cpu_only(spec)
        return Plan(
            total=len(parameters.cells) * parameters.replicas,
            spec=spec,
            parameters=spec["parameters"],
            devices=(Device.CPU,) if cpu_only else (Device.GPU, Device.CPU),
            cpu_only=cpu_only,
            cpu_seconds=parameters.replicas * sum(seconds) + sizes.chunk_seconds(spec),
            mode=schedulers.pop() if len(schedulers) == 1 else "sweep",
            max_lease_seconds=30 + 50 * longest,
            notes=tuple(theory.overloads(spec)),
        )

    def merge(self, left: Partial, right: Partial) -> Partial:
        return partials.merge(left, right)

    def result(self, spec: Spec, partial: Partial) -> dict[str, Any]:
        """Return the job's result, computed only from the job's spec and the merged partial result."""
        if spec["trace"] is not None:
            trace: dict[str, Any] = partial["trace"]
            return trace
        return {"type": "thread", "model_version": self.model_version, **report.report(spec, partial)}

    def question(self, name: str, parameters: Mapping[str, Any], choice: Mapping[str, str]) -> dict[str, Any]:
        """Return the parameters of a job that answers a question about another job; `trace` records one replica."""
        return {**parameters, name: dict(choice)}

    def title(self, parameters: Mapping[str, Any]) -> str:
        return titles.title(parameters)

    def binary(self, name: str, answer: JsonReader) -> Callable[[Mapping[str, str]], bytes]:
        return trace_windows.binary(name, answer)


KIND = Thread()
