"""Routes with which a browser logs in and out, and that say who asks."""

from __future__ import annotations

import secrets

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from coordinator.access import cookies, queries
from coordinator.access.principal import Principal, Scope
from coordinator.cluster import Cluster
from coordinator.server import bodies, http
from coordinator.server.http import shown
from jobs import errors
from jobs.store.tenancy import tokens
from threads_protocol.answers import access as answers

routes = http.router(tag="access")
#: Logging in is how one becomes known.
open_routes = http.open_router()

_ANYBODY = [http.needs()]
#: Scopes of people, one of which a login needs. Tokens of workers and invitations have none of these.
_PEOPLE = (Scope.READ, Scope.SUBMIT, Scope.RUN, Scope.INFER, Scope.OPERATE)

#: Bytes of a login, which is read of strangers: so few that it takes no room from others' bodies.
_MAX_LOGIN = 16 << 10


class Login(BaseModel):
    """The body of POST /api/login: a token, or a one-time code."""

    model_config = ConfigDict(extra="forbid", strict=True)
    token: str = Field("", max_length=4096)
    code: str = Field("", max_length=100)


@open_routes.post("/api/login", tags=["access"], openapi_extra=http.describes(Login), **http.answers(answers.LoggedIn))
async def login(request: Request, cluster: http.ClusterDep) -> Response:
    """Log a browser in: sets its cookie, which counts with X-CSRF-Token only. Plain HTTP is for loopback alone."""
    cookies.check_transport(request)
    cookies.check_origin(request)
    asked: Login = http.parsed(Login, await bodies.body(request, limit=_MAX_LOGIN))
    principal = await (_by_code(cluster, asked.code) if asked.code else _by_token(cluster, asked.token))
    principal.require(*_PEOPLE)
    cookie, csrf = tokens.mint("ts"), secrets.token_urlsafe(32)
    await run_in_threadpool(cluster.store.tokens.log_in, cookie, csrf, principal.actor, principal.bootstrap)
    cluster.credentials.forget()
    answer = shown(
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
    return await cluster.credentials.principal(token)


async def _by_code(cluster: Cluster, code: str) -> Principal:
    stood_for = await run_in_threadpool(cluster.store.tokens.redeem_code, code)
    principal = await cluster.credentials.bearer(*stood_for) if stood_for else None
    if principal is None:
        detail = "this link was used, or is too old; log in with a token, or make a new link"
        raise errors.Unauthorized(detail, field="code")
    return principal


@routes.post("/logout", status_code=204, dependencies=_ANYBODY)
async def logout(request: Request, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """End this browser's login, and the streams of events that it opened."""
    if principal.session:
        await run_in_threadpool(cluster.store.tokens.log_out, principal.session, principal.actor)
        cluster.credentials.forget()
    answer = Response(status_code=204)
    cookies.remove(request, answer)
    return answer


@routes.get("/session", dependencies=_ANYBODY, **http.answers(answers.Session))
def get_session(cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Who asks: tenant, token and scopes."""
    return shown(queries.session(cluster.store, principal, cluster.credentials.needed))


@routes.post("/login-codes", dependencies=[http.needs(*_PEOPLE)], **http.answers(answers.LoginCode, 201))
async def create_login_code(cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Make a one-time link with which a browser logs in as who asks."""
    if not principal.token:
        detail = "without a token there is nobody to log in as; the pages need no login here"
        raise errors.Conflict(detail, field="Authorization")
    code = secrets.token_urlsafe(32)
    await run_in_threadpool(cluster.store.tokens.add_code, code, token=principal.token, bootstrap=principal.bootstrap)
    answer = shown({"code": code, "path": f"/#login={code}", "seconds": tokens.CODE_SECONDS}, 201)
    answer.headers["Cache-Control"] = "no-store"
    return answer
