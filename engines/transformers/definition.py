"""Definition of the engine for Hugging Face Transformers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from engines import calls, memory, safetensors
from engines.contract import Abilities, Launch, Model
from engines.texts import PACKAGES, server_command, text

SUMMARY = "Weights in safetensors, on CPUs and GPUs."
ROUTES: Literal["openai", "http"] = "openai"
LARGE = True

_NAME = "transformers"
#: Environment variables that disable downloads and telemetry.
_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


class Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    folder: str | None = Field(
        None, min_length=1, max_length=1024, description="Folder with the weights if the artifact has several."
    )
    context: int = Field(
        4096, ge=16, le=1 << 22, description="Tokens of prompt and answer together, limited by the model's maximum."
    )
    parallel: int = Field(2, ge=1, le=64, description="Number of concurrent requests; others wait.")
    threads: int = Field(0, ge=0, le=1024, description="Number of CPU threads; 0: one per core.")
    dtype: Literal["auto", "float16", "bfloat16", "float32"] = Field(
        "auto", description="Number format for computations; auto: the format of the weights."
    )
    trust_remote_code: bool = Field(
        False, description="Run code from the model's artifact, which requires the scope operate."
    )


def launch(parameters: Any, model: Model | None, gpus: int) -> Launch:
    """Return the command that starts a Transformers server for a folder of weights."""
    place = safetensors.folder("transformers", parameters.folder, model)
    options = {
        "--model": place,
        "--name": model.name if model else place,
        "--dtype": parameters.dtype,
        "--context": parameters.context,
        "--parallel": parameters.parallel,
        "--threads": parameters.threads,
        "--gpus": gpus,
        "--trust-remote-code": parameters.trust_remote_code,
    }
    return Launch(
        command=server_command(_NAME, options),
        env=_ENVIRONMENT,
        packages=text(_NAME, PACKAGES),
        module="transformers",
        runs_models_code=parameters.trust_remote_code,
    )


def abilities(parameters: Any, model: Model) -> Abilities:
    """Return the abilities of a Transformers server. It supports only calls of OpenAI's API."""
    known = safetensors.config(safetensors.folder("transformers", parameters.folder, model), model)
    context = min(parameters.context, memory.context_from_config(known) or parameters.context)
    return Abilities(context_length=context, capabilities=("completion",), calls=(calls.CHAT, calls.COMPLETIONS))


def need(parameters: Any, model: Model, gpus: int) -> memory.Need:
    """Return the memory that a replica needs for the weights and for its concurrent requests."""
    place = safetensors.folder("transformers", parameters.folder, model)
    known = safetensors.config(place, model)
    stored = safetensors.weights(place, model)
    weights = stored if parameters.dtype == "auto" else safetensors.computed_bytes(stored, known, parameters.dtype)
    tokens, where = parameters.context * parameters.parallel, device_kind(gpus)
    return memory.Need(weights=weights, cache=memory.cache_from_config(known), tokens=tokens, where=where)


def device_kind(gpus: int) -> memory.Where:
    return "gpus" if gpus else "host"
