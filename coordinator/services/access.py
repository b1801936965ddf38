"""Direct access to a group's leading replica, such as the scheduler of Dask, for clients that bypass the gateway."""

from __future__ import annotations

from coordinator.services import planning, queries
from engines import registry
from jobs import errors
from jobs.store import Store
from threads_protocol.answers import services as answers


def of(store: Store, tenant: str, name: str) -> answers.Access:
    """Return the address and credentials of the leading replica.

    Raises NotFound for an unknown service, Conflict if the engine has no leader, and Unavailable while no replica
    leads.
    """
    service = queries.found(store, tenant, name)
    credentials = registry.credentials(service.engine)
    if credentials is None:
        detail = f"service {name} with engine {service.engine} has no direct access; use /v1"
        raise errors.Conflict(detail, field="name")
    leader = planning.leader(service, store.services.replicas([service.service_id])[service.service_id])
    if leader is None or leader.report is None:
        raise errors.Unavailable(f"no replica of {name} is leading yet; see: cluster service show {name}")
    certificate, private_key = credentials(leader.report.key)
    return {
        "job_id": leader.job_id,
        "address": leader.report.address,
        "port": leader.report.port,
        "certificate": certificate,
        "private_key": private_key,
    }
