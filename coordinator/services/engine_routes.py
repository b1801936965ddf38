"""Routes that list engines with their parameters and the packages that replicas need."""

from __future__ import annotations

from fastapi import Response

from coordinator.server import http
from coordinator.server.http import json_response
from engines import registry
from threads_protocol.answers import services as answers

routes = http.router(tag="services")


@routes.get("/engines", **http.describe_response(answers.EngineList))
def list_engines(_cluster: http.ClusterDep) -> Response:
    """List the engines that can run services."""
    return json_response({"engines": _ENGINES})


def _build_engine(name: str) -> answers.Engine:
    engine = registry.definition(name)
    return {
        "engine": name,
        "summary": engine.SUMMARY,
        "routes": engine.ROUTES,
        "large": registry.is_large(name),
        "packages": registry.packages(name),
        "parameters": engine.Parameters.model_json_schema(),
    }


#: Loaded once at startup, because a request without a free file descriptor could cache an empty list of engines.
_ENGINES = [_build_engine(name) for name in registry.names()]
