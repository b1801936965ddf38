"""JSON Schema of results."""

from __future__ import annotations

from typing import Any

_SECONDS = {"type": ["number", "null"], "minimum": 0}
_COUNT = {"type": "integer", "minimum": 0}

SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["units", "seconds", "attempts", "workers"],
    "properties": {
        "units": {**_COUNT, "title": "Units that ended with exit code 0"},
        "seconds": {
            "type": "object",
            "title": "Seconds of a unit's last attempt",
            "additionalProperties": False,
            "required": ["sum", "least", "most", "median"],
            "properties": dict.fromkeys(("sum", "least", "most", "median"), _SECONDS),
        },
        "attempts": {**_COUNT, "title": "Attempts of all units"},
        "workers": {"type": "object", "title": "Units by runner", "additionalProperties": _COUNT},
    },
}
