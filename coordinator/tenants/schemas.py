"""Answers about tenants, for the API's description and the tests."""

from __future__ import annotations

from coordinator.schemas import Answer, required


class Tenant(Answer):
    """A tenant's share, its caps, and what it uses of them; use is counted while tenants are registered."""

    tenant: str
    weight: int = required("Its share of the lanes beside other tenants, relative to theirs.")
    max_lanes: int | None = required("Most lanes that compute its jobs at once; null: any number.")
    max_jobs: int | None = required("Most of its jobs that wait or run at once; null: any number.")
    lanes: int = required("Lanes that compute its jobs now.")
    jobs: int = required("Its jobs that wait or run, without its backlog.")
    backlog: int = required("Its held jobs, which are queued until max_jobs admits them.")
    max_units: dict[str, int] = required("Most units a day, by kind; of kinds that are not named any number.")
    units_today: dict[str, int | str] = required("Units committed today (UTC), of the kinds in max_units.")
    max_gpu_seconds: int | None = required("Most seconds of GPUs a day; null: any number.")
    gpu_seconds_today: float = required("Seconds of GPUs used today, where max_gpu_seconds caps them; else 0.")
    max_stored_bytes: int | None = required("Most bytes stored of its jobs and artifacts; null: any number.")
    stored_bytes: int = required("Bytes stored of its jobs and artifacts, where max_stored_bytes caps them; else 0.")
    requires: list[str] = required("Labels that hosts need to compute its jobs; empty: any host may.")


class Tenants(Answer):
    tenants: list[Tenant]
