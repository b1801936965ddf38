"""Routes that manage services as deployments of language models, with the paths and field names of other systems."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from coordinator.access.principal import Principal, Scope
from coordinator.cluster import Cluster
from coordinator.server import bodies, http
from coordinator.server.http import json_response
from coordinator.services import creation, queries, routes
from coordinator.services.creation import MAX_REPLICAS, NewService
from coordinator.services.gateway.gateway import Question, WholeAnswer, question
from coordinator.services.gateway.openai import BadUpstream
from coordinator.services.gateway_routes import MAX_BODY, pass_on
from coordinator.services.routes import Scale
from engines import calls, registry
from jobs import errors
from jobs.kinds.service.parameters import NAME
from threads_protocol import hub
from threads_protocol.answers import services as answers
from threads_protocol.numbers import short

routes_of_llm = http.router()

_RUN, _INFER = [http.require_scope(Scope.RUN)], [http.require_scope(Scope.INFER)]
#: Data types of weights by their names in other systems. GGUF engines use the data type in the file.
_DTYPES = {
    "fp16": "float16",
    "float16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp32": "float32",
    "float32": "float32",
    "float": "float32",
    "auto": "auto",
}
_MEBIBYTES = {"MB": 1, "MIB": 1, "GB": 1024, "GIB": 1024}
_MEMORY = re.compile(r"([1-9][0-9]{0,5})\s*(MB|MIB|GB|GIB)", re.IGNORECASE)
#: Maximum number of JSON values in an engine's response.
_MOST_VALUES = 20_000
_OTHERS = re.compile(r"[^a-z0-9]+")
Deployment = Annotated[str, Path(pattern=NAME, description="ID of a deployment, which is the name of its service.")]


class NewDeployment(BaseModel):
    """The body of POST /api/llm/models/deploy."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())
    model_name: str = Field(
        min_length=1,
        max_length=256,
        description="ID or name of the model's artifact, or ORG/REPO[/FILE] of a model downloaded from Hugging Face.",
    )
    model_size: str | None = Field(None, max_length=32, description="For display only. The file determines the size.")
    precision: str | None = Field(
        None, max_length=32, description="fp16, bf16, fp32 or auto. For GGUF files, for display only."
    )
    gpu_per_replica: int = Field(0, ge=0, le=64, description="Number of GPUs per replica.")
    sharding_strategy: Literal["tensor_parallel", "pipeline_parallel"] | None = Field(
        None,
        description="How vLLM splits a model across a replica's GPUs. Other engines ignore it.",
    )
    max_memory_per_gpu: str | None = Field(None, max_length=16, description="Required memory per GPU, such as 12GB.")
    batch_size: int | None = Field(None, ge=1, le=256, description="Maximum concurrent requests per replica.")
    max_sequence_length: int | None = Field(
        None, ge=16, le=1 << 22, description="Maximum number of tokens of prompt and answer together."
    )
    replicas: int = Field(1, ge=0, le=MAX_REPLICAS, description="Number of replicas.")


class Prompt(BaseModel):
    """The body of POST /api/llm/models/{deployment}/inference."""

    model_config = ConfigDict(extra="forbid", strict=True)
    prompt: str = Field(min_length=1, max_length=4 << 20, description="Text to continue.")
    max_tokens: int = Field(200, ge=1, le=1 << 22, description="Maximum number of tokens of the answer.")
    temperature: float = Field(0.2, ge=0, le=100, allow_inf_nan=False)
    stop_sequences: list[str] = Field(
        default_factory=list, max_length=16, description="Texts at which the answer stops."
    )


@routes_of_llm.get("/llm/models", tags=["services"], **http.describe_response(answers.ServiceList))
async def list_deployments(request: Request, cluster: http.ClusterDep, tenant: http.Owner) -> Response:
    """List the services of a tenant, like GET /api/services."""
    return await routes.list_services(request, cluster, tenant)


@routes_of_llm.post(
    "/llm/models/deploy",
    tags=["services"],
    dependencies=_RUN,
    **http.describe_response(answers.Deployed, 202, body=NewDeployment),
)
async def deploy_model(request: Request, cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Serve a model, like POST /api/services."""
    asked = http.parse(NewDeployment, await bodies.read_json(request))
    return json_response(await run_in_threadpool(_deployed, cluster, asked, principal), 202)


def _deployed(cluster: Cluster, asked: NewDeployment, principal: Principal) -> dict[str, str]:
    name, memory = _name(asked), _memory(asked)
    asked = asked.model_copy(update={"model_name": _stored_name(cluster, principal.tenant, asked.model_name)})
    model = creation.model_of(cluster, asked.model_name, name, principal)
    wanted = _service(asked, name, registry.select_engine(model, asked.gpu_per_replica), memory)
    service = creation.plan_service(cluster, wanted, principal)
    noted = json.dumps({**json.loads(service.asked), "deployment": asked.model_dump()})
    if refused := creation.refusal(*cluster.store.services.add(replace(service, asked=noted), principal.actor)):
        raise refused
    row = queries.one(cluster.store, cluster.queries.jobs, principal.tenant, wanted.name)
    return {"deployment_id": wanted.name, "status": row["state"]}


def _stored_name(cluster: Cluster, tenant: str, model: str) -> str:
    """Return the name of a downloaded model of Hugging Face. Names of other models are returned unchanged.

    Raises NotFound, which contains the download command, if the cluster has not downloaded the model.
    """
    if not hub.is_model(model):
        return model
    name = hub.stored_name(model)
    known = cluster.models.get_or_none(tenant, name)
    if known and known.weights and known.source == f"{hub.SCHEME}{model}":
        return name
    raise errors.NotFound(
        f"model_name: the cluster has not downloaded {model}; download it first with "
        f"cluster model download {name} --source {hub.SCHEME}{model} --wait, or in Python with download=True",
        field="model_name",
    )


def _name(asked: NewDeployment) -> str:
    """Return the service name of a deployment. Raises InvalidRequest if the model's name has no usable characters."""
    name = _OTHERS.sub("-", asked.model_name.lower())[:63].strip("-")
    if not name:
        raise errors.InvalidRequest(
            f"model_name: must contain a letter or a digit; got {short(asked.model_name)}", field="model_name"
        )
    return name


def _service(asked: NewDeployment, name: str, engine: str, memory: int | None) -> NewService:
    """Convert a deployment to a service."""
    parameters: dict[str, Any] = {"context": asked.max_sequence_length, "parallel": asked.batch_size}
    if engine != "llamacpp":
        parameters["dtype"] = _dtype(asked)
    if engine == "vllm" and asked.sharding_strategy:
        parameters[asked.sharding_strategy] = asked.gpu_per_replica
    requirements = {"gpus": asked.gpu_per_replica or None, "gpu_memory_mib": memory}
    return NewService.model_validate(
        {
            "name": name,
            "engine": engine,
            "model": asked.model_name,
            "replicas": asked.replicas,
            "parameters": _given(parameters),
            "requirements": _given(requirements),
        }
    )


def _dtype(asked: NewDeployment) -> str | None:
    """Return the data type for the engine. Raises InvalidRequest if the precision is unknown."""
    if asked.precision is not None and asked.precision.lower() not in _DTYPES:
        detail = f"precision: must be one of {', '.join(_DTYPES)}; got {short(asked.precision)}"
        raise errors.InvalidRequest(detail, field="precision")
    return asked.precision and _DTYPES[asked.precision.lower()]


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _memory(asked: NewDeployment) -> int | None:
    """Return the memory per GPU in MiB. Raises InvalidRequest for an invalid size, or if the deployment has no GPUs."""
    text = asked.max_memory_per_gpu
    if text is None:
        return None
    found = _MEMORY.fullmatch(text.strip())
    if found is None or not asked.gpu_per_replica:
        why = "needs gpu_per_replica" if found else "must be a size such as 12GB"
        raise errors.InvalidRequest(f"max_memory_per_gpu: {why}; got {short(text)}", field="max_memory_per_gpu")
    return int(found[1]) * _MEBIBYTES[found[2].upper()]


@routes_of_llm.post(
    "/llm/models/{deployment}/inference",
    tags=["inference"],
    dependencies=_INFER,
    **http.describe_response(answers.InferredText, body=Prompt),
)
async def infer_text(
    request: Request, deployment: Deployment, principal: http.PrincipalDep, _cluster: http.ClusterDep
) -> Response:
    """Let a model continue a text, like POST /v1/completions."""
    answer = await pass_on(request, principal.tenant, lambda: _question(request, principal, deployment))
    try:
        return json_response({**_text(bytes(answer.body), answer.status_code), "deployment_id": deployment})
    finally:
        if isinstance(answer, WholeAnswer):
            await answer.let_go()


async def _question(request: Request, principal: Principal, deployment: str) -> Question:
    asked: Prompt = http.parse(Prompt, await bodies.read_json(request, limit=MAX_BODY))
    body: dict[str, Any] = {
        "model": deployment,
        "prompt": asked.prompt,
        "max_tokens": asked.max_tokens,
        "temperature": asked.temperature,
    }
    if asked.stop_sequences:
        body["stop"] = asked.stop_sequences
    return question(principal.tenant, calls.COMPLETIONS, body)


def _text(content: bytes, status: int) -> dict[str, Any]:
    """Return text and token counts of an engine's response.

    Raises InvalidRequest if the engine rejected the request, and BadUpstream if the response is invalid.
    """
    try:
        answer = bodies.parse_json(content, _MOST_VALUES)
        if status >= http.FIRST_ERROR:
            raise errors.InvalidRequest(f"the engine returned HTTP {status}: {str(answer['error']['message'])[:500]}")
        return {"text": str(answer["choices"][0]["text"]), "usage": dict(answer.get("usage") or {})}
    except (ValueError, KeyError, IndexError, TypeError, errors.MalformedBody, errors.TooLarge):
        raise BadUpstream(f"the engine returned HTTP {status} without text") from None


@routes_of_llm.post(
    "/llm/models/{deployment}/scale",
    tags=["services"],
    dependencies=_RUN,
    **http.describe_response(answers.Service, body=Scale),
)
async def scale_deployment(
    request: Request, deployment: Deployment, cluster: http.ClusterDep, tenant: http.Owner, principal: http.PrincipalDep
) -> Response:
    """Change the number of replicas."""
    return await routes.scale_service(request, deployment, cluster, tenant, principal)


@routes_of_llm.post(
    "/llm/models/{deployment}/restart", tags=["services"], dependencies=_RUN, **http.describe_response(answers.Service)
)
def restart_deployment(
    deployment: Deployment, cluster: http.ClusterDep, tenant: http.Owner, principal: http.PrincipalDep
) -> Response:
    """Replace all replicas, one after the other."""
    return routes.restart_service(deployment, cluster, tenant, principal)


@routes_of_llm.post(
    "/llm/models/{deployment}/stop", tags=["services"], dependencies=_RUN, **http.describe_response(answers.Service)
)
def stop_deployment(
    deployment: Deployment, cluster: http.ClusterDep, tenant: http.Owner, principal: http.PrincipalDep
) -> Response:
    """Stop all replicas until the deployment is scaled or restarted."""
    return routes.stop_service(deployment, cluster, tenant, principal)
