"""Check whether a principal can attach a shell to a unit."""

from __future__ import annotations

from coordinator.access.principal import Principal
from jobs import errors
from jobs.kinds import registry
from jobs.store import Store
from jobs.store.work.outputs import UnitState


def unit(store: Store, principal: Principal, job: str, number: int) -> UnitState:
    """Return the state of a unit, if the principal can attach a shell to this unit.

    Raise NotFound if the unit does not exist, Forbidden if it belongs to another tenant, or Conflict if it has ended.
    """
    found = store.outputs.unit(job, number)
    if found is None:
        raise errors.missing("job", job, "job_id")
    if found.tenant != principal.tenant:
        detail = f"job {job} belongs to tenant {found.tenant}; attaching a shell requires a token of this tenant"
        raise errors.Forbidden(detail, field="job_id")
    if found.kind not in registry.names() or registry.program_kind(found.kind) is None:
        raise errors.NotFound(
            f"jobs of kind {found.kind} do not run programs, so shells cannot be attached", field="job_id"
        )
    if number >= found.total:
        raise errors.NotFound(f"unit {number} does not exist; job {job} has units 0 to {found.total - 1}", field="unit")
    if found.ended:
        state = found.state if found.state in ("done", "dead") else f"finished, because its job is {found.job_state}"
        detail = f"unit {number} is {state}; read its output with: cluster logs {job} --unit {number}"
        raise errors.Conflict(detail, field="unit")
    return found
