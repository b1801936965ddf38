"""Responses about webhooks."""

from __future__ import annotations

from typing import Annotated, NotRequired

from threads_protocol.answers.fields import Answer, Count, Many, Moment, describe


class Delivery(Answer):
    id: Annotated[str, describe("The webhook-id that its receiver sees, the same at each attempt.")]
    tenant: str
    job_id: Annotated[str | None, describe("The job that has ended; null: it was a workflow.")]
    workflow_id: Annotated[str | None, describe("The workflow that has ended; null: it was a job.")]
    type: Annotated[
        str,
        describe(
            "job.done, job.failed, job.cancelled or job.skipped; workflow.done, workflow.failed or workflow.cancelled."
        ),
    ]
    url: Annotated[str, describe("Where it goes; of its path no more than that there is one.")]
    state: Annotated[str, describe("pending, delivered or dead.")]
    created: Annotated[Moment, describe("When it ended; RFC 3339, UTC.")]
    ended: Annotated[Moment | None, describe("When it was delivered or given up.")]
    attempts: Annotated[Count, describe("Attempts that were begun.")]
    next_attempt: Annotated[Moment | None, describe("When it is tried next.")]
    last_outcome: Annotated[str | None, describe("What came of the last attempt.")]


class DeliveryList(Answer):
    deliveries: Annotated[Many[Delivery], describe("The latest first.")]
    counts: Annotated[dict[str, Count], describe("All deliveries of the tenant that are kept, by state.")]


class SigningKey(Answer):
    tenant: str
    key: Annotated[str, describe("whsec_ and base64: what receivers verify signatures with.")]


class Tried(Answer):
    delivered: bool
    status: Annotated[int | None, describe("Of the receiver's answer; null: none came.")]
    error: NotRequired[Annotated[str | None, describe("Why none came.")]]
    seconds: float
