"""Answer requests that the server cancels during shutdown with status 503 instead of a traceback."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coordinator.services.gateway import error_forms
from jobs import errors


class ShutdownResponder:
    """ASGI middleware that answers cancelled requests. Only the server's shutdown cancels a request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_started = False

        async def send_and_note(message: Message) -> None:
            nonlocal has_started
            has_started = has_started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except asyncio.CancelledError:
            if scope["type"] == "http" and not has_started:
                error = errors.Unavailable("this coordinator is stopping; send the request again")
                await error_forms.build_error_response(error, scope.get("path", ""))(scope, receive, send)
