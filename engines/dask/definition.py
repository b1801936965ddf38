"""Definition of the engine for Dask. Each replica is a Dask worker, and the leading replica also runs the scheduler."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from engines.contract import Launch, Model
from engines.dask.server import certificate
from engines.texts import PACKAGES, server_command, text
from jobs import errors

SUMMARY = "Dask workers, which run functions of a remote Python client."
ROUTES: Literal["openai", "http"] = "http"
PAGE = "/status"

_NAME = "dask"
#: HTTP routes that Dask's processes serve. There are only health checks.
_HEALTH_ALONE = '["distributed.http.health"]'
_ENVIRONMENT = {
    "DASK_DISTRIBUTED__SCHEDULER__HTTP_ROUTES": _HEALTH_ALONE,
    "DASK_DISTRIBUTED__WORKER__HTTP_ROUTES": _HEALTH_ALONE,
}


class Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    threads: int = Field(1, ge=1, le=1024, description="Number of functions that a worker runs at the same time.")
    memory_mib: int = Field(
        0,
        ge=0,
        le=1 << 30,
        description="Memory limit of a worker, beyond which it spills results to disk and pauses; 0: no limit.",
    )


def launch(parameters: Any, model: Model | None, gpus: int) -> Launch:
    """Return the command that starts a Dask worker and, in the leading replica, also the scheduler."""
    if model is not None:
        raise errors.InvalidRequest("model: the engine dask does not use a model; omit it", field="model")
    options = {"--threads": parameters.threads, "--memory": parameters.memory_mib}
    words = server_command(_NAME, options)
    return Launch(command=words, env=_ENVIRONMENT, packages=text(_NAME, PACKAGES), module="distributed", group=True)


def credentials(key: str) -> tuple[str, str]:
    """Return a certificate and its private key in PEM for clients of the Dask scheduler. `key` is the replica's key."""
    return certificate(key)
