"""Validate requests for new services, and build the job that each replica submits."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from coordinator.access.principal import Principal, Scope
from coordinator.cluster import Cluster
from coordinator.jobs import submissions
from coordinator.jobs.references import References
from coordinator.services import memory_estimate
from engines import registry
from engines.contract import Launch, Model
from jobs import errors
from jobs.hosts import requirements
from jobs.kinds.service.parameters import NAME
from jobs.store.services import Service
from threads_protocol.numbers import short

#: Maximum number of replicas of a service.
MAX_REPLICAS = 100
KIND = "service"
#: Names of a replica's job fields in error messages, and the corresponding fields of the service.
_FIELDS = {"parameters.requirements": "requirements", "parameters.files": "model"}


class Autoscale(BaseModel):
    """Limits for the number of replicas, and the target number of requests per replica."""

    model_config = ConfigDict(extra="forbid", strict=True)
    min: int = Field(1, ge=1, le=MAX_REPLICAS, description="Minimum number of replicas while the service is awake.")
    max: int = Field(ge=1, le=MAX_REPLICAS, description="Maximum number of replicas.")
    target: float = Field(
        4,
        ge=0.1,
        le=10_000,
        allow_inf_nan=False,
        description="Target number of requests per replica, including waiting ones.",
    )


class NewService(BaseModel):
    """The body of POST /api/services."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: str = Field(pattern=NAME, description="1 to 63 of a-z, 0-9 and -. Clients use it as the model's name.")
    engine: str = Field(
        "",
        pattern=f"{NAME}|^$",
        description="An engine in docs/services.md. The default depends on the model's files.",
    )
    model: str | None = Field(None, max_length=64, description="ID or name of an artifact. Each replica has its files.")
    replicas: int | None = Field(
        None, ge=0, le=MAX_REPLICAS, description="Number of replicas. The default is autoscale.min, else 1."
    )
    parameters: dict[str, Any] = Field(default_factory=dict, description="Parameters of the engine.")
    requirements: dict[str, Any] = Field(
        default_factory=dict, description="Requirements of a replica, as for programs."
    )
    max_concurrent_requests: int = Field(
        100, ge=1, le=10_000, description="Maximum concurrent requests per coordinator. As many more can wait."
    )
    request_timeout_seconds: float = Field(
        300, ge=1, le=3600, description="Time limit of a request with waiting, and drain time of a replica."
    )
    start_timeout_seconds: float = Field(
        600, ge=1, le=7200, description="A replica that is not ready after this time is stopped."
    )
    idle_seconds: float | None = Field(
        None,
        ge=5,
        le=2_592_000,
        allow_inf_nan=False,
        description="Replicas stop after this time without requests. The next request starts a replica.",
    )
    autoscale: Autoscale | None = Field(None, description="Scale by load, starting with `replicas`.")
    priority: str = Field("normal", description="high, normal or low, as for jobs.")
    force: bool = Field(False, description="Allow weights that are larger than each runner's memory.")


def plan_service(cluster: Cluster, asked: NewService, principal: Principal) -> Service:
    """Validate a request, and return the new service. Errors name the invalid field.

    Raises Forbidden if the principal has no permission to run programs.
    """
    model = model_of(cluster, asked.model, asked.name, principal)
    engine, replicas = asked.engine or registry.select_engine(model, _gpus(asked)), _replicas(asked)
    asked = asked.model_copy(update={"replicas": replicas, "engine": engine})
    _check_scaling(asked)
    parameters = _engines_parameters(asked)
    launch = registry.definition(asked.engine).launch(parameters, model, _gpus(asked))
    if launch.runs_models_code:
        principal.require(Scope.OPERATE)
    job = {"type": KIND, "priority": asked.priority, "parameters": _parameters(asked, launch)}
    artifact = _validate_replica(cluster, job, principal)
    noted = asked.model_dump(exclude={"force"}) | {
        "memory": _memory(cluster, asked, parameters, model),
        "abilities": asdict(registry.abilities(asked.engine, parameters, model)),
    }
    return Service(
        service_id=secrets.token_hex(6),
        tenant=principal.tenant,
        name=asked.name,
        engine=asked.engine,
        token=principal.token,
        job=json.dumps(_pin_artifact(job, artifact)),
        asked=json.dumps(noted),
        artifact=artifact,
        replicas=replicas,
    )


def _check_scaling(asked: NewService) -> None:
    load = asked.autoscale
    if load and load.max < load.min:
        detail = f"autoscale.max: must be at least autoscale.min, {load.min}; got {load.max}"
        raise errors.InvalidRequest(detail, field="autoscale.max")
    if load:
        check_between(load.min, _replicas(asked), load.max)
    for field in ("idle_seconds", "autoscale"):
        if getattr(asked, field) is not None and registry.definition(asked.engine).ROUTES != "openai":
            detail = f"{field}: the cluster does not forward requests to the engine {asked.engine}; omit this field"
            raise errors.InvalidRequest(detail, field=field)


def _replicas(asked: NewService) -> int:
    """Return the initial number of replicas."""
    first = asked.autoscale.min if asked.autoscale else 1
    return first if asked.replicas is None else asked.replicas


def check_between(least: int, replicas: int, most: int) -> None:
    """Raise InvalidRequest if a number of replicas is outside the autoscaling limits."""
    if not least <= replicas <= most:
        detail = f"replicas: must be {least} to {most}, the limits of autoscaling; got {replicas}"
        raise errors.InvalidRequest(detail, field="replicas")


def _engines_parameters(asked: NewService) -> BaseModel:
    engine = registry.definition(asked.engine)
    return submissions.validate(engine.Parameters, asked.parameters, "parameters")


def _gpus(asked: NewService) -> int:
    """Return the number of GPUs per replica. Returns 0 for an invalid value, which a later check rejects."""
    try:
        return max(0, requirements.gpus_needed(asked.requirements))
    except (TypeError, ValueError, OverflowError):
        return 0


def _memory(
    cluster: Cluster, asked: NewService, parameters: BaseModel, model: Model | None
) -> memory_estimate.Judged | None:
    """Return the memory estimate for a replica, or None if the engine does not estimate memory."""
    need = registry.need(asked.engine)
    if need is None or model is None:
        return None
    runners = cluster.queries.fleet_cache.get().runners
    return memory_estimate.judged(need(parameters, model, _gpus(asked)), asked.requirements, runners, force=asked.force)


def model_of(cluster: Cluster, known_as: str | None, name: str, principal: Principal) -> Model | None:
    """Return the model's files for the engine, or None without a model. Errors name the field `model`."""
    if known_as is None:
        return None
    try:
        artifact = cluster.artifacts.find(principal.tenant, known_as)
    except (errors.NotFound, errors.Conflict) as error:
        raise type(error)(f"model: {error.detail}", field="model") from None
    entries = cluster.artifacts.entries(principal.tenant, artifact)
    files = {entry.path: entry for entry in entries if entry.is_file}

    def head(path: str, most: int) -> bytes:
        transfers, entry = cluster.artifacts.transfers, files[path]
        try:
            file = transfers.find(principal.tenant, entry.sha)
            return b"".join(transfers.read(principal.tenant, entry.sha, file, 0, min(most, entry.size)))
        except errors.ClusterError:  # the replica reports this error; the header is only needed for an estimate
            return b""

    sizes = {path: entry.size for path, entry in files.items()}
    return Model(artifact=artifact.id, name=name, files=sizes, head=head)


def _parameters(asked: NewService, launch: Launch) -> dict[str, Any]:
    return {
        "group": launch.group,
        "service": asked.name,
        "engine": asked.engine,
        "command": list(launch.command),
        "env": dict(launch.env),
        "files": asked.model,
        "packages": launch.packages or None,
        "module": launch.module or None,
        "health": launch.health,
        "start_timeout_seconds": asked.start_timeout_seconds,
        "grace_seconds": launch.grace_seconds,
        "requirements": asked.requirements,
    }


def _validate_replica(cluster: Cluster, job: dict[str, Any], principal: Principal) -> str:
    """Validate the job of a replica like a submission, and return its artifact ID, or an empty string."""
    references = References(principal, cluster.artifacts, cluster.secrets, leads=True)
    fleet = cluster.queries.fleet_cache.get()
    try:
        accepted = submissions.accept(submissions.parse_submission(job), principal, fleet, cluster.settings, references)
    except errors.ClusterError as error:
        for theirs, ours in _FIELDS.items():
            if error.field and error.field.startswith(theirs):
                error.field = ours + error.field.removeprefix(theirs)
                error.detail = error.detail.replace(theirs, ours)
        raise
    return next(iter(accepted.job.plan.artifacts), "")


def _pin_artifact(job: dict[str, Any], artifact: str) -> dict[str, Any]:
    """Replace an artifact's name in a submission by its ID, because the name can point to another artifact later."""
    return {**job, "parameters": {**job["parameters"], "files": artifact or None}}


def refusal(how: str, what: str) -> errors.ClusterError | None:
    """Return the error for a service that was not stored, or None."""
    if how == "exists":
        detail = f"name: service {what} already exists; choose another name, or: cluster service delete {what}"
        return errors.Conflict(detail, field="name")
    if how == "full":
        detail = f"name: the tenant has {what} services, which is the maximum; delete one"
        return errors.Conflict(detail, field="name")
    if how == "missing":
        return errors.UnknownTenant(what)
    if how == "artifact":
        return errors.NotFound(f"model: artifact {short(what)} was deleted; upload it again", field="model")
    return None
