"""JSON Schema of the results of all modes; see the section "Results" of README.md."""

from __future__ import annotations

from typing import Any

#: Schema of an exact integer: a number up to 2^53, and a decimal string above.
_EXACT: dict[str, Any] = {"type": ["integer", "string"], "pattern": "^-?[0-9]+$"}


def _exact(title: str) -> dict[str, Any]:
    return {**_EXACT, "title": title}


def _record(title: str) -> dict[str, Any]:
    """Return the JSON Schema of a record {n, value}, which is null if there are no numbers."""
    fields = {"n": _exact("n"), "value": _exact("value")}
    return {"title": title, "type": ["object", "null"], "required": ["n", "value"], "properties": fields}


def _records(title: str) -> dict[str, Any]:
    return {"title": title, "type": "array", "items": {**_record(""), "type": "object"}}


#: Schema of `delay`: an integer for a trajectory, or an object for a range.
_DELAY = {
    "title": "delay",
    "type": ["object", "integer", "string"],
    "properties": {
        "sum": _exact("sum"),
        "sumsq": _exact("sum of squares"),
        "mean": {"title": "mean", "type": ["number", "null"]},
        "variance": {"title": "variance", "type": ["number", "null"]},
        "max": _record("longest"),
        "histogram": {
            "type": "array",
            "format": "histogram",
            "items": {"type": "array", "items": _EXACT, "minItems": 2, "maxItems": 2},
        },
    },
}

RESULT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "count": _exact("numbers"),
        "delay": _DELAY,
        "records": {
            "title": "records",
            "type": "object",
            "properties": {"delay": _records("delay"), "path": _records("path")},
        },
        "verified": {"title": "verified", "type": "boolean"},
        "statement": {"title": "statement", "type": "string"},
        "checksum": _exact("checksum"),
        "candidates": _exact("candidates"),
        "block_steps": _exact("block steps"),
        "bits": {"title": "bits", "type": "integer"},
        "survivors": _exact("survivors"),
        "largest_bits": {"title": "bits of the largest value", "type": "integer"},
        "unresolved": {"title": "unresolved", "type": "array", "items": _EXACT},
    },
}
