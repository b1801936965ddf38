"""Read services from the store, and serialize them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coordinator.jobs.queries import JobQueries
from coordinator.services import serializers
from jobs import errors
from jobs.store import Store
from jobs.store.services import Replica, Service
from threads_protocol.answers import services as answers


def service_list(store: Store, jobs: JobQueries, tenant: str, unreached: Mapping[str, str]) -> list[answers.Service]:
    """Return a tenant's services by name.

    `unreached` is passed to `serializers.serialize_service`.
    """
    found = store.services.of_tenant(tenant)
    replicas = store.services.replicas([one.service_id for one in found])
    waits = _waits(jobs, [each for several in replicas.values() for each in several])
    now = round(store.clock.now() * 1000)
    lately = store.services.recent_usage(found, now)
    return [
        serializers.serialize_service(one, replicas[one.service_id], waits, lately[one.service_id], now, unreached)
        for one in found
    ]


def found(store: Store, tenant: str, name: str) -> Service:
    """Return a service. Raises NotFound if it does not exist."""
    service = store.services.one(tenant, name)
    if service is None:
        raise errors.missing("service", name, "name")
    return service


def one(
    store: Store, jobs: JobQueries, tenant: str, name: str, unreached: Mapping[str, str] | None = None
) -> answers.Service:
    """Return a service with its specification. Raises NotFound if it does not exist."""
    service = found(store, tenant, name)
    replicas = store.services.replicas([service.service_id])[service.service_id]
    now = round(store.clock.now() * 1000)
    lately = store.services.recent_usage([service], now)[service.service_id]
    return serializers.serialize_details(service, replicas, _waits(jobs, replicas), lately, now, unreached or {})


def _waits(jobs: JobQueries, replicas: Sequence[Replica]) -> dict[str, str]:
    """Return the waiting reasons of replicas' jobs by job ID."""
    waiting = [each.job_id for each in replicas if serializers.state_of(each) == "waiting"]
    return {row["job_id"]: row["waiting_because"] or "" for row in jobs.by_ids(waiting)} if waiting else {}
