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


class Tenants(Answer):
    tenants: list[Tenant]
