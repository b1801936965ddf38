"""GPUs of this host, as reported by NVIDIA's driver. A host without the driver or pynvml has no GPUs."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobs.worker.telemetry import gpu_faults
from jobs.worker.telemetry.background import Background
from jobs.worker.telemetry.gpus import HostGpu, NoTelemetry, Sample, describe_gpu
from jobs.worker.telemetry.nvml import Nvml

#: Maximum memory in MiB that unknown processes can use on a GPU before the runner stops offering the GPU.
MOST_FOREIGN_MIB = 4096
#: Interval in seconds between two measurements of the GPUs.
MEASURE_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Gpu(HostGpu):
    """GPU that a runner offers to programs."""

    memory_mib: int
    #: CUDA compute capability, for example 9.0.
    compute_capability: str

    def row(self) -> dict[str, str | int]:
        """Return the GPU's fields that requirements of jobs can refer to."""
        return {"memory_mib": self.memory_mib, "compute_capability": self.compute_capability}


class Telemetry:
    """Measures GPUs in a background thread, so that a driver that does not respond delays no heartbeat."""

    def __init__(self, gpus: Sequence[Gpu] = ()) -> None:
        self._gpus = gpus
        self._nvml: Nvml | None = None
        first = [describe_gpu(gpu, Sample()) for gpu in gpus]
        self._known = Background[list[dict[str, Any]]](self._measure, first, MEASURE_SECONDS)

    def read(self) -> list[dict[str, Any]]:
        """Return the description and the last measurements of each GPU."""
        return self._known.read() if self._gpus else []

    def settle(self) -> None:
        """Wait for the running measurement, if there is one."""
        self._known.settle()

    def _measure(self) -> list[dict[str, Any]]:
        try:
            nvml = self._nvml = self._nvml or Nvml()
        except NoTelemetry:
            return [describe_gpu(gpu, Sample()) for gpu in self._gpus]
        return [describe_gpu(gpu, nvml.sample(gpu.uuid)) for gpu in self._gpus]


def detect(enabled: str = "auto", visible: str = "") -> list[Gpu]:
    """Return the GPUs that programs can use, sorted by UUID. The arguments are the same settings as for GPU workers."""
    if enabled == "false":
        return []
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # Without pynvml or the driver, this host offers no GPUs.
        return []
    try:
        found = [_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    finally:
        nvml.nvmlShutdown()
    return sorted(_filter_visible(found, visible), key=lambda gpu: gpu.uuid)


def foreign(gpu: Gpu) -> str:
    """Return the reason why a GPU must not be used by this cluster, or an empty string.

    Reasons are uncorrectable memory errors and running compute processes. If processes are not visible, as in a
    container, another reason is high memory use: a desktop uses only some memory.
    """
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # Without pynvml or the driver, CUDA reports the error to the program.
        return ""
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        if fault := gpu_faults.describe_memory_errors(gpu_faults.uncorrectable(nvml, handle)):
            return f"{fault}; {gpu_faults.ADVICE}"
        if processes := _processes(nvml, handle):
            return f"processes outside the cluster are using it: {', '.join(processes)}"
        used = int(nvml.nvmlDeviceGetMemoryInfo(handle).used) >> 20
    except nvml.NVMLError:
        return ""
    finally:
        nvml.nvmlShutdown()
    return f"other processes use {used} MiB of its memory" if used > MOST_FOREIGN_MIB else ""


def _processes(nvml: Any, handle: Any) -> list[str]:
    """Return the PIDs of the compute processes that the driver reports for a GPU."""
    try:
        return [str(one.pid) for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    except nvml.NVMLError:
        return []


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Gpu(
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        index=index,
        name=_text(nvml.nvmlDeviceGetName(handle)),
        memory_mib=int(nvml.nvmlDeviceGetMemoryInfo(handle).total) >> 20,
        compute_capability=f"{major}.{minor}",
    )


def _filter_visible(gpus: Sequence[Gpu], visible: str) -> list[Gpu]:
    """Return the GPUs whose index or UUID prefix is in CUDA_VISIBLE_DEVICES. If the setting is empty, return
    all GPUs.
    """
    names = [name.strip() for name in visible.split(",") if name.strip()]
    if not names:
        return list(gpus)
    return [gpu for gpu in gpus if any(name == str(gpu.index) or gpu.uuid.startswith(name) for name in names)]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
