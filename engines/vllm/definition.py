"""Definition of the engine for vLLM. A replica can use several GPUs."""

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
#: Ends of the names of model architectures that generate text.
_GENERATING = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
#: Environment variables that disable downloads and telemetry.
_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


class Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    folder: str | None = Field(
        None, min_length=1, max_length=1024, description="Folder with the weights if the artifact has several."
    )
    context: int | None = Field(
        None, ge=16, le=1 << 22, description="Tokens of prompt and answer together; default: the model's maximum."
    )
    parallel: int | None = Field(None, ge=1, le=65_536, description="Maximum number of concurrent requests.")
    dtype: Literal["auto", "half", "float16", "bfloat16", "float", "float32"] = Field(
        "auto",
        description="Number format for computations; auto: the format of the weights, but 16 bits instead of 32.",
    )
    tensor_parallel: int | None = Field(
        None, ge=1, le=64, description="Number of GPUs that share each layer; default: gpus / pipeline_parallel."
    )
    pipeline_parallel: int = Field(1, ge=1, le=64, description="Number of GPU groups that share the layers.")
    gpu_memory_utilization: float = Field(
        0.9, ge=0.05, le=1, allow_inf_nan=False, description="Share of each GPU's memory that vLLM uses."
    )
    trust_remote_code: bool = Field(
        False, description="Run code from the model's artifact, which requires the scope operate."
    )


def launch(parameters: Any, model: Model | None, gpus: int) -> Launch:
    """Return the command that starts a vLLM server for a folder of weights."""
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
    """Return the abilities of a vLLM server. The supported calls depend on the model."""
    known = safetensors.config(safetensors.folder("vllm", parameters.folder, model), model)
    return Abilities(
        context_length=parameters.context or memory.context_from_config(known) or None,
        capabilities=("completion",) if _generates(known) else None,
    )


def _generates(known: Mapping[str, Any]) -> bool:
    """Return True if the name of a model's architecture means that the model generates text."""
    named = known.get("architectures")
    names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    return any(name.endswith(_GENERATING) for name in names)


def need(parameters: Any, model: Model, gpus: int) -> memory.Need:
    """Return the memory that a replica needs for the weights and for one request of maximum length.

    The remaining memory serves further requests.
    """
    place = safetensors.folder("vllm", parameters.folder, model)
    known = safetensors.config(place, model)
    tokens = parameters.context or memory.context_from_config(known)
    weights = safetensors.computed_bytes(safetensors.weights(place, model), known, parameters.dtype)
    share = parameters.gpu_memory_utilization
    return memory.Need(weights=weights, cache=memory.cache_from_config(known), tokens=tokens, where="gpus", share=share)


def _tensor_parallel(parameters: Any, gpus: int) -> int:
    """Return the number of GPUs that share each layer. Raises InvalidRequest if some GPUs would remain unused."""
    pipeline = parameters.pipeline_parallel
    if not gpus:
        raise errors.InvalidRequest(
            "requirements.gpus: is required, because the engine vllm runs only on GPUs", field="requirements.gpus"
        )
    if parameters.tensor_parallel is None and gpus % pipeline:
        detail = f"parameters.pipeline_parallel: {gpus} GPUs cannot be divided into {pipeline} groups"
        raise errors.InvalidRequest(detail, field="parameters.pipeline_parallel")
    tensor = int(parameters.tensor_parallel or gpus // pipeline)
    if tensor * pipeline != gpus:
        detail = (
            f"parameters.tensor_parallel: {tensor} x {pipeline} (pipeline_parallel) = {tensor * pipeline} GPUs, but "
            f"requirements.gpus is {gpus}"
        )
        raise errors.InvalidRequest(detail, field="parameters.tensor_parallel")
    return tensor
