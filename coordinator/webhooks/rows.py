"""Rows of webhooks' deliveries, as the API shows them; `schemas.py` describes the same to clients."""

from __future__ import annotations

from typing import TypedDict

from coordinator import decoding, destinations
from jobs.store.webhooks import Delivery


class DeliveryRow(TypedDict):
    id: str
    tenant: str
    job_id: str | None
    workflow_id: str | None
    type: str
    url: str
    state: str
    created: str
    ended: str | None
    attempts: int
    next_attempt: str | None
    last_outcome: str | None


def delivery_row(delivery: Delivery) -> DeliveryRow:
    """Return a delivery, its URL without the path."""
    return {
        "id": delivery.delivery_id, "tenant": delivery.tenant, "job_id": delivery.job or None,
        "workflow_id": delivery.workflow or None, "type": delivery.type,
        "url": destinations.shown(delivery.url), "state": delivery.state,
        "created": decoding.moment_ms(str(delivery.created)), "ended": _moment(delivery.ended),
        "attempts": delivery.attempts, "next_attempt": _moment(delivery.due), "last_outcome": delivery.said or None,
    }  # fmt: skip


def _moment(ms: int) -> str | None:
    return decoding.moment_ms(str(ms)) if ms else None
