"""Request bodies of the routes for models and data."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field

from coordinator import locations
from coordinator.artifacts import catalog
from coordinator.server import bodies, http
from jobs import errors
from jobs.store import artifacts
from jobs.store.tenancy import secrets

Body = TypeVar("Body", bound=BaseModel)
Name = Annotated[str, Field(pattern=artifacts.NAME)]
_STRICT = ConfigDict(extra="forbid", strict=True, protected_namespaces=())
_SECRETS = Field(None, max_length=20, description="Names of secrets. The default depends on the source.")
Secrets = list[Annotated[str, Field(pattern=secrets.NAME)]] | None


class Registration(BaseModel):
    """The body of POST /api/v1/models."""

    model_config = _STRICT
    model_name: Name = Field(description="Name of the model.")
    type: str = Field("llm", min_length=1, max_length=32, description="Type of the model, for display.")
    source: str = Field(max_length=2048, description="https://, http://, hf://ORG/REPO[@REVISION][/FILE], s3://.")


class Download(BaseModel):
    """The body of POST /api/v1/models/{model}/download."""

    model_config = _STRICT
    target_device: str = Field("disk", max_length=100, description="disk, HOST:disk or HOST:dram.")
    source: str | None = Field(None, max_length=2048, description="Source. The default is the registered source.")
    sha256: str | None = Field(
        None, pattern=r"^[0-9a-f]{64}$", description="Expected SHA-256 of the model's only file."
    )
    secrets: Secrets = _SECRETS


class Move(BaseModel):
    """The body of POST /api/v1/models/{model}/move, and of .../copy."""

    model_config = _STRICT
    source_device: str = Field("disk", max_length=100, description="Current location: disk, HOST:disk or HOST:dram.")
    target_device: str = Field(max_length=100, description="disk, HOST:disk or HOST:dram. For a move also HOST:gpu0.")
    keep_source: bool = Field(False, description="Keep the copy at the source.")


class NewData(BaseModel):
    """The body of POST /api/v1/data."""

    model_config = _STRICT
    source: str = Field(max_length=2048, description="https://, http://, s3://BUCKET/KEY.")
    device: str = Field("disk", max_length=100, description="Location of the chunk: disk, HOST:disk or HOST:dram.")
    secrets: Secrets = _SECRETS


class MoveData(BaseModel):
    """The body of POST /api/v1/data/{chunk}/move, and of .../transfer."""

    model_config = _STRICT
    target_device: str = Field(max_length=100, description="disk, HOST:disk or HOST:dram.")


async def parse_body(
    request: Request, form: type[Body], *sources: str, pickled: bool = False, gpus: bool = False
) -> Body:
    """Parse and validate a request body. Raises InvalidRequest, which names the invalid field.

    `sources` lists the fields to validate as sources. Fields named `*_device` are validated as locations. `pickled`
    allows sources with pickled files, and `gpus` allows a GPU as the target.
    """
    asked: Body = http.parse(form, await bodies.read_json(request))
    for field, value in asked.model_dump(exclude_none=True).items():
        try:
            _check(field, value, sources, pickled=pickled, gpus=gpus)
        except ValueError as error:
            raise errors.InvalidRequest(f"{field}: {error}", field=field) from None
    return asked


def _check(field: str, value: Any, sources: tuple[str, ...], *, pickled: bool, gpus: bool) -> None:
    if field in sources:
        catalog.check_source(value, pickled=pickled)
    elif field in ("device", "source_device", "target_device"):
        locations.parse(
            value,
            (*locations.STORAGE_DEVICES, "gpu") if gpus and field == "target_device" else locations.STORAGE_DEVICES,
            any_host=True,
        )
