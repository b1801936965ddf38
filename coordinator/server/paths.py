"""Answers to requests that fit no route: they name the path or method that would."""

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
    """The path does not take this method."""

    status = 405


def unanswered(app: FastAPI, request: Request, error: HTTPException) -> Response:
    """Return the error as a problem that names the methods of the path, or the path without the slash at its end."""
    asked, headers = f"{request.method} {_cut(request.url.path)}", dict(error.headers or {})
    detail = f"{asked}: {error.detail}; see /api/docs"
    if error.status_code == 405 and (takes := methods(app, request.scope)):
        headers["Allow"] = ", ".join([*takes, "OPTIONS"])
        if request.method == "OPTIONS":
            return Response(None, 204, headers)
        detail = f"{asked}: this path takes {' and '.join(takes)}; see /api/docs"
    elif error.status_code == 404 and (meant := without_slash(app, request.scope)):
        detail = f"{asked}: there is nothing; without the slash at its end it is {_cut(meant)}"
    if error_forms.covers(request.url.path):
        return _refused(error.status_code, detail, request.url.path, headers)
    body = {"type": "about:blank", "title": str(error.detail), "status": error.status_code, "detail": detail}
    return Response(json.dumps(body), error.status_code, headers, "application/problem+json")


def _refused(status: int, detail: str, path: str, headers: dict[str, str]) -> Response:
    """Return the error in the form that clients of models read."""
    answer = error_forms.refused(MethodNotAllowed(detail) if status == 405 else UnknownPath(detail), path)
    answer.headers.update(headers)
    return answer


def _cut(path: str, most: int = 200) -> str:
    return path if len(path) <= most else f"{path[:most]}…"


def methods(app: FastAPI, scope: Scope) -> list[str]:
    """Return the methods that the scope's path takes."""
    return [method for method in _METHODS if _has(app, {**scope, "method": method})]


def without_slash(app: FastAPI, scope: Scope) -> str | None:
    """Return the path without the slashes at its end, when there is a route for that."""
    path = scope["path"].rstrip("/")
    if not path or path == scope["path"]:
        return None
    # Pages match every path, and treat a path with a slash at its end like one without.
    routes = [route for route in app.router.routes if not isinstance(route, Mount)]
    return path if any(route.matches({**scope, "path": path})[0] is not Match.NONE for route in routes) else None


def _has(app: FastAPI, scope: Scope) -> bool:
    return any(route.matches(scope)[0] is Match.FULL for route in app.router.routes)
