"""Responses about tenants."""

from __future__ import annotations

from typing import Annotated

from threads_protocol.answers.fields import Answer, Count, Many, Whole, describe


class Tenant(Answer):
    """A tenant's weight, its caps, and its usage against the caps. Usage is counted while tenants are registered."""

    tenant: str
    weight: Annotated[Count, describe("Its share of the lanes relative to the weights of other tenants.")]
    max_lanes: Annotated[Count | None, describe("Most lanes that compute its jobs at once; null: any number.")]
    max_jobs: Annotated[Count | None, describe("Most of its jobs that wait or run at once; null: any number.")]
    lanes: Annotated[Count, describe("Lanes that compute its jobs now.")]
    jobs: Annotated[Count, describe("Its jobs that wait or run, without its backlog.")]
    backlog: Annotated[Count, describe("Its held jobs, which are queued until max_jobs admits them.")]
    max_units: Annotated[
        dict[str, Count], describe("Most units a day, by kind; of kinds that are not named any number.")
    ]
    units_today: Annotated[dict[str, Whole], describe("Units committed today (UTC), of the kinds in max_units.")]
    max_gpu_seconds: Annotated[Count | None, describe("Most seconds of GPUs a day; null: any number.")]
    gpu_seconds_today: Annotated[
        float, describe("Seconds of GPUs used today, where max_gpu_seconds caps them; else 0.")
    ]
    max_stored_bytes: Annotated[
        Count | None, describe("Most bytes stored of its jobs and artifacts; null: any number.")
    ]
    stored_bytes: Annotated[
        Count, describe("Bytes stored of its jobs and artifacts, where max_stored_bytes caps them; else 0.")
    ]
    requires: Annotated[Many[str], describe("Labels that hosts need to compute its jobs; empty: any host may.")]


class Tenants(Answer):
    tenants: Many[Tenant]
