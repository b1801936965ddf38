"""Build the API responses about webhook deliveries."""

from __future__ import annotations

from coordinator import decoding, destinations
from jobs.store.webhooks import Delivery
from threads_protocol.answers import webhooks as answers


def serialize_delivery(delivery: Delivery) -> answers.Delivery:
    """Return a delivery. The path of its URL is removed because it may contain a secret."""
    return {
        "id": delivery.delivery_id,
        "tenant": delivery.tenant,
        "job_id": delivery.job or None,
        "workflow_id": delivery.workflow or None,
        "type": delivery.type,
        "url": destinations.redact_path(delivery.url),
        "state": delivery.state,
        "created": decoding.format_ms(delivery.created),
        "ended": decoding.format_optional_ms(delivery.ended),
        "attempts": delivery.attempts,
        "next_attempt": decoding.format_optional_ms(delivery.due),
        "last_outcome": delivery.said or None,
    }
