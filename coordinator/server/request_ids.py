"""Assign IDs to requests under /v1, so that users can report failed requests. Responses and logs contain the ID."""

from __future__ import annotations

import re
import uuid

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coordinator.services.gateway import error_forms

_HEADER = b"x-request-id"
#: Pattern of IDs that are accepted from a request header, the same as in nginx/conf/nginx.conf.
_PATTERN = re.compile(r"[A-Za-z0-9_-]{8,64}")


class RequestIds:
    """ASGI middleware that assigns an ID to each request under /v1: the ID from nginx's header, or a new one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not error_forms.covers(scope["path"]):
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})["request_id"] = _id_from_header(scope) or uuid.uuid4().hex

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(headers(scope))
            await send(message)

        await self._app(scope, receive, send_with_id)


def headers(scope: Scope) -> dict[str, str]:
    """Return the response headers with the request's ID, or an empty dictionary if the request has no ID."""
    request_id = scope.get("state", {}).get("request_id")
    if not request_id:
        return {}
    fields = {"X-Request-Id": request_id}
    # Anthropic's clients read this header.
    return {**fields, "Request-Id": request_id} if error_forms.is_anthropic(scope["path"]) else fields


def log_fields(scope: Scope) -> dict[str, str]:
    """Return the log field with the request's ID, or an empty dictionary if the request has no ID."""
    request_id = scope.get("state", {}).get("request_id")
    return {"request_id": request_id} if request_id else {}


def _id_from_header(scope: Scope) -> str:
    """Return the ID in the request's headers, or an empty string if there is no valid one."""
    request_id = next((value.decode("latin-1") for name, value in scope["headers"] if name == _HEADER), "")
    return request_id if _PATTERN.fullmatch(request_id) else ""
