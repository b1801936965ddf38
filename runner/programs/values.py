"""Parsing of values that programs write. Only JSON that all readers of the result accept is valid."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import from_json

#: Maximum nesting depth of a value. Readers fail at 200 levels, and the surrounding response adds some.
_DEPTH = 100


def parse(text: bytes) -> Any:
    """Parse a value. Raises ValueError for NaN, lone surrogates, other encodings, too many levels and invalid JSON."""
    try:
        value = from_json(text, allow_inf_nan=False)
        json.dumps(value, allow_nan=False)  # 1e999 is parsed as infinity
    except ValueError as error:
        raise ValueError(f"the value is not valid JSON: {error}") from None
    if _levels(value) > _DEPTH:
        raise ValueError(f"the value has more than {_DEPTH} levels of lists and objects")
    return value


def _levels(value: Any) -> int:
    within = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if within is None else 1 + max(map(_levels, within), default=0)
