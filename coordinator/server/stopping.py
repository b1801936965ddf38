"""Answer to requests that are still at work when the server has stopped waiting for them: 503, and no traceback."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coordinator.services.gateway import error_forms
from jobs import errors


class Stopping:
    """ASGI middleware. The server cancels such a request; a task that nobody stops is never cancelled otherwise."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = False

        async def noting(message: Message) -> None:
            nonlocal began
            began = began or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except asyncio.CancelledError:
            if scope["type"] == "http" and not began:
                error = errors.Unavailable("this coordinator stops; send the request again")
                await error_forms.refused(error, scope.get("path", ""))(scope, receive, send)
