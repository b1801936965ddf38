"""Routes for API tokens."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from coordinator import decoding
from coordinator.access import queries
from coordinator.access.principal import GUEST_TENANT, Scope
from coordinator.server import bodies, http, patterns
from coordinator.server.http import json_response
from jobs import errors
from jobs.hosts import labels as host_labels
from jobs.models import DEFAULT_TENANT
from jobs.store.tenancy import tenants, tokens
from threads_protocol.answers import access as answers

routes = http.router(tag="access")

_ADMIN = [http.require_scope(Scope.ADMIN)]
#: Maximum lifetime of a token: ten years, in seconds.
_MAX_TTL_SECONDS = 10 * 366 * 86400


class NewToken(BaseModel):
    """Body of POST /api/tokens."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=patterns.TOKEN_NAME, description="Name that describes the token's purpose.")
    scopes: list[Annotated[str, Field(pattern=patterns.SCOPE)]] = Field(min_length=1, max_length=len(Scope))
    tenant: str = Field(DEFAULT_TENANT, pattern=tenants.NAME)
    ttl_seconds: int | None = Field(
        None, strict=True, ge=1, le=_MAX_TTL_SECONDS, description="null: the token does not expire."
    )
    labels: list[Annotated[str, Field(pattern=host_labels.PATTERN)]] = Field(
        default_factory=list,
        max_length=host_labels.MAX_LABELS,
        description="Host labels, which tenants can require. The labels of a worker's token apply to the worker's host,"
        " and the labels of an invitation to the host that joins. Allowed only if the only scope is worker or join.",
    )


@routes.post("/tokens", dependencies=_ADMIN, **http.describe_response(answers.CreatedToken, 201, body=NewToken))
async def create_token(request: Request, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Create an API token. Only this response contains its secret; Redis stores a digest.

    This call does not support Idempotency-Key: a repeated call creates another token.
    """
    new: NewToken = http.parse(NewToken, await bodies.read_json(request))
    if new.labels and set(new.scopes) not in ({Scope.WORKER}, {Scope.JOIN}):
        raise errors.InvalidRequest(
            "labels: only a token whose only scope is worker or join can have labels; got the scopes"
            f" {', '.join(sorted(set(new.scopes)))}",
            field="labels",
        )
    if new.tenant == GUEST_TENANT:
        detail = f"tenant: {GUEST_TENANT} owns the jobs that are submitted without a token; use another tenant"
        raise errors.InvalidRequest(detail, field="tenant")
    minted, ttl_ms = tokens.mint(), (new.ttl_seconds or 0) * 1000
    scopes = tuple(sorted(set(new.scopes)))
    how = await run_in_threadpool(
        cluster.store.tokens.create,
        minted,
        name=new.name,
        scopes=scopes,
        tenant=new.tenant,
        ttl_ms=ttl_ms,
        actor=principal.actor,
        labels=new.labels,
    )
    cluster.credentials.invalidate()
    if how == "missing":
        raise errors.UnknownTenant(new.tenant)
    if how != "new":
        raise errors.Conflict(
            f"the cluster has {tokens.MAX_TOKENS} tokens, the maximum; revoke one with `cluster token revoke`",
            field="name",
        )
    stored = await run_in_threadpool(cluster.store.tokens.get, minted.id)
    expires = decoding.format_optional_ms(stored.expires if stored else None)
    return json_response(
        {
            "token": minted.text,
            "id": minted.id,
            "name": new.name,
            "tenant": new.tenant,
            "scopes": scopes,
            "expires": expires,
            "labels": sorted(set(new.labels)),
        },
        201,
    )


@routes.get("/tokens", dependencies=_ADMIN, **http.describe_response(answers.TokenList))
def list_tokens(cluster: http.ClusterDep) -> Response:
    """List all API tokens, without their secrets."""
    return json_response({"tokens": queries.list_tokens(cluster.store)})


@routes.delete("/tokens/{token_id}", status_code=204, dependencies=[http.require_scope()])
def revoke_token(
    token_id: Annotated[str, Path(pattern=patterns.TOKEN_ID, description="Token ID.")],
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
) -> Response:
    """Revoke a token on every replica within one second, and log out the browsers that used it.

    A token can revoke itself; revoking another token needs the scope admin. If CLUSTER_TOKEN is not set, the last
    valid token with the scope admin cannot be revoked (409).
    """
    if principal.token != token_id:
        principal.require(Scope.ADMIN)
    try:
        revoked = cluster.store.tokens.revoke(
            token_id, principal.actor, keep_admin=not cluster.credentials.cluster_token_digests()
        )
    except tokens.LastAdmin:
        raise errors.Conflict(
            f"token {token_id} cannot be revoked, because it is the last one with the scope admin. Create another one"
            " first with `cluster token create NAME --scopes admin`, or set CLUSTER_TOKEN",
            field="token_id",
        ) from None
    cluster.credentials.invalidate()
    if not revoked:
        raise errors.missing("token", token_id, "token_id")
    return Response(status_code=204)
