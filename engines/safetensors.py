"""Folders of weights in safetensors, as an artifact has them: where one lies, and what describes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from engines.contract import Model
from jobs import errors

SUFFIX = ".safetensors"
#: Endings of weights that are code: whoever loads them runs what they hold.
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
CONFIG = "config.json"
_MOST_CONFIG = 1 << 20
_WIDE = ("float", "float32")


def folder(engine: str, asked: str | None, model: Model | None) -> str:
    """Return the path of the folder with the weights, beginning with a dot. InvalidRequest where there is not one."""
    if model is None:
        raise errors.InvalidRequest(
            f"model: the engine {engine} needs an artifact with weights in safetensors; cluster artifact put DIR",
            field="model",
        )
    _refuse_pickled(model)
    there = sorted({str(PurePosixPath(path).parent) for path in model.files if path.endswith(SUFFIX)})
    if asked is not None:
        return _read_parameter(asked, there)
    if len(there) != 1:
        what = f"has {len(there)} folders with files" if there else "has no file"
        field = "parameters.folder" if there else "model"
        hint = f"; name one, such as {there[0]}" if there else ""
        raise errors.InvalidRequest(f"{field}: the artifact {what} that end with {SUFFIX}{hint}", field=field)
    [found] = there
    if _join_path(found, CONFIG) not in model.files:
        raise errors.InvalidRequest(f"model: there is no {CONFIG} beside the weights in {found}", field="model")
    return _protect_path(found)


def _read_parameter(asked: str, there: list[str]) -> str:
    plain = str(PurePosixPath(asked))
    if plain not in there:
        detail = f"parameters.folder: the artifact has no files that end with {SUFFIX} in {asked}"
        raise errors.InvalidRequest(detail, field="parameters.folder")
    return _protect_path(plain)


def _refuse_pickled(model: Model) -> None:
    pickled = sorted(path for path in model.files if path.lower().endswith(PICKLED))
    if pickled:
        detail = f"model: {pickled[0]} has pickled weights, which are code; put the folder without it, with {SUFFIX}"
        raise errors.InvalidRequest(detail, field="model")


def weights(place: str, model: Model) -> int:
    """Return the bytes of the weights in a folder, as `folder` returned it."""
    inside = str(PurePosixPath(place))
    return sum(
        size
        for path, size in model.files.items()
        if path.endswith(SUFFIX) and str(PurePosixPath(path).parent) == inside
    )


def computed_bytes(stored: int, known: Mapping[str, Any], dtype: str) -> int:
    """Return the bytes of weights as an engine computes with them, which keeps numbers of 32 bits only when told to."""
    wide = known.get("dtype", known.get("torch_dtype")) in _WIDE
    if dtype in _WIDE:
        return stored if wide else 2 * stored
    return stored // 2 if wide else stored


def config(place: str, model: Model) -> Mapping[str, Any]:
    """Return what describes the weights in a folder; empty where it cannot be read."""
    try:
        known = json.loads(model.head(_join_path(str(PurePosixPath(place)), CONFIG), _MOST_CONFIG))
    except (ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def _join_path(place: str, name: str) -> str:
    return name if place == "." else f"{place}/{name}"


def _protect_path(place: str) -> str:
    """Return a path that no program takes for an option."""
    return "." if place == "." else f"./{place}"
