"""Figures of the GPUs of this host, from any provider: NVML on real ones."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True)
class HostGpu:
    """A GPU of this host."""

    index: int
    uuid: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A GPU at one moment, in base units. None: the chip or its driver does not report it."""

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
    """Where telemetry comes from. Nothing of it raises after it was made: what fails is None."""

    def gpus(self) -> list[HostGpu]: ...

    def sample(self, uuid: str) -> Sample: ...

    def joules(self, uuid: str) -> float | None:
        """The energy counter alone."""

    def fault(self, uuid: str) -> str:
        """Return what is wrong with the GPU itself since this was first asked, in words; empty: nothing is known."""

    def close(self) -> None: ...


class NoTelemetry(Exception):
    """There is no driver to ask; the message says what is missing."""


def describe_gpu(gpu: HostGpu, sample: Sample) -> dict[str, Any]:
    """A GPU as nodes show it: what is not known is left out."""
    known = {field.name: getattr(sample, field.name) for field in fields(sample)}
    return {
        "uuid": gpu.uuid,
        "index": gpu.index,
        "name": gpu.name,
        **{name: value for name, value in known.items() if value is not None},
    }
