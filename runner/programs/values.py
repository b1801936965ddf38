"""Values that programs write: JSON as every reader of it understands, the coordinator among them."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import from_json

#: Levels of lists and objects; readers give up at 200, and a value lies some levels below what they read.
_DEPTH = 100


def parse(text: bytes) -> Any:
    """Return the value of a text. ValueError for NaN, half characters, other encodings, too many levels, no JSON."""
    try:
        value = from_json(text, allow_inf_nan=False)
        json.dumps(value, allow_nan=False)  # 1e999 is read as infinity
    except ValueError as error:
        raise ValueError(f"it is no JSON: {error}") from None
    if _levels(value) > _DEPTH:
        raise ValueError(f"it has over {_DEPTH} levels of lists and objects")
    return value


def _levels(value: Any) -> int:
    within = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if within is None else 1 + max(map(_levels, within), default=0)
