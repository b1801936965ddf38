"""GPUs of this host as NVIDIA's driver lists them; none where there is no driver, or nobody to ask it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobs.worker.telemetry import gpu_faults

#: MiB of a GPU's memory that may be used by others where no process of them can be seen.
MOST_FOREIGN_MIB = 4096


@dataclass(frozen=True, kw_only=True)
class Gpu:
    uuid: str
    index: int
    name: str
    memory_mib: int
    #: Such as 9.0.
    compute_capability: str

    def row(self) -> dict[str, str | int]:
        """Return what requirements are compared with."""
        return {"memory_mib": self.memory_mib, "compute_capability": self.compute_capability}


def detect(enabled: str = "auto", visible: str = "") -> list[Gpu]:
    """Return the GPUs that programs may use, by UUID. `enabled` and `visible` are settings as of GPU workers."""
    if enabled == "false":
        return []
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # no module, no driver: this host has no GPU to offer
        return []
    try:
        found = [_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    finally:
        nvml.nvmlShutdown()
    return sorted(_filter_visible(found, visible), key=lambda gpu: gpu.uuid)


def foreign(gpu: Gpu) -> str:
    """Return why a GPU that no worker of the cluster uses is not to be used, in words; empty for nothing that is seen.

    Memory errors that ECC could not correct; a process that computes there, whose memory may be unknown; where
    processes cannot be seen, as in a container, much memory: a desktop has some.
    """
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # as in `detect`; CUDA will tell the program
        return ""
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        if fault := gpu_faults.of_memory(gpu_faults.uncorrectable(nvml, handle)):
            return f"{fault}; {gpu_faults.ADVICE}"
        if processes := _processes(nvml, handle):
            return f"processes that are not the cluster's compute there: {', '.join(processes)}"
        used = int(nvml.nvmlDeviceGetMemoryInfo(handle).used) >> 20
    except nvml.NVMLError:
        return ""
    finally:
        nvml.nvmlShutdown()
    return f"{used} MiB of its memory are used by others" if used > MOST_FOREIGN_MIB else ""


def _processes(nvml: Any, handle: Any) -> list[str]:
    """Return the processes that compute on a GPU, as far as the driver tells."""
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
    """Return those that CUDA_VISIBLE_DEVICES names, by number or by the beginning of the UUID; all when it is empty."""
    names = [name.strip() for name in visible.split(",") if name.strip()]
    if not names:
        return list(gpus)
    return [gpu for gpu in gpus if any(name == str(gpu.index) or gpu.uuid.startswith(name) for name in names)]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
