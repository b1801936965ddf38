"""Routes of profiles (telemetry recordings)."""

from __future__ import annotations

import contextlib
import secrets
from typing import Annotated

from fastapi import Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from coordinator.access.principal import Principal, Scope
from coordinator.cluster import Cluster
from coordinator.fleet import hosts as fleet_hosts
from coordinator.profiles import queries
from coordinator.server import bodies, http, patterns
from coordinator.server.http import json_response
from jobs import errors
from jobs.store.profiles import (
    DEFAULT_HZ,
    DEFAULT_SECONDS,
    MAX_COLLECTED,
    MAX_HOSTS,
    MAX_HZ,
    MAX_SECONDS,
    NAME,
    Profile,
)
from threads_protocol.answers import profiles as answers

routes = http.router(tag="fleet")

_SUBMIT = [http.require_scope(Scope.SUBMIT)]
Name = Annotated[str, Path(pattern=NAME, description="A profile's name.")]
Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


class NewProfile(BaseModel):
    """The body of POST /api/profiles."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: str = Field(pattern=NAME, description="At most 56 of a-z, 0-9, . _ and -. Unique within the tenant.")
    hz: int = Field(DEFAULT_HZ, ge=1, le=MAX_HZ, description="Samples per second.")
    seconds: int = Field(DEFAULT_SECONDS, ge=1, le=MAX_SECONDS, description="Maximum duration in seconds.")
    hosts: list[Host] = Field(
        default_factory=list, max_length=MAX_HOSTS, description="Hosts to record. Empty: all hosts."
    )
    job_id: str | None = Field(None, pattern=patterns.JOB_ID, description="The profile stops when this job finishes.")


@routes.get("/profiles", **http.describe_response(answers.ProfileList))
def list_profiles(cluster: http.ClusterDep, tenant: http.Owner) -> Response:
    """List a tenant's profiles."""
    return json_response({"profiles": queries.profile_list(cluster.store, tenant)})


@routes.post("/profiles", dependencies=_SUBMIT, **http.describe_response(answers.Profile, 201, body=NewProfile))
async def start_profile(request: Request, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Start recording telemetry of hosts and devices. The profile stops on request or after its maximum duration."""
    asked = http.parse(NewProfile, await bodies.read_json(request))
    return json_response(await run_in_threadpool(_start, cluster, asked, principal), 201)


def _start(cluster: Cluster, asked: NewProfile, principal: Principal) -> answers.Profile:
    _ = cluster.artifacts.transfers  # raises MissingSetting without artifact storage
    _check_hosts(cluster, asked.hosts)
    _check_job(cluster, asked.job_id, principal)
    profile = Profile(
        profile_id=secrets.token_hex(8),
        tenant=principal.tenant,
        name=asked.name,
        actor=principal.actor,
        state="recording",
        hz=asked.hz,
        hosts=tuple(dict.fromkeys(asked.hosts)),
        job=asked.job_id or "",
        created=0,
        until=0,
        ended=0,
        collecting=0,
        artifact="",
        trouble="",
    )
    how, what = cluster.store.profiles.start(profile, asked.seconds)
    if how != "new":
        raise _refusal(how, what)
    return queries.find_row(cluster.store, principal.tenant, asked.name)


def _refusal(how: str, what: str) -> errors.ClusterError:
    if how == "exists":
        detail = f"name: profile {what} already exists; delete it first, or choose another name"
        return errors.Conflict(detail, field="name")
    if how == "full":
        detail = f"name: the tenant has {what} profiles, which is the maximum; delete one"
        return errors.Conflict(detail, field="name")
    if how == "missing":
        return errors.UnknownTenant(what)
    whose = "the tenant has" if how == "own" else "the cluster has"
    detail = f"name: {whose} {what} active profiles, which is the maximum; stop one first"
    return errors.Conflict(detail, field="name")


def _check_hosts(cluster: Cluster, hosts: list[str]) -> None:
    workers = cluster.queries.fleet.workers() if hosts else []
    for host in hosts:
        fleet_hosts.require(workers, host, "hosts")


def _check_job(cluster: Cluster, job_id: str | None, principal: Principal) -> None:
    if job_id is None:
        return
    [state] = cluster.queries.jobs.states([job_id], principal.only_tenant)
    if state is None:
        raise errors.NotFound(f"job_id: job {job_id} does not exist; list jobs with GET /api/jobs", field="job_id")
    if state in ("done", "failed", "cancelled", "skipped"):
        raise errors.Conflict(f"job_id: job {job_id} has already finished; its state is {state}", field="job_id")


@routes.get("/profiles/{name}", **http.describe_response(answers.Profile))
def get_profile(name: Name, cluster: http.ClusterDep, tenant: http.Owner) -> Response:
    """Return a profile with the progress of its recordings."""
    return json_response(queries.find_row(cluster.store, tenant, name))


@routes.post("/profiles/{name}/stop", dependencies=_SUBMIT, **http.describe_response(answers.Profile))
def stop_profile(name: Name, cluster: http.ClusterDep, tenant: http.Owner, principal: http.PrincipalDep) -> Response:
    """Stop recording, and store the recordings as an artifact. Repeating the call has no effect."""
    cluster.store.profiles.stop(queries.find(cluster.store, tenant, name).profile_id, principal.actor)
    return json_response(queries.find_row(cluster.store, tenant, name))


@routes.post("/profiles/{name}/recover", dependencies=_SUBMIT, **http.describe_response(answers.Profile))
def recover_profile(name: Name, cluster: http.ClusterDep, tenant: http.Owner, principal: http.PrincipalDep) -> Response:
    """Collect a finished profile's recordings again, for example from workers that were unreachable at its end."""
    profile = queries.find(cluster.store, tenant, name)
    if profile.state == "recording":
        raise errors.Conflict(f"name: profile {name} is still recording; stop it first", field="name")
    if not cluster.store.profiles.recover(profile.profile_id, principal.actor):
        detail = f"name: {MAX_COLLECTED} profiles are being collected, which is the maximum; try again in a minute"
        raise errors.Conflict(detail, field="name")
    return json_response(queries.find_row(cluster.store, tenant, name))


@routes.delete("/profiles/{name}", status_code=204, dependencies=_SUBMIT)
def delete_profile(name: Name, cluster: http.ClusterDep, tenant: http.Owner, principal: http.PrincipalDep) -> Response:
    """Delete a profile and its artifact. An active profile stops, and its recordings are discarded."""
    deleted = cluster.store.profiles.delete(tenant, name, principal.actor)
    if deleted is None:
        raise errors.missing("profile", name, "name")
    if artifact := deleted[1]:
        with contextlib.suppress(errors.NotFound, errors.Conflict):  # the artifact was deleted, or a job uses it
            cluster.artifacts.delete(tenant, artifact, principal.actor)
    return Response(status_code=204)
