"""Serialize errors for clients of /v1: in Anthropic's form under /v1/messages, else in OpenAI's form."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from fastapi import Response

from coordinator.server import bodies, http
from coordinator.services.gateway import openai
from engines import calls
from jobs import errors

#: Maximum size in bytes of an engine's error.
#: Maximum number of JSON values in an engine's error.
#: Maximum length in characters of an engine's error message.
_MOST_ERROR, _MOST_VALUES, _MOST_WORDS = 1 << 16, 1000, 1000
_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_CODES: dict[type[errors.ClusterError], str] = {
    openai.UnknownModel: "model_not_found",
    openai.UnknownPath: "unknown_url",
    openai.LacksCall: "call_not_supported",
    openai.NoReplica: "no_ready_replica",
    errors.Unauthorized: "invalid_api_key",
    errors.OverLimit: "queue_full",
}


def covers(path: str) -> bool:
    """Return True if a path belongs to the OpenAI or Anthropic API."""
    return path == openai.PREFIX or path.startswith(f"{openai.PREFIX}/")


def is_anthropic(path: str) -> bool:
    """Return True if a path belongs to the Anthropic API, with or without /v1."""
    path = path.removeprefix(openai.PREFIX)
    return path == calls.MESSAGES or path.startswith(f"{calls.MESSAGES}/")


def build_error_response(error: errors.ClusterError, path: str) -> Response:
    """Return the response for an error on this path."""
    answer = http.problem_response(error)
    if not covers(path):
        return answer
    if (seconds := getattr(error, "seconds", None)) is not None:
        answer.headers["Retry-After"] = str(seconds)
    answer.status_code = _status(error)
    # Anthropic's `type` replaces the problem's `type`, which has no required value.
    whole = {**http.serialize_problem(error), "status": answer.status_code, **body(error, path)}
    answer.body = json.dumps(whole).encode()
    answer.headers["Content-Length"] = str(len(answer.body))
    return answer


def body(error: errors.ClusterError, path: str) -> dict[str, Any]:
    """Return an error in the form of the path's API."""
    return {**_form(error.detail, _status(error), path, error.field, _CODES.get(type(error))), **error.extra}


def _form(message: str, status: int, path: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    other = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else ""
    if is_anthropic(path):
        kind = _ANTHROPIC_TYPES.get(status, other or "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}
    kind = _OPENAI_TYPES.get(status, other or "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def frame(error: errors.ClusterError, path: str) -> bytes:
    """Return the last frame of a failed stream."""
    return build_error_frame(json.dumps(body(error, path)).encode(), path)


def build_error_frame(content: bytes, path: str) -> bytes:
    """Return an error as a frame of a running stream, in the form of the path's API."""
    if path.removeprefix(openai.PREFIX) == calls.RESPONSES:
        form = json.loads(content)
        named = {name: form["error"].get(name) for name in ("code", "message", "param")}
        content = json.dumps({"type": "error", **named, "error": form["error"]}).encode()
    elif not is_anthropic(path):
        return b"data: " + content.replace(b"\n", b" ") + b"\n\n"
    return b"event: error\ndata: " + content.replace(b"\n", b" ") + b"\n\n"


def of_engine(content: bytes, status: int, path: str) -> bytes:
    """Return an engine's error in the form of the path's API, unchanged if it already has that form."""
    if has_form(content, path):
        return content
    message = read_error_message(content) or f"the engine returned HTTP {status} without a message"
    return json.dumps(_form(message, status, path)).encode()


def has_form(content: bytes, path: str) -> bool:
    """Return True if an engine's error has the form of the path's API."""
    parsed = _parse_error(content)
    error = parsed.get("error")
    is_named = isinstance(error, dict) and isinstance(error.get("message"), str)
    return is_named and (parsed.get("type") == "error" or not is_anthropic(path))


def read_error_message(content: bytes) -> str:
    """Return the message of an engine's error, or an empty string."""
    parsed: Any = _parse_error(content)
    for name in ("error", "message", "detail"):
        parsed = parsed.get(name, parsed) if isinstance(parsed, dict) else parsed
    text = parsed if isinstance(parsed, str) else content[: 4 * _MOST_WORDS].decode(errors="replace")
    return text[:_MOST_WORDS].strip()


def _parse_error(content: bytes) -> dict[str, Any]:
    """Parse an engine's error. Returns an empty dict if it is not a JSON object or is too long."""
    try:
        parsed = bodies.parse_json(content, _MOST_VALUES) if len(content) <= _MOST_ERROR else None
    except errors.ClusterError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _status(error: errors.ClusterError) -> int:
    """Return the HTTP status of an error. The OpenAI and Anthropic APIs use 400 instead of 422."""
    return HTTPStatus.BAD_REQUEST if error.status == HTTPStatus.UNPROCESSABLE_ENTITY else error.status
