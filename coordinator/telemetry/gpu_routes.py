"""Route for PyCluster clients that returns GPU measurements of now and of the last minute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastapi import Response

from coordinator.fleet import serializers as fleet_serializers
from coordinator.server import http
from coordinator.server.http import json_response
from coordinator.telemetry import history
from threads_protocol.answers import fleet as fleet_answers
from threads_protocol.answers import telemetry as telemetry_answers

routes = http.router(tag="cluster")

_SECONDS = 60
_GIBIBYTE = 1 << 30


@routes.get("/llm/gpu/status", **http.describe_response(telemetry_answers.GpuStatus))
def get_gpu_status(cluster: http.ClusterDep) -> Response:
    """Return the measurements of all live GPUs now and in each second of the last minute.

    The units are GiB, percent, degrees Celsius and watts.
    """
    gpus = [gpu for gpu in fleet_serializers.serialize_gpus(cluster.queries.fleet.workers()) if gpu["live"]]
    numbers = {gpu["uuid"]: number for number, gpu in enumerate(gpus)}
    now, blocks = history.read(cluster.store, _SECONDS)
    then = history.fill_bins(now, blocks, history.patterns("gpu.*"), _SECONDS, _SECONDS)
    row: telemetry_answers.GpuStatus = {
        "summary": {
            "available": bool(gpus),
            "count": len(gpus),
            "gpus": [_build_gpu_now(number, gpu) for number, gpu in enumerate(gpus)],
        },
        "recent_metrics": _recent(then, numbers),
    }
    return json_response(row)


def _build_gpu_now(number: int, gpu: fleet_answers.FleetGpu) -> telemetry_answers.GpuNow:
    return {
        "name": gpu.get("name", ""),
        **_build_gpu_figures(
            number,
            gpu.get("memory_total_bytes"),
            gpu.get("memory_used_bytes"),
            gpu.get("utilization_ratio"),
            gpu.get("temperature_celsius"),
            gpu.get("power_watts"),
        ),
    }


def _recent(then: telemetry_answers.History, numbers: Mapping[str, int]) -> list[telemetry_answers.GpuThen]:
    """Return the known measurements of each second and GPU, oldest first."""
    found: list[telemetry_answers.GpuThen] = []
    for place, time in enumerate(then["times"]):
        for uuid, number in numbers.items():
            of = [_mean(then, f"gpu.{uuid}.{name}", place) for name in _NAMES]
            if any(value is not None for value in of):
                found.append({"timestamp": time, **_build_gpu_figures(number, *of)})
    return found


#: Suffixes of history names, in the order of the arguments of `_build_gpu_figures`.
_NAMES: Sequence[str] = ("memory_total", "memory", "utilization", "temperature", "power")


def _mean(then: telemetry_answers.History, name: str, place: int) -> float | None:
    bins = then["series"].get(name)
    return bins["mean"][place] if bins else None


def _build_gpu_figures(
    number: int, total: float | None, used: float | None, busy: float | None, heat: float | None, power: float | None
) -> telemetry_answers.GpuFigures:
    return {
        "id": number,
        "memory_total": _scale(total, 1 / _GIBIBYTE),
        "memory_used": _scale(used, 1 / _GIBIBYTE),
        "utilization": _scale(busy, 100),
        "temperature": _scale(heat, 1),
        "power_usage": _scale(power, 1),
    }


def _scale(value: float | None, by: float) -> float | None:
    return None if value is None else round(value * by, 2)
