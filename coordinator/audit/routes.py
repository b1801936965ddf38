"""Route for the audit log."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from coordinator.access.principal import Scope
from coordinator.server import http
from coordinator.server.http import json_response
from threads_protocol.answers import audit as answers

routes = http.router(tag="access")


@routes.get("/audit", dependencies=[http.require_scope(Scope.ADMIN)], **http.describe_response(answers.AuditPart))
def get_audit(
    cluster: http.ClusterDep,
    after: Annotated[int | None, Query(ge=0, le=2**53, description="Only entries with higher numbers.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries.")] = 100,
) -> Response:
    """List the audit log's entries after a given entry number, or its newest entries."""
    return json_response(cluster.queries.audit.part(after, limit))
