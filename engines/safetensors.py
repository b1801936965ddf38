"""Functions for model folders that contain weights in safetensors format: their paths, sizes and configurations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from engines.contract import Model
from jobs import errors

SUFFIX = ".safetensors"
#: Suffixes of files with pickled weights. Loading such a file can run code.
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
CONFIG = "config.json"
_MOST_CONFIG = 1 << 20
_WIDE = ("float", "float32")


def folder(engine: str, asked: str | None, model: Model | None) -> str:
    """Return the path of the artifact's folder with the weights. The path starts with a dot.

    Raises InvalidRequest if there is not exactly one.
    """
    if model is None:
        raise errors.InvalidRequest(
            f"model: the engine {engine} requires an artifact with weights in safetensors; upload it with"
            " cluster artifact put DIR",
            field="model",
        )
    _refuse_pickled(model)
    there = sorted({str(PurePosixPath(path).parent) for path in model.files if path.endswith(SUFFIX)})
    if asked is not None:
        return _read_parameter(asked, there)
    if len(there) != 1:
        what = f"contains {len(there)} folders with files" if there else "contains no files"
        field = "parameters.folder" if there else "model"
        hint = f"; choose one, such as {there[0]}" if there else ""
        raise errors.InvalidRequest(f"{field}: the artifact {what} with the suffix {SUFFIX}{hint}", field=field)
    [found] = there
    if _join_path(found, CONFIG) not in model.files:
        raise errors.InvalidRequest(f"model: {CONFIG} is missing next to the weights in {found}", field="model")
    return _protect_path(found)


def _read_parameter(asked: str, there: list[str]) -> str:
    plain = str(PurePosixPath(asked))
    if plain not in there:
        detail = f"parameters.folder: the artifact contains no files with the suffix {SUFFIX} in {asked}"
        raise errors.InvalidRequest(detail, field="parameters.folder")
    return _protect_path(plain)


def _refuse_pickled(model: Model) -> None:
    pickled = sorted(path for path in model.files if path.lower().endswith(PICKLED))
    if pickled:
        detail = (
            f"model: {pickled[0]} contains pickled weights, which can run code; upload the folder without it, with"
            f" weights in {SUFFIX} files"
        )
        raise errors.InvalidRequest(detail, field="model")


def weights(place: str, model: Model) -> int:
    """Return the total size in bytes of the weights in a folder. `place` is a path that `folder` returned."""
    inside = str(PurePosixPath(place))
    return sum(
        size
        for path, size in model.files.items()
        if path.endswith(SUFFIX) and str(PurePosixPath(path).parent) == inside
    )


def computed_bytes(stored: int, known: Mapping[str, Any], dtype: str) -> int:
    """Return the size in bytes of the weights in memory. Engines convert 32-bit numbers to 16 bits by default.

    They do not if `dtype` is 32-bit.
    """
    wide = known.get("dtype", known.get("torch_dtype")) in _WIDE
    if dtype in _WIDE:
        return stored if wide else 2 * stored
    return stored // 2 if wide else stored


def config(place: str, model: Model) -> Mapping[str, Any]:
    """Return the configuration of the weights in a folder. If it is not readable, return an empty mapping."""
    try:
        known = json.loads(model.head(_join_path(str(PurePosixPath(place)), CONFIG), _MOST_CONFIG))
    except (ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def _join_path(place: str, name: str) -> str:
    return name if place == "." else f"{place}/{name}"


def _protect_path(place: str) -> str:
    """Return a path in a form that programs cannot mistake for an option."""
    return "." if place == "." else f"./{place}"
