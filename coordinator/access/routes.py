"""Routes for logging in and out, and for the current session."""

from __future__ import annotations

import secrets

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from coordinator.access import cookies, queries
from coordinator.access.principal import Principal, Scope
from coordinator.cluster import Cluster
from coordinator.server import bodies, http
from coordinator.server.http import json_response
from jobs import errors
from jobs.store.tenancy import tokens
from threads_protocol.answers import access as answers

routes = http.router(tag="access")
#: Router for login, which needs no authentication.
open_routes = http.open_router()

_ANY_SCOPE = [http.require_scope()]
#: Scopes of users. Login requires a token with at least one of these scopes.
_USER_SCOPES = (Scope.READ, Scope.SUBMIT, Scope.RUN, Scope.INFER, Scope.OPERATE)

#: Maximum size of a login's request body in bytes.
_MAX_LOGIN = 16 << 10


class Login(BaseModel):
    """Body of POST /api/login: a token or a one-time code."""

    model_config = ConfigDict(extra="forbid", strict=True)
    token: str = Field("", max_length=4096)
    code: str = Field("", max_length=100)


@open_routes.post(
    "/api/login", tags=["access"], openapi_extra=http.describe_body(Login), **http.describe_response(answers.LoggedIn)
)
async def login(request: Request, cluster: http.ClusterDep) -> Response:
    """Log in a browser by setting its session cookie. Later requests must also send X-CSRF-Token.

    Plain HTTP is allowed on loopback only.
    """
    cookies.check_transport(request)
    cookies.check_origin(request)
    body: Login = http.parse(Login, await bodies.read_json(request, limit=_MAX_LOGIN))
    principal = await (_by_code(cluster, body.code) if body.code else _by_token(cluster, body.token))
    principal.require(*_USER_SCOPES)
    cookie, csrf = tokens.mint("ts"), secrets.token_urlsafe(32)
    await run_in_threadpool(cluster.store.tokens.log_in, cookie, csrf, principal.actor, principal.bootstrap)
    cluster.credentials.invalidate()
    answer = json_response(
        {
            "csrf_token": csrf,
            "tenant": principal.tenant,
            "scopes": sorted(principal.scopes),
            "seconds": tokens.SESSION_MS // 1000,
        }
    )
    answer.headers["Cache-Control"] = "no-store"
    cookies.put(request, answer, cookie.text)
    return answer


async def _by_token(cluster: Cluster, token: str) -> Principal:
    if not token:
        raise errors.Unauthorized("log in with a token, or with the code of a one-time link", field="token")
    return await cluster.credentials.principal_by_bearer(token)


async def _by_code(cluster: Cluster, code: str) -> Principal:
    token = await run_in_threadpool(cluster.store.tokens.redeem_code, code)
    principal = await cluster.credentials.principal_by_token_id(*token) if token else None
    if principal is None:
        detail = "this link was already used or has expired; log in with a token, or create a new link"
        raise errors.Unauthorized(detail, field="code")
    return principal


@routes.post("/logout", status_code=204, dependencies=_ANY_SCOPE)
async def logout(request: Request, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """End this browser's session and its event streams."""
    if principal.session:
        await run_in_threadpool(cluster.store.tokens.log_out, principal.session, principal.actor)
        cluster.credentials.invalidate()
    answer = Response(status_code=204)
    cookies.remove(request, answer)
    return answer


@routes.get("/session", dependencies=_ANY_SCOPE, **http.describe_response(answers.Session))
def get_session(cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Return the tenant, token and scopes of the request."""
    return json_response(queries.get_session(cluster.store, principal, cluster.credentials.is_token_required))


@routes.post(
    "/login-codes", dependencies=[http.require_scope(*_USER_SCOPES)], **http.describe_response(answers.LoginCode, 201)
)
async def create_login_code(cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Create a one-time link that logs in a browser with the token of this request."""
    if not principal.token:
        detail = "cannot create a login link, because this request has no token; this cluster's pages need no login"
        raise errors.Conflict(detail, field="Authorization")
    code = secrets.token_urlsafe(32)
    await run_in_threadpool(cluster.store.tokens.add_code, code, token=principal.token, bootstrap=principal.bootstrap)
    answer = json_response({"code": code, "path": f"/#login={code}", "seconds": tokens.CODE_SECONDS}, 201)
    answer.headers["Cache-Control"] = "no-store"
    return answer
