"""Routes for hosts: list hosts, install a new host, and exchange an invitation for the tokens of its workers."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request, Response
from fastapi.responses import FileResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from coordinator.access.principal import Scope
from coordinator.hosts import installer, queries
from coordinator.server import bodies, certificates, http, patterns
from coordinator.server.http import json_response
from jobs import VERSION, errors
from threads_protocol.answers import hosts as answers

routes = http.router(tag="cluster")
#: Router for routes without authentication, because a machine calls them before it has a token.
open_routes = http.open_router()

_PEM, _PYTHON, _WHEEL = "application/x-pem-file", "text/x-python", "application/octet-stream"
#: Maximum number of workers per join.
_MOST_WORKERS = 64
WheelName = Annotated[str, Path(pattern=r"^[A-Za-z0-9._+-]{1,128}\.whl$", description="File name of the wheel.")]
HostName = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,64}$", description="Host name.")]


class NewHost(BaseModel):
    """Body of POST /api/join."""

    model_config = ConfigDict(extra="forbid", strict=True)

    host: str = Field(pattern=patterns.HOST, description="Name of the machine, and prefix of its workers' names.")
    workers: list[Annotated[str, Field(pattern=patterns.HOSTS_WORKER)]] = Field(
        min_length=1, max_length=_MOST_WORKERS, description="Workers of the host, such as cpu-1, gpu-1 and runner-1."
    )

    def names(self) -> list[str]:
        """Return the workers' full names, without duplicates."""
        return [f"{self.host}-{worker}" for worker in dict.fromkeys(self.workers)]


@open_routes.get("/api/authority", tags=["cluster"], response_class=Response, responses={200: {"content": {_PEM: {}}}})
def get_authority(cluster: http.ClusterDep) -> Response:
    """Return the certificate of the authority that signed this coordinator's certificate, as PEM.

    If the coordinator has no authority of its own, the response is a 404.
    """
    if not (text := certificates.read_authority(cluster.settings)):
        raise errors.NotFound(
            "TLS_CERTIFICATE of this coordinator is not set or contains no certificate of an authority"
        )
    return Response(text, media_type=_PEM)


@open_routes.get("/join", tags=["cluster"], response_class=Response, responses={200: {"content": {_PYTHON: {}}}})
def get_installer(cluster: http.ClusterDep) -> Response:
    """Return the program that installs this version of the cluster on a new machine and joins it.

    It contains no secrets. `invite` prints its SHA-256 digest. Without an installer, the response is a 404.
    """
    return Response(installer.read(cluster.settings), media_type=_PYTHON, headers={"Cache-Control": "no-cache"})


@open_routes.get("/join/{wheel}", tags=["cluster"], response_class=Response, responses={200: {"content": {_WHEEL: {}}}})
def get_wheel(wheel: WheelName, cluster: http.ClusterDep) -> Response:
    """Return the wheel of this version of the cluster. The installer compares its SHA-256 digest."""
    return FileResponse(installer.find_wheel(cluster.settings, wheel), media_type=_WHEEL)


@routes.get("/hosts", **http.describe_response(answers.HostList))
def list_hosts(cluster: http.ClusterDep) -> Response:
    """List the hosts with their resource usage, including hosts lost within the last hour."""
    return json_response({"hosts": queries.host_list(cluster.queries.fleet.workers())})


@routes.get("/hosts/{host}", **http.describe_response(answers.HostDetail))
def get_host(host: HostName, cluster: http.ClusterDep) -> Response:
    """Return one host with its workers."""
    return json_response(queries.host(cluster.queries.fleet.workers(), host))


@routes.post(
    "/join", dependencies=[http.require_scope(Scope.JOIN)], **http.describe_response(answers.Joined, 201, body=NewHost)
)
async def join_host(request: Request, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Exchange an invitation for a token for each worker of a new host. An invitation is a token with only the scope
    join.

    An invitation can be used once. A repeated call is rejected; ask for a new invitation.
    """
    if principal.scopes != {Scope.JOIN}:
        raise errors.Forbidden(
            "this request needs an invitation, which is a token with only the scope join", field="Authorization"
        )
    asked: NewHost = http.parse(NewHost, await bodies.read_json(request))
    names = asked.names()
    minted = await run_in_threadpool(queries.join, cluster.store.tokens, principal, asked.host, names)
    cluster.credentials.invalidate()
    workers = [{"worker": name, "token": one.text} for name, one in zip(names, minted, strict=True)]
    answer = json_response({"version": VERSION, "workers": workers}, 201)
    answer.headers["Cache-Control"] = "no-store"
    return answer
