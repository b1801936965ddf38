"""Routes of webhooks: deliveries, the key that signs them, a delivery to try a receiver with."""

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
#: Receivers that one coordinator tries at once, in all and for one tenant.
MOST_TRIED, TRIED_OF_ONE = 8, 2
#: Those that are tried now, by tenant.
_trying: Counter[str] = Counter()

DeliveryId = Annotated[str, Path(pattern=webhooks.ID, description="A delivery's id, its webhook-id.")]


class Receiver(BaseModel):
    """The body of POST /api/webhooks/test."""

    model_config = ConfigDict(extra="forbid", strict=True)
    url: str = Field(min_length=1, max_length=destinations.MAX_URL, description="https://HOST or http://HOST ...")


@routes.get("/webhooks", **http.describe_response(answers.DeliveryList))
def list_deliveries(
    cluster: http.ClusterDep,
    tenant: http.Owner,
    state: Annotated[State | None, Query(description="pending, delivered or dead; without it all.")] = None,
    limit: Annotated[int, Query(ge=1, le=webhooks.MAX_LISTED)] = 100,
) -> Response:
    """List deliveries of webhooks, the latest first: those delivered within a day, those given up within a week."""
    return json_response(queries.listing(cluster.store.webhooks, tenant, state, limit))


@routes.get("/webhooks/key", dependencies=_SUBMIT, **http.describe_response(answers.SigningKey))
def signing_key(cluster: http.ClusterDep, tenant: http.Owner, principal: http.PrincipalDep) -> Response:
    """Show the key with which a tenant's webhooks are signed; the audit log notes that it was shown."""
    key = signing.export_key(cluster.secrets.keys, tenant, cluster.store.webhooks.generation(tenant))
    cluster.store.webhooks.log_disclosure(tenant, principal.actor)
    answer = json_response({"tenant": tenant, "key": key})
    answer.headers["Cache-Control"] = "no-store"
    return answer


@routes.post("/webhooks/test", dependencies=_SUBMIT, **http.describe_response(answers.Tried, body=Receiver))
async def try_receiver(request: Request, cluster: http.ClusterDep, tenant: http.Owner) -> Response:
    """Send a signed message of the type webhook.test to a URL, once and now, and answer what came of it."""
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
    """Take one of the places for trying receivers. OverLimit while the tenant has its part, or all are taken."""
    if _trying[tenant] >= TRIED_OF_ONE:
        detail = f"tenant {tenant} tries {TRIED_OF_ONE} receivers already; try again in 15 s"
        raise errors.OverLimit(detail, field="url", seconds=15)
    if _trying.total() >= MOST_TRIED:
        detail = f"this coordinator tries {MOST_TRIED} receivers already; try again in 15 s"
        raise errors.OverLimit(detail, field="url", seconds=15)
    _trying[tenant] += 1
    try:
        yield
    finally:
        _trying[tenant] -= 1
        if not _trying[tenant]:
            del _trying[tenant]


@routes.post("/webhooks/{delivery_id}/retry", dependencies=_SUBMIT, **http.describe_response(answers.Delivery))
async def retry_delivery(
    delivery_id: DeliveryId, cluster: http.ClusterDep, tenant: http.Owner, principal: http.PrincipalDep
) -> Response:
    """Try a delivery at once, one that was given up or delivered anew."""
    store = cluster.store.webhooks
    how = await run_in_threadpool(store.retry, tenant, delivery_id, principal.actor)
    if how == "missing":
        raise queries.missing(delivery_id)
    if how == "full":
        raise errors.OverLimit("too many deliveries of the tenant are pending already", field="delivery_id", seconds=60)
    return json_response(await run_in_threadpool(queries.find_delivery, store, tenant, delivery_id))


def _url(text: str) -> str:
    try:
        return destinations.normalize_url(text)
    except ValueError as error:
        raise errors.InvalidRequest(f"url: {error}", field="url") from None
