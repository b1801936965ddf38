"""Health checks of this replica and of Redis, for probes without a token."""

from __future__ import annotations

from fastapi import Response

from coordinator import schemas
from coordinator.server import http
from coordinator.server.http import json_response
from jobs import VERSION

routes = http.open_router()


@routes.head("/health", include_in_schema=False)
@routes.get("/health", tags=["health"], **http.describe_response(schemas.Health))
async def health() -> Response:
    """Check that this process is running. Does not check Redis."""
    return json_response({"status": "ok", "version": VERSION})


@routes.head("/ready", include_in_schema=False)
@routes.get("/ready", tags=["health"], **http.describe_response(schemas.Ready))
def ready(cluster: http.ClusterDep) -> Response:
    """Return 503 unless Redis is reachable and has this version's functions, or can load them."""
    cluster.store.libraries.check()
    return json_response({"status": "ready"})
