"""vLLM's server: weights in safetensors, divided over the GPUs that a replica has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from engines import memory, safetensors
from engines.contract import Abilities, Launch, Model
from engines.texts import PACKAGES, server_command, text
from jobs import errors

SUMMARY = "Weights in safetensors, on GPUs."
ROUTES: Literal["openai", "http"] = "openai"
LARGE = True

_NAME = "vllm"
#: Suffixes of the names of architectures that generate text.
_GENERATING = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
#: Nothing is fetched and nothing is told while it runs.
_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


class Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    folder: str | None = Field(
        None, min_length=1, max_length=1024, description="The folder of the weights, where the artifact has several."
    )
    context: int | None = Field(
        None, ge=16, le=1 << 22, description="Tokens of prompt and answer together; unless given, the model's own."
    )
    parallel: int | None = Field(None, ge=1, le=65_536, description="Requests that are computed at once at most.")
    dtype: Literal["auto", "half", "float16", "bfloat16", "float", "float32"] = Field(
        "auto", description="Numbers with which it computes; auto: those of the weights, 16 bits where they have 32."
    )
    tensor_parallel: int | None = Field(
        None, ge=1, le=64, description="GPUs over which each layer is divided; unless given, all that are left."
    )
    pipeline_parallel: int = Field(1, ge=1, le=64, description="Groups of GPUs over which the layers are divided.")
    gpu_memory_utilization: float = Field(
        0.9, ge=0.05, le=1, allow_inf_nan=False, description="Share of each GPU's memory that it takes."
    )
    trust_remote_code: bool = Field(
        False, description="Run code that the model brings; whoever serves it needs the scope operate."
    )


def launch(parameters: Any, model: Model | None, gpus: int) -> Launch:
    """Return how a server of one folder of weights is started."""
    place = safetensors.folder("vllm", parameters.folder, model)
    options = {
        "--model": place,
        "--served-model-name": model.name if model else place,
        "--tensor-parallel-size": _tensor_parallel(parameters, gpus),
        "--pipeline-parallel-size": parameters.pipeline_parallel,
        "--dtype": parameters.dtype,
        "--gpu-memory-utilization": f"{parameters.gpu_memory_utilization:g}",
        "--load-format": "safetensors",
        "--max-model-len": parameters.context,
        "--max-num-seqs": parameters.parallel,
        "--trust-remote-code": parameters.trust_remote_code,
    }
    return Launch(
        command=server_command(_NAME, options),
        env=_ENVIRONMENT,
        packages=text(_NAME, PACKAGES),
        module="vllm",
        grace_seconds=20.0,
        runs_models_code=parameters.trust_remote_code,
    )


def abilities(parameters: Any, model: Model) -> Abilities:
    """Return the abilities of a server of one folder of weights. The calls that it supports depend on the model."""
    known = safetensors.config(safetensors.folder("vllm", parameters.folder, model), model)
    return Abilities(
        context_length=parameters.context or memory.context_of_config(known) or None,
        capabilities=("completion",) if _generates(known) else None,
    )


def _generates(known: Mapping[str, Any]) -> bool:
    """Return True if the name of a model's architecture is one of those that generate text."""
    named = known.get("architectures")
    names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    return any(name.endswith(_GENERATING) for name in names)


def need(parameters: Any, model: Model, gpus: int) -> memory.Need:
    """Return the memory for weights and one request of the longest length; what is left is for more."""
    place = safetensors.folder("vllm", parameters.folder, model)
    known = safetensors.config(place, model)
    tokens = parameters.context or memory.context_of_config(known)
    weights = safetensors.computed_bytes(safetensors.weights(place, model), known, parameters.dtype)
    share = parameters.gpu_memory_utilization
    return memory.Need(weights=weights, cache=memory.of_config(known), tokens=tokens, where="gpus", share=share)


def _tensor_parallel(parameters: Any, gpus: int) -> int:
    """Return over how many GPUs each layer is divided. InvalidRequest where that is not all that there are."""
    pipeline = parameters.pipeline_parallel
    if not gpus:
        raise errors.InvalidRequest(
            "requirements.gpus: vllm computes on GPUs; say how many each replica has", field="requirements.gpus"
        )
    if parameters.tensor_parallel is None and gpus % pipeline:
        detail = f"parameters.pipeline_parallel: {gpus} GPUs cannot be divided into {pipeline} groups"
        raise errors.InvalidRequest(detail, field="parameters.pipeline_parallel")
    tensor = int(parameters.tensor_parallel or gpus // pipeline)
    if tensor * pipeline != gpus:
        detail = (
            f"parameters.tensor_parallel: {tensor} x {pipeline} (pipeline_parallel) are {tensor * pipeline} GPUs, and "
            f"requirements.gpus is {gpus}"
        )
        raise errors.InvalidRequest(detail, field="parameters.tensor_parallel")
    return tensor
