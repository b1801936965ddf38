"""Registry of the kinds of jobs. Loads the kernel of a kind for a device on first use.

No other module loads kernels. A kind is a folder of `jobs/kinds` with a `definition.py`. `contract.py` specifies its
modules.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import cast

from jobs import errors, kinds
from jobs.kinds import code_sets
from jobs.kinds.contract import Kernel, Kind, Reference
from jobs.kinds.program_kind import ProgramKind
from jobs.models import Device


@lru_cache
def names() -> tuple[str, ...]:
    """Return the names of all kinds, sorted."""
    return tuple(sorted(entry.name for entry in pkgutil.iter_modules(kinds.__path__) if entry.ispkg))


@lru_cache
def definition(kind: str) -> Kind:
    """Return the definition of a kind. Raises UnknownKind, which lists the existing kinds."""
    if kind not in names():
        known = ", ".join(names())
        raise errors.UnknownKind(f"type must be one of {known}; got {kind!r}", field="type")
    return cast(Kind, importlib.import_module(f"jobs.kinds.{kind}.definition").KIND)


def folder(kind: str) -> Path:
    """Return the folder that contains the kind's modules and files."""
    return Path(inspect.getfile(type(definition(kind)))).parent


@lru_cache
def versions() -> Mapping[str, int]:
    """Return the model version of each kind. Partial results of different versions are never merged."""
    return {kind: definition(kind).model_version for kind in names()}


def program_kind(kind: str) -> ProgramKind | None:
    """Return the definition of a program kind, or None if workers compute the kind with kernels."""
    found = definition(kind)
    return found if isinstance(found, ProgramKind) else None


@lru_cache
def endless_kinds() -> frozenset[str]:
    """Return the names of kinds whose jobs run until they are stopped and occupy no slot of a runner."""
    return frozenset(kind for kind in names() if definition(kind).is_endless)


@lru_cache
def devices(kind: str) -> tuple[Device, ...]:
    """Return the devices on which jobs of a kind can be computed, without loading a kernel.

    These are the devices that the kind has kernels for, or only runners.
    """
    if program_kind(kind):
        return (Device.RUNNER,)
    return tuple(device for device in (Device.CPU, Device.GPU) if importlib.util.find_spec(_kernel_name(kind, device)))


def kinds_for_device(device: Device) -> tuple[str, ...]:
    """Return the names of the kinds that workers with this device can compute, sorted."""
    return tuple(kind for kind in names() if device in devices(kind))


def _kernel_name(kind: str, device: Device) -> str:
    return f"jobs.kinds.{kind}.{device}_kernel"


@lru_cache
def reference(kind: str) -> Reference:
    definition(kind)
    return cast(Reference, importlib.import_module(f"jobs.kinds.{kind}.reference"))


@lru_cache
def kernel(kind: str, device: Device) -> Kernel:
    """Load the kernel of a kind for a device. Only lanes call this, because the import can load numba or cupy."""
    definition(kind)
    code_sets.configure_numba()
    name = _kernel_name(kind, device)
    try:
        return cast(Kernel, importlib.import_module(name))
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise errors.NoKernel(f"jobs of kind {kind} cannot run on device {device}") from error


def warm(kind: str, device: Device) -> None:
    """Load the compiled kernel of a kind for a device, or compile it for all processes. Call this before `kernel`."""
    with code_sets.compile_once(kind, device):
        kernel(kind, device).warm()
