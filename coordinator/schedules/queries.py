"""Read schedules from the store and serialize them. Nothing here writes."""

from __future__ import annotations

from coordinator.schedules import serializers
from jobs import errors
from jobs.store import Store
from jobs.store.schedules import Schedule, Schedules
from jobs.store.workflows import Workflows
from threads_protocol.answers import schedules as answers


def schedule_list(store: Store, tenant: str) -> list[answers.Schedule]:
    """Return a tenant's schedules by name."""
    find = store.schedules.of_tenant(tenant)
    states = _workflow_states(store.workflows, find)
    return [serializers.serialize_schedule(schedule, states.get(schedule.schedule_id)) for schedule in find]


def find(store: Schedules, tenant: str, name: str) -> Schedule:
    """Return a schedule. Raises NotFound if it does not exist."""
    schedule = store.one(tenant, name)
    if schedule is None:
        raise errors.missing("schedule", name, "name")
    return schedule


def find_row(store: Store, tenant: str, name: str) -> answers.Schedule:
    """Return a schedule with its job or workflow. Raises NotFound if it does not exist."""
    schedule = find(store.schedules, tenant, name)
    return serializers.serialize_details(
        schedule, _workflow_states(store.workflows, [schedule]).get(schedule.schedule_id)
    )


def _workflow_states(store: Workflows, schedules: list[Schedule]) -> dict[str, str]:
    """Return the states of the schedules' last workflows, by schedule ID. Deleted workflows are omitted."""
    having = [each for each in schedules if each.workflow and each.last_job]
    stored = store.read([each.last_job for each in having])
    return {each.schedule_id: find_row.state for each, find_row in zip(having, stored, strict=True) if find_row}
