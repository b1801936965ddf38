"""Lists the engines: folders of `engines` with a `definition.py`. What its module must offer is in `contract.py`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import engines
from engines import safetensors
from engines.contract import Abilities, Batch, Definition, Model
from engines.memory import Need
from engines.texts import PACKAGES, text
from jobs import errors


@lru_cache
def names() -> tuple[str, ...]:
    """Return the names of all engines, sorted."""
    return tuple(sorted(entry.name for entry in pkgutil.iter_modules(engines.__path__) if entry.ispkg))


@lru_cache
def definition(engine: str) -> Definition:
    """Return the engine's definition module; InvalidRequest names the engines there are."""
    if engine not in names():
        known = ", ".join(names())
        raise errors.InvalidRequest(f"engine: must be one of {known}; got {engine!r}", field="engine")
    return cast(Definition, importlib.import_module(f"engines.{engine}.definition"))


def select_engine(model: Model | None, gpus: int) -> str:
    """Return the engine for a model's files, and the GPUs that each replica has. InvalidRequest where there is none."""
    paths = model.files if model else ()
    if any(path.lower().endswith(".gguf") for path in paths):
        return "llamacpp"
    if any(path.endswith(safetensors.SUFFIX) for path in paths):
        return "vllm" if gpus else "transformers"
    known = ", ".join(names())
    detail = f"engine: the model's files say nothing of one; name it: one of {known}"
    raise errors.InvalidRequest(detail, field="engine")


def need(engine: str) -> Callable[[Any, Model, int], Need] | None:
    """Return what estimates the memory of an engine's replicas; None for one whose replicas have no size."""
    return getattr(definition(engine), "need", None)


def abilities(engine: str, parameters: Any, model: Model | None) -> Abilities:
    """Return the abilities of an engine's replicas; all unknown if the engine does not define them."""
    found = getattr(definition(engine), "abilities", None)
    return cast(Abilities, found(parameters, model)) if found and model else Abilities()


@lru_cache
def packages(engine: str) -> str:
    """Return the packages that a replica's Python needs, as a file of requirements lists them; empty: none."""
    listed = text(engine, PACKAGES)
    return listed if any(line and not line.startswith("#") for line in listed.splitlines()) else ""


def is_large(engine: str) -> bool:
    """Return True for an engine whose packages are gigabytes: who serves it is asked first."""
    return bool(getattr(definition(engine), "LARGE", False))


def credentials(engine: str) -> Callable[[str], tuple[str, str]] | None:
    """Return what makes certificate and key of a replica's key; None for an engine whose replicas are no group."""
    return getattr(definition(engine), "credentials", None) if engine in names() else None


def routes(engine: str) -> str:
    """Return what an engine answers, openai or http; empty for one that this version lacks."""
    return definition(engine).ROUTES if engine in names() else ""


def page(engine: str) -> str:
    """Return the path at which people begin to look at an engine; empty for one that shows browsers nothing."""
    return str(getattr(definition(engine), "PAGE", "")) if engine in names() else ""


def batching(engine: str) -> Callable[..., Batch] | None:
    """Return the engine's `batch(model, max_tokens=, temperature=)`; None for one that answers by a server alone."""
    found: Any = getattr(definition(engine), "batch", None)
    return cast(Callable[..., Batch] | None, found)
