"""Serve the OpenAPI description and Swagger UI from this process, under a strict content security policy."""

from __future__ import annotations

import threading
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse

from coordinator.server.http import json_response

_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Threads Cluster: API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/api/docs/swagger-ui.css">
<div id="api"></div>
<noscript>This page needs JavaScript. You can read the <a href="/api/openapi.json">API</a> without it.</noscript>
<script src="/api/docs/swagger-ui-bundle.js"></script>
<script src="/api/docs/start.js"></script>
"""
_START = """\
SwaggerUIBundle({
  url: "/api/openapi.json",
  dom_id: "#api",
  deepLinking: true,
  defaultModelsExpandDepth: -1,
  validatorUrl: null,
});
"""
#: A relative URL, because clients reach a cluster under different addresses.
_SERVERS = [{"url": "/", "description": "This cluster"}]
_ASSETS = {"swagger-ui.css": "text/css", "swagger-ui-bundle.js": "text/javascript"}

routes = APIRouter(include_in_schema=False)
_description_lock = threading.Lock()


def _folder() -> Path:
    """Return the folder of Swagger UI within the package fastapi-offline. The package's code is not used."""
    spec = find_spec("fastapi_offline")
    assert spec and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "static"


@routes.head("/api/openapi.json")
@routes.get("/api/openapi.json")
def description(request: Request) -> Response:
    """Return the OpenAPI description with this cluster as its server.

    FastAPI builds it once, which takes a fifth of a second. Therefore this route runs in a thread and holds a lock.
    """
    with _description_lock:
        return json_response({**request.app.openapi(), "servers": _SERVERS})


@routes.get("/api/docs")
def page() -> Response:
    return Response(_PAGE, media_type="text/html", headers={"Cache-Control": "no-cache"})


@routes.get("/api/docs/start.js")
def start() -> Response:
    return Response(_START, media_type="text/javascript", headers={"Cache-Control": "no-cache"})


def _serve(name: str, media_type: str) -> None:
    file = _folder() / name

    @routes.get(f"/api/docs/{name}")
    def asset() -> FileResponse:
        return FileResponse(file, media_type=media_type, headers={"Cache-Control": "public, max-age=86400"})


for _name, _type in _ASSETS.items():
    _serve(_name, _type)
