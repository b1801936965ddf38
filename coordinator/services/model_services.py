"""Serve models at a location such as node1:gpu0, which determines the service's name and requirements."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from coordinator.access.principal import Principal
from coordinator.artifacts.catalog import Model
from coordinator.cluster import Cluster
from coordinator.locations import Location
from coordinator.services import creation, planning, queries
from coordinator.services.creation import NewService
from jobs import errors
from jobs.models import Actor
from jobs.store.services import Service, Services
from threads_protocol.answers import services as answers

_OTHERS = re.compile(r"[^a-z0-9]+")
#: Number of consecutive replica failures after which callers stop waiting for the service.
DEATHS = 3


def name_of(model: str, place: Location) -> str:
    """Return the name of the service for a model at a location. Without a host, the model's name is used."""
    words = f"{model} {place.host} {place.device}" if place.host else model
    return _OTHERS.sub("-", words.lower())[:63].strip("-")


def serve(
    cluster: Cluster, model: Model, place: Location, principal: Principal, *, routed: bool = True, workflow: str = ""
) -> str:
    """Start a service for a model at a location and return its name, or return the name of the existing service.

    An unrouted service receives no requests yet. The service belongs to `workflow`, which deletes it when it is
    cancelled, unless another caller has also used this function for the service. Raises Conflict if the name belongs to
    another service, and the errors of `creation.plan_service`.
    """
    name = name_of(model.name, place)
    known = cluster.store.services.one(principal.tenant, name)
    if known is None:
        _add(cluster, _wanted(model, place), place, principal, routed=routed, workflow=workflow)
        return name
    asked = json.loads(known.asked)
    if asked.get("place") != str(place) or known.artifact != model.artifact.id:
        detail = (
            f"service {name} already exists with another model or device; delete it with: cluster service delete {name}"
        )
        raise errors.Conflict(detail, field="model_name")
    shared = asked.get("workflow", workflow) != workflow and asked.pop("workflow")
    if (routed and asked.pop("unrouted", False)) or shared:
        cluster.store.services.route(known.service_id, json.dumps(asked))
    if known.stopped:
        cluster.store.services.restart(principal.tenant, name, principal.actor)
    return name


def _wanted(model: Model, place: Location) -> NewService:
    if not model.weights:
        detail = f"model_name: {model.name} has no files yet; run: cluster model download {model.name}"
        raise errors.Conflict(detail, field="model_name")
    requirements = {"host": place.host or None, "gpus": 1 if place.kind == "gpu" else None}
    return NewService.model_validate(
        {
            "name": name_of(model.name, place),
            "model": model.artifact.id,
            "replicas": 1,
            "requirements": {name: value for name, value in requirements.items() if value is not None},
        }
    )


def withdraw(cluster: Cluster, name: str, workflow: str, actor: Actor) -> tuple[bool, str]:
    """Delete a workflow's service unless others use it. Returns (True, "") if deleted, or else (False, reason)."""
    service = cluster.store.services.one(actor.tenant, name)
    if service is None or json.loads(service.asked).get("workflow") != workflow:
        return False, ""
    if service.demand or service.asked_at > service.created:
        return False, "which was used, scaled or restarted since it was created"
    return cluster.store.services.delete(actor.tenant, name, actor), ""


def begun_by(services: Services, tenant: str, workflow: str) -> list[str]:
    """Return the names of a tenant's services that only this workflow uses."""
    there = services.of_tenant(tenant)
    return [one.name for one in there if not one.deleted and json.loads(one.asked).get("workflow") == workflow]


def _add(
    cluster: Cluster, wanted: NewService, place: Location, principal: Principal, *, routed: bool, workflow: str
) -> Service:
    planned = creation.plan_service(cluster, wanted, principal)
    more = {**({} if routed else {"unrouted": True}), **({"workflow": workflow} if workflow else {})}
    noted = {**json.loads(planned.asked), "place": str(place), **more}
    service = replace(planned, asked=json.dumps(noted))
    if refused := creation.refusal(*cluster.store.services.add(service, principal.actor)):
        raise refused
    return service


def ready(cluster: Cluster, tenant: str, name: str) -> answers.Service:
    """Return a service that has a ready replica. Raises Unavailable until then, and Conflict if its replicas fail."""
    row = queries.one(cluster.store, cluster.queries.jobs, tenant, name)
    if row["ready"]:
        return row
    if row["failures"] >= DEATHS:
        detail = f"replicas of {name} fail: {row['last_failure']}; see: cluster service logs {name}"
        raise errors.Conflict(detail, field="device")
    because = next((one["because"] for one in row["running"] if one["because"]), None)
    raise errors.Unavailable(f"{name} is {row['state']}{(because and f': {because}') or ''}")


def places(cluster: Cluster, tenant: str) -> list[tuple[str, str]]:
    """Return artifacts that ready replicas keep in GPU memory, with their locations."""
    there = [(one, json.loads(one.asked).get("place")) for one in cluster.store.services.of_tenant(tenant)]
    found = [(one, str(place)) for one, place in there if place and "gpu" in str(place) and ":" in str(place)]
    replicas = cluster.store.services.replicas([one.service_id for one, _ in found]) if found else {}
    return [(one.artifact, place) for one, place in found if any(map(planning.is_ready, replicas[one.service_id]))]
