"""Definition of the engine for llama.cpp, which it uses through the package xllamacpp."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from engines import calls, gguf_metadata, memory
from engines.contract import Abilities, Batch, Launch, Model
from engines.texts import BATCH, PACKAGES, server_command, text
from jobs import errors

SUMMARY = "Models in GGUF, on any CPU and on GPUs."
ROUTES: Literal["openai", "http"] = "openai"

_NAME = "llamacpp"
_SUFFIX = ".gguf"
_COMPLETIONS = (
    calls.CHAT,
    calls.COMPLETIONS,
    calls.RESPONSES,
    calls.RESPONSES_TOKENS,
    calls.MESSAGES,
    calls.MESSAGES_TOKENS,
)


class Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    file: str | None = Field(None, max_length=1024, description="Path of the model's file if the artifact has several.")
    context: int = Field(4096, ge=16, le=1 << 22, description="Tokens of prompt and answer together in one request.")
    parallel: int = Field(4, ge=1, le=256, description="Number of concurrent requests.")
    threads: int = Field(0, ge=0, le=1024, description="Number of CPU threads; 0: one per core.")
    gpu_layers: int = Field(-1, ge=-1, le=10_000, description="Layers on GPUs if the replica has GPUs; -1: all.")
    embeddings: bool = Field(False, description="Serve /v1/embeddings, for embedding models.")
    reranking: bool = Field(False, description="Serve /v1/rerank, for models that rank documents.")


def launch(parameters: Any, model: Model | None, gpus: int) -> Launch:
    """Return the command that starts a llama.cpp server for a GGUF file."""
    path = _file(parameters.file, model)
    options = {
        "--model": path,
        "--alias": model.name if model else path,
        "--context": parameters.context,
        "--parallel": parameters.parallel,
        "--threads": parameters.threads,
        "--gpu-layers": parameters.gpu_layers,
        "--embeddings": parameters.embeddings,
        "--reranking": parameters.reranking,
    }
    words = server_command(_NAME, options)
    return Launch(command=words, packages=text(_NAME, PACKAGES), module="xllamacpp")


def abilities(parameters: Any, model: Model) -> Abilities:
    """Return the abilities of a llama.cpp server. The model limits the context length."""
    known = gguf_metadata.parse_metadata(model.head(_file(parameters.file, model), gguf_metadata.MOST_BYTES))
    longest = memory.context_from_gguf(known) or parameters.context
    context = min(parameters.context, longest)
    if parameters.reranking:
        return Abilities(context_length=context, capabilities=("rerank",), calls=(calls.RERANK,))
    if parameters.embeddings:
        return Abilities(context_length=context, capabilities=("embedding",), calls=(*_COMPLETIONS, calls.EMBEDDINGS))
    return Abilities(context_length=context, capabilities=("completion",), calls=_COMPLETIONS)


def need(parameters: Any, model: Model, gpus: int) -> memory.Need:
    """Return the memory that a replica needs for the weights and for its concurrent requests."""
    path = _file(parameters.file, model)
    cache = memory.cache_from_gguf(gguf_metadata.parse_metadata(model.head(path, gguf_metadata.MOST_BYTES)))
    where: memory.Where = "both" if gpus and parameters.gpu_layers else "host"
    tokens = parameters.context * parameters.parallel
    return memory.Need(weights=model.files[path], cache=cache, tokens=tokens, where=where)


def batch(model: Model, *, max_tokens: int, temperature: float) -> Batch:
    """Return the program that answers prompts with the GGUF file of a model.

    Raises InvalidRequest if there is not exactly one.
    """
    words = [f"model/{_file(None, model)}", str(max_tokens), str(temperature)]
    program = text(_NAME, BATCH)
    return Batch(program=program, arguments=words, packages=text(_NAME, PACKAGES), module="xllamacpp")


def _file(asked: str | None, model: Model | None) -> str:
    """Return the path of the model's GGUF file. Raises InvalidRequest if the artifact does not contain exactly one."""
    if model is None:
        raise errors.InvalidRequest(
            "model: the engine llamacpp requires an artifact with a GGUF file; upload it with"
            " cluster artifact put FILE.gguf",
            field="model",
        )
    if asked is not None:
        if asked not in model.files:
            raise errors.InvalidRequest(
                f"parameters.file: the artifact does not contain {asked}", field="parameters.file"
            )
        return asked
    found = sorted(path for path in model.files if path.lower().endswith(_SUFFIX))
    if len(found) == 1:
        return found[0]
    if not found:
        raise errors.InvalidRequest("model: the artifact contains no file with the suffix .gguf", field="model")
    detail = f"parameters.file: the artifact contains {len(found)} .gguf files; choose one, such as {found[0]}"
    raise errors.InvalidRequest(detail, field="parameters.file")
