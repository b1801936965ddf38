"""Errors as clients of /v1 read them: in OpenAI's form, and in Anthropic's below /v1/messages. Elsewhere: problems."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from fastapi import Response

from coordinator import http
from coordinator.services import openai
from jobs import errors

_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_ANTHROPIC_TYPES = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large",
    429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
}  # fmt: skip
_CODES: dict[type[errors.ClusterError], str] = {
    openai.UnknownModel: "model_not_found", openai.UnknownPath: "unknown_url", errors.Unauthorized: "invalid_api_key",
    openai.NoReplica: "no_ready_replica", errors.OverLimit: "queue_full",
}  # fmt: skip


def covers(path: str) -> bool:
    """Return True for a path whose clients are those of OpenAI's or of Anthropic's API."""
    return path == openai.PREFIX or path.startswith(f"{openai.PREFIX}/")


def is_anthropic(path: str) -> bool:
    """Return True for a path of Anthropic's API, with /v1 or without."""
    path = path.removeprefix(openai.PREFIX)
    return path == openai.MESSAGES or path.startswith(f"{openai.MESSAGES}/")


def refused(error: errors.ClusterError, path: str) -> Response:
    """Return the answer to a request that ended in this error."""
    answer = http.refused(error)
    if not covers(path):
        return answer
    if (seconds := getattr(error, "seconds", None)) is not None:
        answer.headers["Retry-After"] = str(seconds)
    answer.status_code = _status(error)
    whole = body(error, path)
    if is_anthropic(path):
        answer.headers["Content-Type"] = "application/json"
    else:
        whole = {**http.problem(error), "status": answer.status_code, **whole}
    answer.body = json.dumps(whole).encode()
    answer.headers["Content-Length"] = str(len(answer.body))
    return answer


def body(error: errors.ClusterError, path: str) -> dict[str, Any]:
    """Return an error as the clients of a path read it."""
    status = _status(error)
    other = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else ""
    if is_anthropic(path):
        named = {"type": _ANTHROPIC_TYPES.get(status, other or "api_error"), "message": error.detail}
        return {"type": "error", "error": named, **error.extra}
    kind = _OPENAI_TYPES.get(status, other or "server_error")
    code = _CODES.get(type(error))
    return {"error": {"message": error.detail, "type": kind, "param": error.field, "code": code}, **error.extra}


def frame(error: errors.ClusterError, path: str) -> bytes:
    """Return the frame that ends a stream which broke off."""
    return b"data: " + json.dumps(body(error, path)).encode() + b"\n\n"


def _status(error: errors.ClusterError) -> int:
    """Return the status of an error; these APIs have no 422."""
    return HTTPStatus.BAD_REQUEST if error.status == HTTPStatus.UNPROCESSABLE_ENTITY else error.status
