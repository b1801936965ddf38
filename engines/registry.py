"""Registry of engines, which are the folders of `engines` with a `definition.py`. See `contract.py` for its members."""

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
    """Return the sorted names of all engines."""
    return tuple(sorted(entry.name for entry in pkgutil.iter_modules(engines.__path__) if entry.ispkg))


@lru_cache
def definition(engine: str) -> Definition:
    """Return the definition of an engine. For an unknown engine, raise InvalidRequest with the known engines."""
    if engine not in names():
        known = ", ".join(names())
        raise errors.InvalidRequest(f"engine: must be one of {known}; got {engine!r}", field="engine")
    return cast(Definition, importlib.import_module(f"engines.{engine}.definition"))


def select_engine(model: Model | None, gpus: int) -> str:
    """Choose an engine for a model by its files and the number of GPUs. Raises InvalidRequest if no engine fits."""
    paths = model.files if model else ()
    if any(path.lower().endswith(".gguf") for path in paths):
        return "llamacpp"
    if any(path.endswith(safetensors.SUFFIX) for path in paths):
        return "vllm" if gpus else "transformers"
    known = ", ".join(names())
    detail = f"engine: cannot choose an engine from the model's files; set it to one of {known}"
    raise errors.InvalidRequest(detail, field="engine")


def need(engine: str) -> Callable[[Any, Model, int], Need] | None:
    """Return an engine's function that estimates the memory of a replica, or None if the engine has none."""
    return getattr(definition(engine), "need", None)


def abilities(engine: str, parameters: Any, model: Model | None) -> Abilities:
    """Return the abilities of an engine's replicas. They are unknown if the engine does not define them."""
    found = getattr(definition(engine), "abilities", None)
    return cast(Abilities, found(parameters, model)) if found and model else Abilities()


@lru_cache
def packages(engine: str) -> str:
    """Return the Python packages that an engine's replicas need, in the format of a requirements file, or ""."""
    listed = text(engine, PACKAGES)
    return listed if any(line and not line.startswith("#") for line in listed.splitlines()) else ""


def is_large(engine: str) -> bool:
    """Return True if an engine's packages take gigabytes. Users must then confirm the installation."""
    return bool(getattr(definition(engine), "LARGE", False))


def credentials(engine: str) -> Callable[[str], tuple[str, str]] | None:
    """Return an engine's function that creates certificates for a replica's key, or None if it has none."""
    return getattr(definition(engine), "credentials", None) if engine in names() else None


def routes(engine: str) -> str:
    """Return the type of requests that an engine serves: openai or http. For an unknown engine, return ""."""
    return definition(engine).ROUTES if engine in names() else ""


def page(engine: str) -> str:
    """Return the path of an engine's first web page, or "" if the engine has no web pages."""
    return str(getattr(definition(engine), "PAGE", "")) if engine in names() else ""


def batching(engine: str) -> Callable[..., Batch] | None:
    """Return an engine's function that answers prompts in batches, or None if the engine has none."""
    found: Any = getattr(definition(engine), "batch", None)
    return cast(Callable[..., Batch] | None, found)
