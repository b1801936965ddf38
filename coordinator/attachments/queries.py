"""Check whether a principal may attach a shell to a unit."""

from __future__ import annotations

from coordinator.access.principal import Principal
from jobs import errors
from jobs.kinds import registry
from jobs.store import Store
from jobs.store.work.outputs import UnitState


def unit(store: Store, principal: Principal, job: str, number: int) -> UnitState:
    """Return the state of a unit to which the principal may attach a shell.

    Raise NotFound if it does not exist, Forbidden if it belongs to another tenant, and Conflict if it has ended.
    """
    found = store.outputs.unit(job, number)
    if found is None:
        raise errors.missing("job", job, "job_id")
    if found.tenant != principal.tenant:
        detail = f"job {job} is of the tenant {found.tenant}: a shell beside it is for tokens of that tenant alone"
        raise errors.Forbidden(detail, field="job_id")
    if found.kind not in registry.names() or registry.program_kind(found.kind) is None:
        raise errors.NotFound(f"jobs of kind {found.kind} run no programs: there is no shell beside", field="job_id")
    if number >= found.total:
        raise errors.NotFound(f"job {job} has the units 0 to {found.total - 1}", field="unit")
    if found.ended:
        state = found.state if found.state in ("done", "dead") else f"over: its job is {found.job_state}"
        detail = f"unit {number} is {state}; read what it wrote with: cluster logs {job} --unit {number}"
        raise errors.Conflict(detail, field="unit")
    return found
