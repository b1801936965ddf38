"""Answers about webhooks, for the API's description and the tests."""

from __future__ import annotations

from coordinator.schemas import Answer, optional, required


class Delivery(Answer):
    id: str = required("The webhook-id that its receiver sees, the same at each attempt.")
    tenant: str
    job_id: str | None = required("The job that has ended; null: it was a workflow.")
    workflow_id: str | None = required("The workflow that has ended; null: it was a job.")
    type: str = required(
        "job.done, job.failed, job.cancelled or job.skipped; workflow.done, workflow.failed or workflow.cancelled."
    )
    url: str = required("Where it goes; of its path no more than that there is one.")
    state: str = required("pending, delivered or dead.")
    created: str = required("When it ended; RFC 3339, UTC.")
    ended: str | None = required("When it was delivered or given up.")
    attempts: int = required("Attempts that were begun.")
    next_attempt: str | None = required("When it is tried next.")
    last_outcome: str | None = required("What came of the last attempt.")


class DeliveryList(Answer):
    deliveries: list[Delivery] = required("The latest first.")
    counts: dict[str, int] = required("All deliveries of the tenant that are kept, by state.")


class SigningKey(Answer):
    tenant: str
    key: str = required("whsec_ and base64: what receivers verify signatures with.")


class Tried(Answer):
    delivered: bool
    status: int | None = required("Of the receiver's answer; null: none came.")
    error: str | None = optional("Why none came.")
    seconds: float
