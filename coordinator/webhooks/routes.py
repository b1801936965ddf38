"""API routes of webhooks: deliveries, the signing key, and test requests to a receiver."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from coordinator import destinations
from coordinator.access.principal import Scope
from coordinator.server import bodies, http
from coordinator.server.http import json_response
from coordinator.state import shared_state
from coordinator.webhooks import attempt, queries, sender, signing
from jobs import errors
from jobs.store import webhooks
from jobs.store.webhooks import Delivery, State
from threads_protocol.answers import webhooks as answers

routes = http.router(tag="jobs")

_SUBMIT = [http.require_scope(Scope.SUBMIT)]
#: Maximum number of concurrent test requests of one coordinator, in total and per tenant.
MAX_TESTS, MAX_TENANT_TESTS = 8, 2
#: Number of test requests in progress, by tenant.
_active_tests: Counter[str] = Counter()

DeliveryId = Annotated[
    str, Path(pattern=webhooks.ID, description="Delivery ID, which the receiver gets in the header webhook-id.")
]


class Receiver(BaseModel):
    """The body of POST /api/webhooks/test."""

    model_config = ConfigDict(extra="forbid", strict=True)
    url: str = Field(
        min_length=1,
        max_length=destinations.MAX_URL,
        description="URL of the receiver: https://HOST... or http://HOST...",
    )


@routes.get("/webhooks", **http.describe_response(answers.DeliveryList))
def list_deliveries(
    cluster: http.ClusterDep,
    tenant: http.Owner,
    state: Annotated[
        State | None, Query(description="Only deliveries in this state: pending, delivered or dead.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=webhooks.MAX_LISTED)] = 100,
) -> Response:
    """List webhook deliveries, latest first. Successful ones are kept for a day, and failed ones for a week."""
    return json_response(queries.delivery_list(cluster.store.webhooks, tenant, state, limit))


@routes.get("/webhooks/key", dependencies=_SUBMIT, **http.describe_response(answers.SigningKey))
def get_signing_key(cluster: http.ClusterDep, tenant: http.Owner, principal: http.PrincipalDep) -> Response:
    """Return the key that signs a tenant's webhooks. The audit log records this request."""
    key = signing.export_key(cluster.secrets.keys, tenant, cluster.store.webhooks.generation(tenant))
    cluster.store.webhooks.log_disclosure(tenant, principal.actor)
    answer = json_response({"tenant": tenant, "key": key})
    answer.headers["Cache-Control"] = "no-store"
    return answer


@routes.post("/webhooks/test", dependencies=_SUBMIT, **http.describe_response(answers.Tried, body=Receiver))
async def try_receiver(request: Request, cluster: http.ClusterDep, tenant: http.Owner) -> Response:
    """Send a signed message of type webhook.test to a URL once, and return the result."""
    given = http.parse(Receiver, await bodies.read_json(request))
    url, keys = _url(given.url), cluster.secrets.keys
    signing.require(keys)
    message = Delivery(
        delivery_id=f"msg_{secrets.token_hex(13)}",
        tenant=tenant,
        url=url,
        type="webhook.test",
        job="",
        kind="",
        error="",
        state="pending",
        created=int(time.time() * 1000),
        ended=0,
        due=0,
        attempts=1,
        said="",
    )
    body = sender.body(message)
    with _reserve_attempt(tenant):
        generation = await run_in_threadpool(cluster.store.webhooks.generation, tenant)
        headers = signing.headers(keys, tenant, message.delivery_id, int(time.time()), body, generation)
        outcome = await attempt.post(url, headers, body, shared_state(request).guard)
    return json_response(
        {
            "delivered": outcome.is_delivered,
            "status": outcome.status,
            "error": outcome.error or None,
            "seconds": round(outcome.seconds, 3),
        }
    )


@contextmanager
def _reserve_attempt(tenant: str) -> Iterator[None]:
    """Reserve a slot for a test request. Raises OverLimit if the tenant or this coordinator has no slot left."""
    if _active_tests[tenant] >= MAX_TENANT_TESTS:
        detail = f"tenant {tenant} is already testing {MAX_TENANT_TESTS} receivers; try again in 15 s"
        raise errors.OverLimit(detail, field="url", seconds=15)
    if _active_tests.total() >= MAX_TESTS:
        detail = f"this coordinator is already testing {MAX_TESTS} receivers; try again in 15 s"
        raise errors.OverLimit(detail, field="url", seconds=15)
    _active_tests[tenant] += 1
    try:
        yield
    finally:
        _active_tests[tenant] -= 1
        if not _active_tests[tenant]:
            del _active_tests[tenant]


@routes.post("/webhooks/{delivery_id}/retry", dependencies=_SUBMIT, **http.describe_response(answers.Delivery))
async def retry_delivery(
    delivery_id: DeliveryId, cluster: http.ClusterDep, tenant: http.Owner, principal: http.PrincipalDep
) -> Response:
    """Send a delivery again immediately, even if it was delivered or given up."""
    store = cluster.store.webhooks
    how = await run_in_threadpool(store.retry, tenant, delivery_id, principal.actor)
    if how == "missing":
        raise queries.missing(delivery_id)
    if how == "full":
        raise errors.OverLimit("the tenant has too many pending deliveries", field="delivery_id", seconds=60)
    return json_response(await run_in_threadpool(queries.find_delivery, store, tenant, delivery_id))


def _url(text: str) -> str:
    try:
        return destinations.normalize_url(text)
    except ValueError as error:
        raise errors.InvalidRequest(f"url: {error}", field="url") from None
