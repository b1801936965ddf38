"""Read webhook deliveries from the store and serialize them. Nothing here writes."""

from __future__ import annotations

from typing import Any

from coordinator.webhooks import serializers
from jobs import errors
from jobs.store.webhooks import STATES, State, Webhooks
from threads_protocol.answers import webhooks as answers


def delivery_list(store: Webhooks, tenant: str, state: State | None, limit: int) -> dict[str, Any]:
    """Return a tenant's latest deliveries, and the number of deliveries by state.

    If `state` is not None, only deliveries in this state are returned.
    """
    found = [find_delivery for each in (state,) if each for find_delivery in store.listed(tenant, each, limit)]
    if state is None:
        found = [find_delivery for each in STATES for find_delivery in store.listed(tenant, each, limit)]
        found.sort(
            key=lambda find_delivery: (find_delivery.ended or find_delivery.created, find_delivery.delivery_id),
            reverse=True,
        )
    return {"deliveries": list(map(serializers.serialize_delivery, found[:limit])), "counts": store.counts(tenant)}


def find_delivery(store: Webhooks, tenant: str, delivery_id: str) -> answers.Delivery:
    """Return one delivery. Raises NotFound if the tenant does not have it."""
    found = store.one(tenant, delivery_id)
    if found is None:
        raise missing(delivery_id)
    return serializers.serialize_delivery(found)


def missing(delivery_id: str) -> errors.NotFound:
    """Return the NotFound error for a delivery that does not exist."""
    detail = f"webhook delivery {delivery_id} does not exist; list deliveries with GET /api/webhooks"
    return errors.NotFound(detail, field="delivery_id")
