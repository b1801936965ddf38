"""Table of the measurements that workers report every second about their host and its GPUs.

Heartbeats, API, metrics and history take their names from this table. Tests compare it with the names in the schema,
GPU samples, dashboards and docs/gpu.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from jobs import metrics
from jobs.metrics import Metric


@dataclass(frozen=True, kw_only=True)
class Measurement:
    #: Field name in heartbeats and in the API. The value is in base units.
    field: str
    type: type[int] | type[float]
    unit: str
    metric: Metric
    #: Last part of the measurement's name in the history, or empty if the history does not record it.
    history: str = ""

    @property
    def counts(self) -> bool:
        return self.metric.type == "counter"


HOST = (
    Measurement(field="cpu_ratio", type=float, unit="0..1", metric=metrics.HOST_CPU, history="cpu"),
    Measurement(field="cpus", type=int, unit="", metric=metrics.HOST_CPUS),
    Measurement(field="load1", type=float, unit="", metric=metrics.HOST_LOAD1),
    Measurement(field="memory_used_bytes", type=int, unit="bytes", metric=metrics.HOST_MEMORY, history="memory"),
    Measurement(
        field="memory_total_bytes", type=int, unit="bytes", metric=metrics.HOST_MEMORY_TOTAL, history="memory_total"
    ),
    Measurement(
        field="network_receive_bytes_total", type=int, unit="bytes", metric=metrics.HOST_RECEIVED, history="receive"
    ),
    Measurement(field="network_transmit_bytes_total", type=int, unit="bytes", metric=metrics.HOST_SENT, history="send"),
)
GPU = (
    Measurement(
        field="utilization_ratio", type=float, unit="0..1", metric=metrics.GPU_UTILIZATION, history="utilization"
    ),
    Measurement(field="sm_active_ratio", type=float, unit="0..1", metric=metrics.GPU_SM_ACTIVE, history="sm_active"),
    Measurement(field="memory_used_bytes", type=int, unit="bytes", metric=metrics.GPU_MEMORY, history="memory"),
    Measurement(
        field="memory_total_bytes", type=int, unit="bytes", metric=metrics.GPU_MEMORY_TOTAL, history="memory_total"
    ),
    Measurement(
        field="temperature_celsius",
        type=float,
        unit="degrees Celsius",
        metric=metrics.GPU_TEMPERATURE,
        history="temperature",
    ),
    Measurement(field="power_watts", type=float, unit="watts", metric=metrics.GPU_POWER, history="power"),
    Measurement(field="energy_joules_total", type=float, unit="joules", metric=metrics.GPU_ENERGY),
    Measurement(field="clock_sm_hertz", type=float, unit="hertz", metric=metrics.GPU_CLOCK, history="clock"),
    Measurement(field="clock_memory_hertz", type=float, unit="hertz", metric=metrics.GPU_MEMORY_CLOCK),
    Measurement(field="pcie_receive_bytes_per_second", type=float, unit="bytes/s", metric=metrics.GPU_PCIE_RECEIVED),
    Measurement(field="pcie_transmit_bytes_per_second", type=float, unit="bytes/s", metric=metrics.GPU_PCIE_SENT),
)
