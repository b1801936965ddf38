"""JSON Schema of the results of jobs that run programs."""

from __future__ import annotations

from typing import Any

_SECONDS = {"type": ["number", "null"], "minimum": 0}
_COUNT = {"type": "integer", "minimum": 0}

SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["units", "seconds", "attempts", "workers"],
    "properties": {
        "units": {**_COUNT, "title": "Units that exited with code 0"},
        "seconds": {
            "type": "object",
            "title": "Duration of a unit's last attempt in seconds",
            "additionalProperties": False,
            "required": ["sum", "least", "most", "median"],
            "properties": dict.fromkeys(("sum", "least", "most", "median"), _SECONDS),
        },
        "attempts": {**_COUNT, "title": "Total number of attempts"},
        "workers": {"type": "object", "title": "Units per runner", "additionalProperties": _COUNT},
        "new_files": {
            "type": "object",
            "title": "New files that were not kept, because the job declares no outputs",
            "additionalProperties": False,
            "required": ["count", "names"],
            "properties": {"count": _COUNT, "names": {"type": "array", "items": {"type": "string"}}},
        },
    },
}
