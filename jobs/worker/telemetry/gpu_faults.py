"""Faults that NVIDIA's driver reports of a GPU: after one it gets no work until somebody has looked at it.

`nvml` is the module pynvml, which this module never imports.
"""

from __future__ import annotations

from typing import Any

#: Xid errors that programs cause by what they do, on a sound GPU: NVIDIA's own plugin for Kubernetes ignores the same.
OF_PROGRAMS = frozenset({13, 31, 43, 45, 68, 109})
ADVICE = "reset the GPU (nvidia-smi --gpu-reset) or have it replaced, then start the worker again"


def is_fault(xid: int) -> bool:
    """Return True for an Xid error that speaks of the GPU, its link or its memory."""
    return xid not in OF_PROGRAMS


def uncorrectable(nvml: Any, handle: Any) -> int | None:
    """Return the memory errors since the driver was loaded that ECC could not correct; None: it does not tell."""
    try:
        count = nvml.nvmlDeviceGetTotalEccErrors(
            handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        )
    except nvml.NVMLError:  # a chip without ECC, or one that has fallen off the bus: Xid says that
        return None
    return int(count)


def of_memory(count: int | None) -> str:
    """Return what so many errors mean, in words; empty for none."""
    if not count:
        return ""
    errors = "1 memory error" if count == 1 else f"{count} memory errors"
    return f"ECC could not correct {errors} since the driver was loaded"


def of_xid(xid: int) -> str:
    """Return an Xid error in words."""
    return f"the driver reported Xid {xid}"
