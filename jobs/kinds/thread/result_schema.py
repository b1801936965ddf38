"""JSON Schema of the result of a thread simulation; see the section "Result" of README.md."""

from __future__ import annotations

from typing import Any


def _number(title: str) -> dict[str, Any]:
    return {"title": title, "type": ["number", "null"]}


def _summary(title: str) -> dict[str, Any]:
    """Return the schema of a metric over replicas: mean, confidence interval and percentiles."""
    interval = {"title": "confidence interval", "type": ["array", "null"], "items": {"type": "number"}}
    names = {"mean": "mean", "stdev": "standard deviation", "min": "minimum", "max": "maximum"}
    fields = {name: _number(text) for name, text in names.items()}
    return {"title": title, "type": ["object", "null"], "properties": {**fields, "ci": interval}}


_METRICS = {
    "makespan_us": "makespan, µs",
    "work_us": "work, µs",
    "span_us": "span, µs",
    "parallelism": "parallelism",
    "speedup": "speedup",
    "efficiency": "efficiency",
    "utilization": "utilization",
    "overhead_fraction": "overhead fraction",
    "greedy_ratio": "ratio of makespan to greedy bound",
    "threads": "threads",
    "max_depth_reached": "maximum depth reached",
    "peak_live_threads": "peak live threads",
    "peak_ready_queue": "peak ready queue",
    "peak_stack_mib": "peak stack memory, MiB",
    "steals": "steals",
    "steal_attempts": "steal attempts",
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
