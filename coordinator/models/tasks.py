"""Start workflows with a single action on a model or a chunk of data."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeAlias

from fastapi import Header, Response
from pydantic import BaseModel

from coordinator import locations
from coordinator.access.principal import Principal, Scope
from coordinator.artifacts import threads
from coordinator.cluster import Cluster
from coordinator.fleet import hosts
from coordinator.jobs import submissions
from coordinator.locations import Location
from coordinator.server import http
from coordinator.workflows import submitting
from threads_protocol.answers import fleet as answers_of_fleet
from threads_protocol.answers import models as answers

#: Idempotency key of a request. A repeated request with the same key starts no second workflow.
Key: TypeAlias = Annotated[str | None, Header(alias="Idempotency-Key", max_length=submissions.MAX_KEY)]


def describe_route(form: type[BaseModel], answer: type[Any] = answers.TaskBegun) -> dict[str, Any]:
    """Return the arguments of a route that has this request body and starts a workflow."""
    return {
        "status_code": 202,
        "tags": ["models"],
        "dependencies": [http.require_scope(Scope.RUN)],
        "openapi_extra": http.describe_body(form),
        **http.describe_response(answer, 202),
    }


async def begin_task(
    cluster: Cluster,
    principal: Principal,
    action: str,
    of: str,
    key: str | None,
    fields: Mapping[str, Any],
    check: Callable[[Cluster, str, str], object] | None = None,
) -> Response:
    """Start a workflow, and return a response with its ID. `check` first verifies that its model or chunk exists."""

    def work() -> str:
        if check is not None:
            check(cluster, principal.tenant, of)
        return begin(cluster, principal, action, of, key, fields)

    return http.json_response({"task_id": await threads.run(work)}, 202)


def begin(
    cluster: Cluster,
    principal: Principal,
    action: str,
    of: str,
    key: str | None,
    fields: Mapping[str, Any],
    target: str = "target_device",
) -> str:
    """Submit a workflow with one action, and return its ID. A repeated call with the same key returns the same ID.

    `of` is the name of the model or the ID of the chunk, and `target` is the request field with the target location.
    Raises NotFound for a host that does not exist, InvalidRequest for a location without a host unless exactly one
    host has a runner, and the errors of `submitting.submit`.
    """
    row = {"action_id": action, "action_type": action, **_add_hosts(cluster, fields, target)}
    text = json.dumps({"name": f"{action} {of}", "actions": [row]}).encode()
    named = f"task@{principal.tenant}:{key}" if key else ""
    return submitting.submit(cluster.store.workflows, cluster.settings, text, principal, key=named)


def _add_hosts(cluster: Cluster, fields: Mapping[str, Any], target: str) -> dict[str, Any]:
    """Return the fields of an action with a host in each location outside of the cluster's store."""
    places = {
        field: locations.parse(fields[field], (*locations.STORAGE_DEVICES, "gpu"), any_host=True)
        for field in ("source_device", "target_device")
        if field in fields
    }
    outside = {field: place for field, place in places.items() if not place.is_store}
    workers = cluster.queries.fleet.workers() if outside else []
    names = {"target_device": target}
    found = {field: _add_host(workers, names.get(field, field), place) for field, place in outside.items()}
    return {**fields, **{field: str(place) for field, place in found.items()}}


def _add_host(workers: Sequence[answers_of_fleet.Worker], field: str, place: Location) -> Location:
    """Return a location with a host. A target host must exist, but the host of an existing copy can be lost."""
    if not place.host:
        return replace(place, host=hosts.find_runner_host(workers, place.device, field))
    if field != "source_device":
        hosts.require(workers, place.host, field)
    return place
