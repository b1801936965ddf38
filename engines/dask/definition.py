"""Dask: replicas are workers; one of them has the scheduler beside its own."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from engines.contract import Launch, Model
from engines.dask.server import certificate
from engines.texts import PACKAGES, server_command, text
from jobs import errors

SUMMARY = "Workers of Dask, which call functions of a Python elsewhere."
ROUTES: Literal["openai", "http"] = "http"
PAGE = "/status"

_NAME = "dask"
#: Its processes answer questions for their health over HTTP, and no others.
_HEALTH_ALONE = '["distributed.http.health"]'
_ENVIRONMENT = {
    "DASK_DISTRIBUTED__SCHEDULER__HTTP_ROUTES": _HEALTH_ALONE,
    "DASK_DISTRIBUTED__WORKER__HTTP_ROUTES": _HEALTH_ALONE,
}


class Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    threads: int = Field(1, ge=1, le=1024, description="Functions that a worker calls at once.")
    memory_mib: int = Field(
        0, ge=0, le=1 << 30, description="Memory beyond which a worker keeps results on disk, and pauses; 0: none."
    )


def launch(parameters: Any, model: Model | None, gpus: int) -> Launch:
    """Return how a worker is started, and the scheduler beside one of them."""
    if model is not None:
        raise errors.InvalidRequest("model: the engine dask has none; leave it out", field="model")
    options = {"--threads": parameters.threads, "--memory": parameters.memory_mib}
    words = server_command(_NAME, options)
    return Launch(command=words, env=_ENVIRONMENT, packages=text(_NAME, PACKAGES), module="distributed", group=True)


def credentials(key: str) -> tuple[str, str]:
    """Return certificate and key, in PEM, for whoever may speak to the scheduler of the replica with this key."""
    return certificate(key)
