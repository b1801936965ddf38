"""Telemetry of this host's GPUs. On real hardware, the provider is NVML."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True)
class HostGpu:
    """GPU of this host."""

    index: int
    uuid: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Measurements of a GPU at one time, in base units. A value is None if the GPU or its driver does not report it."""

    utilization_ratio: float | None = None
    sm_active_ratio: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    energy_joules_total: float | None = None
    clock_sm_hertz: float | None = None
    clock_memory_hertz: float | None = None
    pcie_receive_bytes_per_second: float | None = None
    pcie_transmit_bytes_per_second: float | None = None
    throttle_reasons: tuple[str, ...] | None = None


class Provider(Protocol):
    """Source of GPU telemetry. After construction, methods never raise; they return None for failed readings."""

    def gpus(self) -> list[HostGpu]: ...

    def sample(self, uuid: str) -> Sample: ...

    def joules(self, uuid: str) -> float | None:
        """Return the GPU's energy counter in joules."""

    def fault(self, uuid: str) -> str:
        """Return a description of a GPU fault since the first call, or an empty string."""

    def close(self) -> None: ...


class NoTelemetry(Exception):
    """GPU telemetry is not available. The message contains the reason."""


def describe_gpu(gpu: HostGpu, sample: Sample) -> dict[str, Any]:
    """Return a GPU's description and measurements for the node's record; unknown values are omitted."""
    known = {field.name: getattr(sample, field.name) for field in fields(sample)}
    return {
        "uuid": gpu.uuid,
        "index": gpu.index,
        "name": gpu.name,
        **{name: value for name, value in known.items() if value is not None},
    }
