"""IDs of requests under /v1. The response and the log contain them, so a client can name a request that failed."""

from __future__ import annotations

import re
import uuid

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coordinator.services.gateway import error_forms

_HEADER = b"x-request-id"
#: Pattern of IDs that are taken from the request, the same as in nginx/conf/nginx.conf.
_GIVEN = re.compile(r"[A-Za-z0-9_-]{8,64}")


class RequestIds:
    """ASGI layer that gives each request under /v1 an ID: the one in its header, which nginx sets, or a new one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not error_forms.covers(scope["path"]):
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})["request_id"] = _given(scope) or uuid.uuid4().hex

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(headers(scope))
            await send(message)

        await self._app(scope, receive, named)


def headers(scope: Scope) -> dict[str, str]:
    """Return the headers with the request's ID; empty if it has no ID."""
    found = scope.get("state", {}).get("request_id")
    if not found:
        return {}
    named = {"X-Request-Id": found}
    # Anthropic's clients read this name.
    return {**named, "Request-Id": found} if error_forms.is_anthropic(scope["path"]) else named


def logged(scope: Scope) -> dict[str, str]:
    """Return the log field with the request's ID; empty if it has no ID."""
    found = scope.get("state", {}).get("request_id")
    return {"request_id": found} if found else {}


def _given(scope: Scope) -> str:
    """Return the ID in the request's headers; empty if there is no valid one."""
    given = next((value.decode("latin-1") for name, value in scope["headers"] if name == _HEADER), "")
    return given if _GIVEN.fullmatch(given) else ""
