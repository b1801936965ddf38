"""Routes of API tokens."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from coordinator import decoding
from coordinator.access import queries
from coordinator.access.principal import Scope
from coordinator.server import bodies, http, patterns
from coordinator.server.http import shown
from jobs import errors
from jobs.hosts import labels as host_labels
from jobs.models import DEFAULT_TENANT
from jobs.store.tenancy import tenants, tokens
from threads_protocol.answers import access as answers

routes = http.router(tag="access")

_ADMIN = [http.needs(Scope.ADMIN)]
#: Ten years.
_LONGEST = 10 * 366 * 86400


class NewToken(BaseModel):
    """The body of POST /api/tokens."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=patterns.TOKEN_NAME, description="What it is for, for people.")
    scopes: list[Annotated[str, Field(pattern=patterns.SCOPE)]] = Field(min_length=1, max_length=len(Scope))
    tenant: str = Field(DEFAULT_TENANT, pattern=tenants.NAME)
    ttl_seconds: int | None = Field(None, strict=True, ge=1, le=_LONGEST, description="null: it does not expire.")
    labels: list[Annotated[str, Field(pattern=host_labels.PATTERN)]] = Field(
        default_factory=list,
        max_length=host_labels.MOST,
        description="Of a worker's token: labels of its host, which tenants may require; of an invitation: of the host"
        " that joins with it. With the scope worker or join alone.",
    )


@routes.post("/tokens", dependencies=_ADMIN, **http.answers(answers.CreatedToken, 201, takes=NewToken))
async def create_token(request: Request, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Create an API token. Its secret is in this answer and nowhere else; Redis keeps a digest.

    It takes no Idempotency-Key: a call that is sent again makes another token.
    """
    asked: NewToken = http.parsed(NewToken, await bodies.body(request))
    if asked.labels and set(asked.scopes) not in ({Scope.WORKER}, {Scope.JOIN}):
        raise errors.InvalidRequest(
            "labels: only a token with the scope worker or join alone has some; got the scopes"
            f" {', '.join(sorted(set(asked.scopes)))}",
            field="labels",
        )
    minted, ttl_ms = tokens.mint(), (asked.ttl_seconds or 0) * 1000
    scopes = tuple(sorted(set(asked.scopes)))
    how = await run_in_threadpool(
        cluster.store.tokens.create,
        minted,
        name=asked.name,
        scopes=scopes,
        tenant=asked.tenant,
        ttl_ms=ttl_ms,
        actor=principal.actor,
        labels=asked.labels,
    )
    cluster.credentials.forget()
    if how == "missing":
        raise errors.UnknownTenant(asked.tenant)
    if how != "new":
        raise errors.Conflict(f"there are {tokens.MAX_TOKENS} tokens; revoke some", field="name")
    stored = await run_in_threadpool(cluster.store.tokens.get, minted.id)
    expires = decoding.optional_moment(stored.expires if stored else None)
    return shown(
        {
            "token": minted.text,
            "id": minted.id,
            "name": asked.name,
            "tenant": asked.tenant,
            "scopes": scopes,
            "expires": expires,
            "labels": sorted(set(asked.labels)),
        },
        201,
    )


@routes.get("/tokens", dependencies=_ADMIN, **http.answers(answers.TokenList))
def list_tokens(cluster: http.ClusterDep) -> Response:
    """Every API token, without its secret."""
    return shown({"tokens": queries.token_list(cluster.store)})


@routes.delete("/tokens/{token_id}", status_code=204, dependencies=[http.needs()])
def revoke_token(
    token_id: Annotated[str, Path(pattern=patterns.TOKEN_ID, description="A token's id.")],
    cluster: http.ClusterDep,
    principal: http.PrincipalDep,
) -> Response:
    """End a token within a second, on every replica; browsers that logged in with it are logged out.

    A token ends itself; to end another one needs the scope admin. If CLUSTER_TOKEN is not set, the last valid token
    with the scope admin cannot be ended (409).
    """
    if principal.token != token_id:
        principal.require(Scope.ADMIN)
    try:
        revoked = cluster.store.tokens.revoke(
            token_id, principal.actor, keep_admin=not cluster.credentials.bootstraps()
        )
    except tokens.LastAdmin:
        raise errors.Conflict(
            f"token {token_id} is the last one with the scope admin, and the cluster needs an administrator."
            " First create another one, `cluster token create NAME --scopes admin`, then revoke this one; or set"
            " CLUSTER_TOKEN",
            field="token_id",
        ) from None
    cluster.credentials.forget()
    if not revoked:
        raise errors.missing("token", token_id, "token_id")
    return Response(status_code=204)
