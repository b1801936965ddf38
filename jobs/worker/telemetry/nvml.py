"""GPU telemetry from NVIDIA's driver through nvidia-ml-py, which is imported only if it is needed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

from jobs.worker.telemetry import gpu_faults
from jobs.worker.telemetry.gpus import HostGpu, NoTelemetry, Sample

T = TypeVar("T")

#: Bits of NVML's clock event reasons, mapped to names in jobs.metrics.THROTTLE_REASONS. Idle is not throttling.
REASONS = {
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
_IDLE = 0x1
#: Maximum number of Xid errors read per call.
_MOST_EVENTS = 100


class Nvml:
    """Source of GPU telemetry that uses NVIDIA's NVML. Raises NoTelemetry."""

    def __init__(self) -> None:
        try:
            self._nvml: Any = importlib.import_module("pynvml")
            self._nvml.nvmlInit()
        except ImportError as error:
            raise NoTelemetry(f"{error}: pip install -r requirements/gpu-worker.txt") from error
        except self._nvml.NVMLError as error:
            raise NoTelemetry(f"NVML failed: {error}; run nvidia-smi on this host") from error
        self._handles: dict[str, Any] = {}
        self._activity: dict[str, Any] = {}
        #: NVML event set of each GPU checked for faults; None if its driver supports no events.
        self._events: dict[str, Any] = {}

    def gpus(self) -> list[HostGpu]:
        nvml = self._nvml
        gpus = []
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = _text(nvml.nvmlDeviceGetUUID(handle))
            self._handles[uuid] = handle
            gpus.append(HostGpu(index=index, uuid=uuid, name=_text(nvml.nvmlDeviceGetName(handle))))
        return gpus

    def sample(self, uuid: str) -> Sample:
        nvml, handle = self._nvml, self._handle(uuid)
        if handle is None:
            return Sample()
        memory = self._call(nvml.nvmlDeviceGetMemoryInfo, handle)
        busy = self._call(nvml.nvmlDeviceGetUtilizationRates, handle)
        return Sample(
            utilization_ratio=None if busy is None else busy.gpu / 100,
            sm_active_ratio=self._sm_active(uuid, handle),
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
            temperature_celsius=self._call_scaled(1, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            power_watts=self._call_scaled(1e-3, nvml.nvmlDeviceGetPowerUsage, handle),
            energy_joules_total=self.joules(uuid),
            clock_sm_hertz=self._call_scaled(1e6, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            clock_memory_hertz=self._call_scaled(1e6, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            pcie_receive_bytes_per_second=self._pcie(handle, nvml.NVML_PCIE_UTIL_RX_BYTES),
            pcie_transmit_bytes_per_second=self._pcie(handle, nvml.NVML_PCIE_UTIL_TX_BYTES),
            throttle_reasons=self._reasons(handle),
        )

    def joules(self, uuid: str) -> float | None:
        handle = self._handle(uuid)
        return (
            None if handle is None else self._call_scaled(1e-3, self._nvml.nvmlDeviceGetTotalEnergyConsumption, handle)
        )

    def fault(self, uuid: str) -> str:
        handle = self._handle(uuid)
        if handle is None:
            return ""
        if uuid not in self._events:
            self._events[uuid] = self._call(self._register, handle)
        xids = self._xids(self._events[uuid])
        if found := next(filter(gpu_faults.is_fault, xids), None):
            return gpu_faults.describe_xid(found)
        return gpu_faults.describe_memory_errors(gpu_faults.uncorrectable(self._nvml, handle))

    def _register(self, handle: Any) -> Any:
        events = self._nvml.nvmlEventSetCreate()
        self._nvml.nvmlDeviceRegisterEvents(handle, self._nvml.nvmlEventTypeXidCriticalError, events)
        return events

    def _xids(self, events: Any) -> list[int]:
        """Return the pending Xid errors of an event set."""
        found: list[int] = []
        while events is not None and len(found) < _MOST_EVENTS:
            event = self._call(self._nvml.nvmlEventSetWait_v2, events, 0)
            if event is None:
                break
            found.append(int(event.eventData))
        return found

    def close(self) -> None:
        self._call(self._nvml.nvmlShutdown)

    def _handle(self, uuid: str) -> Any:
        if uuid not in self._handles:
            handle = self._call(self._nvml.nvmlDeviceGetHandleByUUID, uuid)
            if handle is None:
                return None
            self._handles[uuid] = handle
        return self._handles[uuid]

    def _call(self, call: Callable[..., T], *arguments: Any) -> T | None:
        """Call NVML. Return None for an unsupported query or for a function that is missing in an old driver."""
        try:
            return call(*arguments)
        except self._nvml.NVMLError:
            return None

    def _call_scaled(self, factor: float, call: Callable[..., Any], *arguments: Any) -> float | None:
        value = self._call(call, *arguments)
        return None if value is None else float(value) * factor

    def _pcie(self, handle: Any, which: int) -> float | None:
        """Return PCIe bytes per second. NVML reports the throughput of the last 20 ms in kB/s."""
        return self._call_scaled(1000, self._nvml.nvmlDeviceGetPcieThroughput, handle, which)

    def _reasons(self, handle: Any) -> tuple[str, ...] | None:
        bits = self._call(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        if bits is None:
            return None
        named = tuple(name for bit, name in REASONS.items() if bits & bit)
        return named + (("other",) if bits & ~(_IDLE | sum(REASONS)) else ())

    def _sm_active(self, uuid: str, handle: Any) -> float | None:
        """Return the mean SM activity since the last call. Return None on the first call and on GPUs before Hopper."""
        taken = self._call(self._metrics_sample, handle)
        before, self._activity[uuid] = self._activity.get(uuid), taken
        if taken is None or before is None:
            self._release(before if taken is None else None)
            return None
        try:
            return self._call(self._activity_between, before, taken)
        finally:
            self._release(before)

    def _metrics_sample(self, handle: Any) -> Any:
        nvml = self._nvml
        support = nvml.nvmlGpmQueryDeviceSupport(handle)
        if not support.isSupportedDevice:
            return None
        taken = nvml.nvmlGpmSampleAlloc()
        try:
            nvml.nvmlGpmSampleGet(handle, taken)
        except nvml.NVMLError:
            nvml.nvmlGpmSampleFree(taken)
            raise
        return taken

    def _activity_between(self, before: Any, after: Any) -> float:
        nvml = self._nvml
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 1
        asked.sample1, asked.sample2 = before, after
        asked.metrics[0].metricId = nvml.NVML_GPM_METRIC_SM_UTIL
        nvml.nvmlGpmMetricsGet(asked)
        if asked.metrics[0].nvmlReturn:
            raise nvml.NVMLError(asked.metrics[0].nvmlReturn)
        return round(float(asked.metrics[0].value) / 100, 4)

    def _release(self, taken: Any) -> None:
        if taken is not None:
            self._call(self._nvml.nvmlGpmSampleFree, taken)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
