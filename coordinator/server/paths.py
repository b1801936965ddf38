"""Error responses for requests that match no route. They suggest the correct path or method."""

from __future__ import annotations

import json

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Match, Mount
from starlette.types import Scope

from coordinator.services.gateway import error_forms
from coordinator.services.gateway.openai import UnknownPath
from jobs import errors

_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")


class MethodNotAllowed(errors.ClusterError):
    """The path does not support this method."""

    status = 405


def respond_unmatched(app: FastAPI, request: Request, error: HTTPException) -> Response:
    """Return a problem response for a request without a route. The text suggests another method or path."""
    target, headers = f"{request.method} {_shorten(request.url.path)}", dict(error.headers or {})
    detail = f"{target}: {error.detail}; see /api/docs"
    if error.status_code == 405 and (allowed := methods(app, request.scope)):
        headers["Allow"] = ", ".join([*allowed, "OPTIONS"])
        if request.method == "OPTIONS":
            return Response(None, 204, headers)
        detail = f"{target}: this path supports {' and '.join(allowed)}; see /api/docs"
    elif error.status_code == 404 and (path := without_slash(app, request.scope)):
        detail = f"{target}: this path does not exist; without the trailing slash it is {_shorten(path)}"
    if error_forms.covers(request.url.path):
        return _model_api_error(error.status_code, detail, request.url.path, headers)
    body = {"type": "about:blank", "title": str(error.detail), "status": error.status_code, "detail": detail}
    return Response(json.dumps(body), error.status_code, headers, "application/problem+json")


def _model_api_error(status: int, detail: str, path: str, headers: dict[str, str]) -> Response:
    """Return the error in the format that clients of the model API expect."""
    answer = error_forms.build_error_response(MethodNotAllowed(detail) if status == 405 else UnknownPath(detail), path)
    answer.headers.update(headers)
    return answer


def _shorten(path: str, limit: int = 200) -> str:
    return path if len(path) <= limit else f"{path[:limit]}…"


def methods(app: FastAPI, scope: Scope) -> list[str]:
    """Return the methods that the path supports."""
    return [method for method in _METHODS if _has(app, {**scope, "method": method})]


def without_slash(app: FastAPI, scope: Scope) -> str | None:
    """Return the path without its trailing slashes if that path has a route."""
    path = scope["path"].rstrip("/")
    if not path or path == scope["path"]:
        return None
    # Skip the pages, which match every path and ignore a trailing slash.
    routes = [route for route in app.router.routes if not isinstance(route, Mount)]
    return path if any(route.matches({**scope, "path": path})[0] is not Match.NONE for route in routes) else None


def _has(app: FastAPI, scope: Scope) -> bool:
    return any(route.matches(scope)[0] is Match.FULL for route in app.router.routes)
