"""Parser of the values that programs write. It accepts only JSON that all readers of the result can read."""

from __future__ import annotations

import math
from typing import Any

from pydantic_core import from_json

#: Maximum nesting depth of a value. Some JSON readers fail at 200 levels, and the response adds more levels.
_DEPTH = 100


def parse(text: bytes) -> Any:
    """Parse the value that a program wrote. Raises ValueError if it is not strict JSON or is nested too deeply.

    NaN, lone surrogates and encodings other than UTF-8 are not strict JSON.
    """
    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise ValueError(f"the value is not valid JSON: {error}") from None
    if _levels(value) > _DEPTH:
        raise ValueError(f"the value has more than {_DEPTH} levels of lists and objects")
    return value


def _levels(value: Any) -> int:
    if isinstance(value, float) and math.isinf(value):  # The parser reads 1e999 as infinity
        raise ValueError("the value is not valid JSON: a number is out of range")
    within = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if within is None else 1 + max(map(_levels, within), default=0)
