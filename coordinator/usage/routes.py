"""Route for the usage of tenants."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from coordinator.server import http
from coordinator.server.http import json_response
from jobs.store.tenancy.tenants import NAME
from jobs.store.tenancy.usage import DAYS
from threads_protocol.answers import usage as answers

routes = http.router(tag="tenants")


@routes.get("/usage", **http.describe_response(answers.TenantUsages))
def get_usage(
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
    tenant: Annotated[str | None, Query(pattern=NAME, description="Only this tenant.")] = None,
    days: Annotated[int, Query(ge=1, le=DAYS, description="Number of days, including today.")] = 30,
) -> Response:
    """List usage by tenant and day, newest first. Without the scope admin, only your own tenant is listed."""
    return json_response({"usage": cluster.queries.usage.days(principal, tenant, days)})
