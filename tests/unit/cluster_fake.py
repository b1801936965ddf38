"""A fake in-memory cluster for tests of the client: answers from lists or functions and records all requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, Union, get_args, get_origin

import httpx
from typing_extensions import get_type_hints, is_typeddict

from threads_protocol.answers.fields import Moment

Reply: TypeAlias = httpx.Response | Exception | dict[str, Any]


class Fake:
    """Each (method, path) returns its replies in order and then repeats the last one."""

    def __init__(self) -> None:
        self.replies: dict[tuple[str, str], list[Reply | Callable[[httpx.Request], Reply]]] = {}
        self.asked: list[httpx.Request] = []

    def on(self, method: str, path: str, *replies: Reply | Callable[[httpx.Request], Reply]) -> None:
        self.replies[method, path] = list(replies)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        waiting = self.replies.get((request.method, request.url.raw_path.decode().partition("?")[0]))
        if not waiting:
            return problem(404, "There is no such thing", f"{request.method} {request.url.path}")
        reply = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        found = reply(request) if callable(reply) and not isinstance(reply, httpx.Response) else reply
        if isinstance(found, Exception):
            raise found
        return found if isinstance(found, httpx.Response) else httpx.Response(200, json=found)

    def bodies(self, path: str) -> list[Any]:
        """Return the bodies posted to a path."""
        return [json.loads(one.content) for one in self.asked if one.url.path == path]


def problem(status: int, title: str, detail: str = "", **more: Any) -> httpx.Response:
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    return httpx.Response(status, json=body, headers={"Content-Type": "application/problem+json"})


#: Values of required fields that do not matter in a test.
_VALUES: dict[Any, Any] = {str: "-", int: 0, float: 0.0, bool: False, list: [], dict: {}, Any: None}

#: Marks time fields among text fields.
(_MOMENT,) = get_args(Moment)[1:]


def complete(declared: type, **fields: Any) -> dict[str, Any]:
    """Return a response of a declared type with these fields and default values for the other required fields."""
    hints: dict[str, Any] = get_type_hints(declared, include_extras=True)
    needed = {name: hint for name, hint in hints.items() if name not in fields and get_origin(hint) is not NotRequired}
    return {name: _value(hint) for name, hint in needed.items()} | fields


def _value(hint: Any) -> Any:
    if is_typeddict(hint):
        return complete(hint)
    if get_origin(hint) is Annotated:
        return "2026-01-02T03:04:05.000Z" if _MOMENT in hint.__metadata__ else _value(hint.__origin__)
    if get_origin(hint) in (Union, UnionType):
        return None if type(None) in get_args(hint) else _value(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return get_args(hint)[0]
    return _VALUES[get_origin(hint) or hint]


#: Usage of a job without any computed lease.
USAGE: dict[str, Any] = {"lane_seconds": 0.0, "leases": 0, "expired_leases": 0, "workers": {}}


def job(state: str, **more: Any) -> dict[str, Any]:
    """Return a job as in the API."""
    ended = "2026-01-02T03:04:06.000Z" if state in ("done", "failed", "cancelled") else None
    return {
        "job_id": "j1",
        "tenant": "default",
        "type": "sums",
        "title": "sums",
        "state": state,
        "priority": "normal",
        "device": "any",
        "queue": "any.normal",
        "parameters": {"start": "1267650600228229401496703205376"},
        "notes": [],
        "created": "2026-01-02T03:04:05.000Z",
        "started": "2026-01-02T03:04:05.500Z",
        "ended": ended,
        "seconds": 0.5 if ended else None,
        "progress": 1.0 if state == "done" else 0.25,
        "done": 1000 if state == "done" else 250,
        "total": 1000,
        "rate": None if ended else 1234567.0,
        "eta_seconds": None if ended else 75.0,
        "waiting_because": None,
        "error": "units 3..4: no luck" if state == "failed" else None,
        "usage": USAGE,
        **more,
    }


KIND = {
    "type": "sums",
    "summary": "Adds numbers.",
    "model_version": 1,
    "devices": ["cpu"],
    "questions": {},
    "binaries": {},
    "example": {"start": 1},
    "schema": {
        "type": "object",
        "additionalProperties": False,
        "required": ["start"],
        "$defs": {
            "Even": {"type": "object", "properties": {"law": {"const": "even"}, "mean": {"type": "number"}}},
            "Single": {"type": "object", "properties": {"law": {"const": "single", "type": "string"}}},
            "Law": {"description": "How they spread.", "oneOf": [{"$ref": "#/$defs/Even"}, {"$ref": "#/$defs/Single"}]},
        },
        "properties": {
            "start": {
                "anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^-?[0-9]+$"}],
                "minimum": 1,
                "maximum": 2**96,
                "description": "First number.",
            },
            "cores": {
                "anyOf": [
                    {"type": "integer", "minimum": 1, "maximum": 64},
                    {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 64}},
                ],
                "default": 8,
                "description": "Cores; several make a sweep.",
            },
            "policy": {"enum": ["fifo", "lifo"], "default": "fifo", "type": "string"},
            "policies": {"type": "array", "items": {"enum": ["fifo", "lifo"], "type": "string"}},
            "confidence": {"type": "number", "default": 0.95, "description": "Level.", "unit": "ratio"},
            "density": {"type": "boolean", "default": False, "description": "With counts."},
            "law": {"$ref": "#/$defs/Law", "description": "How they spread."},
            "batch": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            "priority": {"type": "integer"},
        },
    },
}
