"""Schedules as rows. Reads only."""

from __future__ import annotations

from coordinator.schedules import rows
from coordinator.schedules.rows import ScheduleRow
from jobs import errors
from jobs.store.schedules import Schedule, Schedules


def schedule_list(store: Schedules, tenant: str) -> list[ScheduleRow]:
    """Return a tenant's schedules by name."""
    return [rows.schedule_row(schedule) for schedule in store.of_tenant(tenant)]


def found(store: Schedules, tenant: str, name: str) -> Schedule:
    """Return a schedule. NotFound when there is none."""
    schedule = store.one(tenant, name)
    if schedule is None:
        raise missing(name)
    return schedule


def one(store: Schedules, tenant: str, name: str) -> ScheduleRow:
    """Return the row of a schedule with its job. NotFound when there is none."""
    return rows.whole_row(found(store, tenant, name))


def missing(name: str) -> errors.NotFound:
    """Return the error about a schedule that there is not."""
    return errors.NotFound(f"no schedule {name}; list them with GET /api/schedules", field="name")
