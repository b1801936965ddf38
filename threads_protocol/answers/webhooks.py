"""Types of responses about webhooks."""

from __future__ import annotations

from typing import Annotated, NotRequired

from threads_protocol.answers.fields import Answer, Count, Many, Moment, describe


class Delivery(Answer):
    id: Annotated[str, describe("Value of the header webhook-id, which is the same for each attempt.")]
    tenant: str
    job_id: Annotated[str | None, describe("Job that ended; null for a workflow.")]
    workflow_id: Annotated[str | None, describe("Workflow that ended; null for a job.")]
    type: Annotated[
        str,
        describe(
            "job.done, job.failed, job.cancelled or job.skipped; workflow.done, workflow.failed or workflow.cancelled."
        ),
    ]
    url: Annotated[str, describe("URL of the receiver. Its path is hidden.")]
    state: Annotated[str, describe("pending, delivered or dead.")]
    created: Annotated[Moment, describe("Time when the job or workflow ended, in RFC 3339 and UTC.")]
    ended: Annotated[Moment | None, describe("Time when the message was delivered or abandoned.")]
    attempts: Annotated[Count, describe("Number of attempts.")]
    next_attempt: Annotated[Moment | None, describe("Time of the next attempt.")]
    last_outcome: Annotated[str | None, describe("Outcome of the last attempt.")]


class DeliveryList(Answer):
    deliveries: Annotated[Many[Delivery], describe("Deliveries, newest first.")]
    counts: Annotated[dict[str, Count], describe("Stored deliveries of the tenant, by state.")]


class SigningKey(Answer):
    tenant: str
    key: Annotated[str, describe("Key for verifying signatures: whsec_ and base64.")]


class Tried(Answer):
    delivered: bool
    status: Annotated[int | None, describe("HTTP status of the receiver's response; null if there was none.")]
    error: NotRequired[Annotated[str | None, describe("Why the receiver did not respond.")]]
    seconds: float
