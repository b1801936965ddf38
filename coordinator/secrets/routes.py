"""Routes for secrets. No response, error or log message contains a value."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from coordinator.access.principal import Scope
from coordinator.secrets import queries
from coordinator.server import bodies, http
from coordinator.server.http import json_response
from jobs import errors
from jobs.models import DEFAULT_TENANT
from jobs.store.tenancy.secrets import MAX_BYTES, NAME
from threads_protocol.answers import secrets as answers

routes = http.router(tag="access")

_RUN = [http.require_scope(Scope.RUN)]
_ADMIN = [http.require_scope(Scope.ADMIN)]
Name = Annotated[str, Path(pattern=NAME, description="Name of the secret and of its environment variable.")]


class NewSecret(BaseModel):
    """Body of PUT /api/secrets/{name}."""

    model_config = ConfigDict(extra="forbid", strict=True)
    value: str = Field(
        min_length=1, max_length=MAX_BYTES, description="Value of at most 65,536 bytes in UTF-8, without NUL."
    )


@routes.get("/secrets", dependencies=_RUN, **http.describe_response(answers.SecretList))
def list_secrets(cluster: http.ClusterDep, tenant: http.Owner) -> Response:
    """List a tenant's secrets without their values. No route returns values."""
    secrets = cluster.secrets
    return json_response({"secrets": queries.list_secrets(secrets, tenant), "key": secrets.keys.current})


@routes.put("/secrets/{name}", dependencies=_RUN, **http.describe_response(answers.Secret, body=NewSecret))
async def put_secret(
    request: Request, name: Name, tenant: http.Owner, cluster: http.ClusterDep, principal: http.PrincipalDep
) -> Response:
    """Set the value of a secret for programs. It is stored encrypted, and no route returns it."""
    value = parse_value(await _body(request))
    await run_in_threadpool(cluster.secrets.put, tenant, name, value, principal.actor)
    return json_response(await run_in_threadpool(queries.get_secret, cluster.secrets, tenant, name))


@routes.delete("/secrets/{name}", status_code=204, dependencies=_RUN)
def delete_secret(name: Name, tenant: http.Owner, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Delete a secret. Running programs keep its value."""
    cluster.secrets.remove(tenant, name, principal.actor)
    return Response(status_code=204)


@routes.post("/rotate-secrets", dependencies=_ADMIN, **http.describe_response(answers.Rotated))
def rotate_secrets(cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Encrypt the secrets of all tenants with the first key of SECRETS_KEY, so that you can remove other keys."""
    owners = sorted({DEFAULT_TENANT, *cluster.store.tenants.names()})
    outcome = cluster.secrets.rotate(owners, principal.actor)
    return json_response(
        {"key": cluster.secrets.keys.current, "rotated": outcome.rotated, "unreadable": outcome.unreadable}
    )


async def _body(request: Request) -> Any:
    """Return the parsed body. Error messages never contain parts of the body.

    Raise the errors of `bodies.read_json`.
    """
    try:
        # Each comma within the secret counts as a JSON value.
        async with bodies.open_json(request, bodies.MAX_BODY, 2 * MAX_BYTES) as value:
            return value
    except errors.MalformedBody:
        raise errors.MalformedBody('the body is not JSON; send {"value": TEXT}', field="body") from None


def parse_value(body: Any) -> str:
    """Return the value in a body. If it is invalid, raise InvalidRequest without any part of the body."""
    if not isinstance(body, dict) or set(body) != {"value"}:
        raise errors.InvalidRequest('the body must be {"value": TEXT} without other fields', field="body")
    value = body["value"]
    if not isinstance(value, str) or not value or "\0" in value:
        detail = "value: must be a non-empty text without NUL, which environment variables cannot contain"
        raise errors.InvalidRequest(detail, field="value")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise errors.InvalidRequest("value: must not contain half of a surrogate pair", field="value") from None
    if size > MAX_BYTES:
        raise errors.InvalidRequest(f"value: has {size} bytes in UTF-8; the maximum is {MAX_BYTES}", field="value")
    return value
