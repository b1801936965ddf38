"""JSON Schema of a result; README, `Result`."""

from __future__ import annotations

from typing import Any


def _number(title: str) -> dict[str, Any]:
    return {"title": title, "type": ["number", "null"]}


def _summary(title: str) -> dict[str, Any]:
    """Schema of a metric over replicas: mean, confidence interval, percentiles."""
    interval = {"title": "confidence interval", "type": ["array", "null"], "items": {"type": "number"}}
    names = {"mean": "mean", "stdev": "standard deviation", "min": "least", "max": "greatest"}
    fields = {name: _number(text) for name, text in names.items()}
    return {"title": title, "type": ["object", "null"], "properties": {**fields, "ci": interval}}


_METRICS = {
    "makespan_us": "makespan, µs",
    "work_us": "work, µs",
    "span_us": "span, µs",
    "parallelism": "parallelism",
    "speedup": "speedup",
    "efficiency": "efficiency",
    "utilization": "utilisation",
    "overhead_fraction": "share of overhead",
    "greedy_ratio": "makespan over the greedy bound",
    "threads": "threads",
    "max_depth_reached": "greatest depth",
    "peak_live_threads": "most live threads",
    "peak_ready_queue": "longest ready queue",
    "peak_stack_mib": "most memory of stacks, MiB",
    "steals": "steals",
    "steal_attempts": "attempts to steal",
    "context_switches": "context switches",
    "mean_ready_queue": "mean ready queue",
    "throughput_threads_per_s": "threads per second",
}
_CELL = {
    "type": "object",
    "required": ["cell", "cores", "scheduler", "replicas"],
    "properties": {
        "cores": {"title": "cores", "type": "integer", "minimum": 1},
        "scheduler": {"title": "scheduler", "type": "string"},
        "replicas": {"title": "replicas", "type": "integer", "minimum": 0},
        "metrics": {
            "title": "metrics",
            "type": "object",
            "properties": {name: _summary(title) for name, title in _METRICS.items()},
        },
        "threads_by_depth": {"title": "threads by depth", "type": "array"},
        "theory": {"title": "theory", "type": "array"},
    },
}
RESULT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "replicas": {"title": "replicas", "type": "integer"},
        "digest": {"title": "digest", "type": "string", "pattern": "^[0-9a-f]{16}$"},
        "cells": {"title": "cells", "type": "array", "items": _CELL},
        "warnings": {"title": "warnings", "type": "array", "items": {"type": "string"}},
        "threads_simulated": {"title": "threads simulated", "type": ["integer", "string"]},
    },
}
