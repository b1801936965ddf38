"""Upload of model files for `cluster serve`. Each upload becomes a model with the name of its service."""

from __future__ import annotations

import re
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threads_cluster.cli import show
from threads_cluster.cli.commands import artifact_commands
from threads_cluster.errors import ApiError, BadArgument

if TYPE_CHECKING:
    from threads_cluster.client.api import Cluster

#: Service names that cannot be the name of a model, because they look like IDs or are reserved.
_NO_MODEL = re.compile(r"[0-9a-f]{8,64}|(chunk|batch|profile)-.*")
_LONGEST = 64


def model_name(service: str) -> str:
    """Return the model name for a service: the service's name if possible, otherwise the name with a prefix."""
    return f"model-{service}"[:_LONGEST] if _NO_MODEL.fullmatch(service) else service


def send(cluster: Cluster, path: Path, service: str, *, quiet: bool) -> str:
    """Upload the file or folder of a model, name it after its service, and return the artifact ID.

    The upload replaces an uploaded model of the same name, but existing services keep the old one. Raises BadArgument
    before the upload if the service exists, or if the name belongs to a downloaded model or to another artifact.
    """
    _check_service(cluster, service)
    name = model_name(service)
    before = _replaced_model(cluster, name)
    with artifact_commands.progress("sent", quiet=quiet) as progressing:
        made = str(cluster.artifacts.put(path, name=name, progress=progressing)["artifact"]["artifact_id"])
    if before and before != made:
        digits = before[: artifact_commands.DIGITS]
        show.say(f"replaced the model {name}; services that use the previous version, {digits}, keep it")
    return made


def _check_service(cluster: Cluster, service: str) -> None:
    if _find(cluster.services.get, service):
        detail = f"service {service} already exists; choose another name, or run: cluster service delete {service}"
        raise BadArgument(detail, field="name")


def _replaced_model(cluster: Cluster, name: str) -> str | None:
    """Return the ID of the model that an upload replaces, or None if no model has the name."""
    row = _find(cluster.artifacts.info, name)
    if row is None:
        return None
    model = _find(cluster.models.get, name)
    if model is None:
        detail = f"{name} is the name of an artifact without weights; choose another name with --name"
        raise BadArgument(detail, field="name")
    if model["source"]:
        detail = f"the model {name} already exists, from {model['source']}; serve it with: cluster serve {name}"
        raise BadArgument(f"{detail}, or choose another name for this file with --name", field="name")
    return str(row["artifact_id"])


def _find(read: Callable[[str], Any], name: str) -> Any | None:
    """Call `read` with a name. Return None if the cluster has no resource with this name."""
    try:
        return read(name)
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise
