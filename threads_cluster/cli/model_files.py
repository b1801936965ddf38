"""Files of models that `cluster serve` sends: each is kept under its service's name, as a model of the cluster."""

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

#: Names of services that are none of models: beginnings of ids, and names that chunks, batches and profiles have.
_NO_MODEL = re.compile(r"[0-9a-f]{8,64}|(chunk|batch|profile)-.*")
_LONGEST = 64


def name_of(service: str) -> str:
    """Return the name of the model that is sent for a service: that of the service, wherever a model may have it."""
    return f"model-{service}"[:_LONGEST] if _NO_MODEL.fullmatch(service) else service


def send(cluster: Cluster, path: Path, service: str, *, quiet: bool) -> str:
    """Send the file or the folder of a model, have it called as its service is, and return the artifact's id.

    A model of this name that came from a file gives way to it; services that have that one keep it. BadArgument, before
    anything is sent, where there is such a service, or the name is that of something else.
    """
    _check_service(cluster, service)
    name = name_of(service)
    before = _before(cluster, name)
    with artifact_commands.progress("sent", quiet=quiet) as progressing:
        made = str(cluster.artifacts.put(path, name=name, progress=progressing)["artifact"]["artifact_id"])
    if before and before != made:
        digits = before[: artifact_commands.DIGITS]
        show.say(f"the model {name} is this one from now on; the one before, {digits}, stays where a service has it")
    return made


def _check_service(cluster: Cluster, service: str) -> None:
    if _found(cluster.services.get, service):
        detail = f"there is a service {service} already; choose another one, or: cluster service delete {service}"
        raise BadArgument(detail, field="name")


def _before(cluster: Cluster, name: str) -> str | None:
    """Return the model that gives way; None where the name is free."""
    row = _found(cluster.artifacts.info, name)
    if row is None:
        return None
    model = _found(cluster.models.get, name)
    if model is None:
        detail = f"{name} is an artifact without weights, which keeps its name; choose another one with --name"
        raise BadArgument(detail, field="name")
    if model["source"]:
        detail = f"the model {name} is there, from {model['source']}; serve it with: cluster serve {name}, or choose"
        raise BadArgument(f"{detail} another name for this file with --name", field="name")
    return str(row["artifact_id"])


def _found(read: Callable[[str], Any], name: str) -> Any | None:
    """Return what is called so; None where there is none."""
    try:
        return read(name)
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise
