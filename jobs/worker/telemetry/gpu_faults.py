"""Faults that NVIDIA's driver reports for a GPU. A GPU with a fault gets no work until an operator restarts its worker.

`nvml` is the pynvml module, which callers pass so that this module need not import it.
"""

from __future__ import annotations

from typing import Any

#: Xid errors that faulty programs cause on healthy GPUs; NVIDIA's device plugin for Kubernetes ignores the same errors.
PROGRAM_XIDS = frozenset({13, 31, 43, 45, 68, 109})
ADVICE = "reset the GPU (nvidia-smi --gpu-reset) or have it replaced, then start the worker again"


def is_fault(xid: int) -> bool:
    """Return True if an Xid error indicates a fault of the GPU, its bus or its memory."""
    return xid not in PROGRAM_XIDS


def uncorrectable(nvml: Any, handle: Any) -> int | None:
    """Return the number of uncorrectable ECC errors since the driver was loaded, or None if it is unavailable."""
    try:
        count = nvml.nvmlDeviceGetTotalEccErrors(
            handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        )
    except nvml.NVMLError:  # The GPU has no ECC, or it has fallen off the bus, which an Xid error reports.
        return None
    return int(count)


def describe_memory_errors(count: int | None) -> str:
    """Return a description of uncorrectable memory errors, or an empty string if there are none."""
    if not count:
        return ""
    errors = "1 memory error" if count == 1 else f"{count} memory errors"
    return f"ECC could not correct {errors} since the driver was loaded"


def describe_xid(xid: int) -> str:
    """Return a description of an Xid error."""
    return f"the driver reported Xid {xid}"
