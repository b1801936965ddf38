"""Types of responses about tenants."""

from __future__ import annotations

from typing import Annotated

from threads_protocol.answers.fields import Answer, Count, Many, Whole, describe


class Tenant(Answer):
    """A tenant with its weight, its limits and its usage. Usage is counted only while tenants are registered."""

    tenant: str
    weight: Annotated[Count, describe("Share of the lanes relative to other tenants' weights.")]
    max_lanes: Annotated[
        Count | None, describe("Maximum number of lanes that compute the tenant's jobs at once; null: no limit.")
    ]
    max_jobs: Annotated[Count | None, describe("Maximum number of waiting and running jobs; null: no limit.")]
    lanes: Annotated[Count, describe("Lanes that are computing the tenant's jobs.")]
    jobs: Annotated[Count, describe("Waiting and running jobs, without the backlog.")]
    backlog: Annotated[Count, describe("Held jobs, which stay queued until max_jobs allows them.")]
    max_units: Annotated[dict[str, Count], describe("Maximum units per day, by kind. Other kinds have no limit.")]
    units_today: Annotated[dict[str, Whole], describe("Units committed today (UTC) of the kinds in max_units.")]
    max_gpu_seconds: Annotated[Count | None, describe("Maximum GPU seconds per day; null: no limit.")]
    gpu_seconds_today: Annotated[float, describe("GPU seconds used today if max_gpu_seconds is set, else 0.")]
    max_stored_bytes: Annotated[Count | None, describe("Maximum stored bytes of jobs and artifacts; null: no limit.")]
    stored_bytes: Annotated[Count, describe("Stored bytes of jobs and artifacts if max_stored_bytes is set, else 0.")]
    requires: Annotated[
        Many[str], describe("Labels that a host needs to compute the tenant's jobs; empty: no requirement.")
    ]


class Tenants(Answer):
    tenants: Many[Tenant]
