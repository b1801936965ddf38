"""Lists the kinds and loads one kernel by (kind, device), lazily. The only module that loads kernels.

A kind is a folder of `jobs/kinds` with a `definition.py`. What its modules must offer is in `contract.py`.
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
    """Names of all kinds, sorted."""
    return tuple(sorted(entry.name for entry in pkgutil.iter_modules(kinds.__path__) if entry.ispkg))


@lru_cache
def definition(kind: str) -> Kind:
    """Return what a kind computes; UnknownKind names the kinds there are."""
    if kind not in names():
        known = ", ".join(names())
        raise errors.UnknownKind(f"type must be one of {known}; got {kind!r}", field="type")
    return cast(Kind, importlib.import_module(f"jobs.kinds.{kind}.definition").KIND)


def folder(kind: str) -> Path:
    """Return the folder with the kind's modules and files."""
    return Path(inspect.getfile(type(definition(kind)))).parent


@lru_cache
def versions() -> Mapping[str, int]:
    """The version of each kind's model: partials of two are never merged."""
    return {kind: definition(kind).model_version for kind in names()}


def program_kind(kind: str) -> ProgramKind | None:
    """Return what a kind computes when its units are programs, which runners execute; else None."""
    found = definition(kind)
    return found if isinstance(found, ProgramKind) else None


@lru_cache
def endless() -> frozenset[str]:
    """Return the names of the kinds whose jobs do not end by themselves and take no slot of a runner."""
    return frozenset(kind for kind in names() if definition(kind).is_endless)


@lru_cache
def devices(kind: str) -> tuple[Device, ...]:
    """Devices whose workers compute the kind: those for which it has a kernel, or runners alone. Loads no kernel."""
    if program_kind(kind):
        return (Device.RUNNER,)
    return tuple(device for device in (Device.CPU, Device.GPU) if importlib.util.find_spec(_kernel_name(kind, device)))


def computed_on(device: Device) -> tuple[str, ...]:
    """Names of the kinds that workers of this device compute, sorted."""
    return tuple(kind for kind in names() if device in devices(kind))


def _kernel_name(kind: str, device: Device) -> str:
    return f"jobs.kinds.{kind}.{device}_kernel"


@lru_cache
def reference(kind: str) -> Reference:
    definition(kind)
    return cast(Reference, importlib.import_module(f"jobs.kinds.{kind}.reference"))


@lru_cache
def kernel(kind: str, device: Device) -> Kernel:
    """The kernel of a kind for a device. Importing it may import numba or cupy: workers' lanes only."""
    definition(kind)
    code_sets.configure_numba()
    name = _kernel_name(kind, device)
    try:
        return cast(Kernel, importlib.import_module(name))
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise errors.NoKernel(f"kind {kind} has no kernel for {device}") from error


def warm(kind: str, device: Device) -> None:
    """Load the compiled code of a kind, or compile it for all processes. Call this before `kernel`."""
    with code_sets.compile_once(kind, device):
        kernel(kind, device).warm()
