"""Execute workflow steps that use a tenant's models, data and services.

Each method is idempotent, so a new leader can repeat a call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from coordinator import locations
from coordinator.artifacts.catalog import CHUNK, Model
from coordinator.cluster import Cluster
from coordinator.jobs.delegated_submission import Maker
from coordinator.locations import Location
from coordinator.services import creation, model_services
from coordinator.services.gateway import openai
from coordinator.workflows.artifact_host import ArtifactHost
from coordinator.workflows.documents.action_types import UndoResult
from engines import registry
from jobs import errors
from threads_protocol import hub

Parameters: TypeAlias = Mapping[str, Any]
#: Devices that can store models and data.
_PLACES = ("disk", "dram", "gpu")
#: Secrets passed to a download if the tenant has them, by URL scheme.
_SECRETS = {
    "hf": ("HF_TOKEN", "HF_ENDPOINT"),
    "s3": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL"),
}


class PoolHost(ArtifactHost):
    """Executes model, data and service steps with the permissions of the workflow's owner."""

    def __init__(self, cluster: Cluster, maker: Maker, workflow: str = "") -> None:
        super().__init__(cluster.artifacts, maker.principal.actor)
        self._cluster, self._maker, self._workflow = cluster, maker, workflow
        self._models, self._artifacts = cluster.models, cluster.store.artifacts
        self._steps: dict[str, Callable[[Parameters], Parameters]] = {
            "model.source": self._source,
            "model.keep": self._keep,
            "model.at": self._at,
            "model.leave": self._leave,
            "model.batch": self._batch,
            "batch.clear": self._clear,
            "download": self._note_placed,
            "copy": self._note_placed,
            "move": self._note_moved,
            "serve": self._serve,
            "inference": self._note_inferred,
            "data.source": self._data_source,
            "data.keep": self._data_keep,
            "data.at": self._data_at,
            "data_create": self._note_created,
            "data_move": self._note_transferred,
            "data_transfer": self._note_transferred,
        }

    def step(self, action_type: str, parameters: Parameters) -> Parameters:
        """Execute one step of a model or data action and return its result fields."""
        return self._steps[action_type](parameters)

    def undo(self, action_type: str, parameters: Parameters) -> UndoResult:
        """Remove the service or the files that a step of this workflow created, unless others use them."""
        if action_type == "model.batch":
            there = self._artifacts.named(self._tenant, parameters["name"]) is not None
            self._clear(parameters)
            return UndoResult(ended=there)
        place = locations.parse(
            parameters["device" if action_type == "serve" else "target_device"], (*_PLACES, "cpu"), any_host=True
        )
        if place.kind not in locations.COMPUTE_DEVICES:
            return UndoResult()
        name = model_services.name_of(parameters["model_name"], place)
        ended, why = model_services.withdraw(self._cluster, name, self._workflow, self._actor)
        return UndoResult(
            ended=ended,
            left=f"service {name} remains, {why}: cluster service delete {name}" if why else "",
        )

    @property
    def _tenant(self) -> str:
        return self._maker.tenant

    # -- models --------------------------------------------------------------------------------------------------------

    def _source(self, given: Parameters) -> Parameters:
        """Return the source of a model: the source that the action names, or otherwise the registered source."""
        name = given["model_name"]
        known = self._models.get_or_none(self._tenant, name)
        source = given.get("source") or (known.source if known else "")
        if not source:
            detail = f"model {name} has no source; set it, or run: cluster model register {name} --source URL"
            raise errors.Conflict(detail, field="source")
        return self._with_secrets(hub.resolve_page(source), given)

    def _with_secrets(self, source: str, given: Parameters) -> Parameters:
        secrets = given.get("secrets")
        if secrets is None:
            there = {one.name for one in self._cluster.secrets.all(self._tenant)}
            secrets = [one for one in _SECRETS.get(source.partition(":")[0], ()) if one in there]
        return {"source": source, "sha256": given.get("sha256") or "-", "secrets": secrets}

    def _keep(self, given: Parameters) -> Parameters:
        """Point the model's name to the downloaded artifact."""
        name, source = given["model_name"], given["source"]
        row = self._models.keep(self._tenant, name, given["artifact"], given["folder"], self._actor, source=source)
        return {"artifact": row.id}

    def _at(self, given: Parameters) -> Parameters:
        """Return the artifact of a model. Raises Conflict if the model is not at the source location."""
        return {"artifact": self._model_at(given).artifact.id}

    def _model_at(self, given: Parameters) -> Model:
        model, place = self._models.find(self._tenant, given["model_name"]), given["source_device"]
        there = [*(("disk",) if model.weights else ()), *model.places]
        if place not in there:
            lies = f"its locations are {', '.join(there)}" if there else "it was not downloaded yet"
            raise errors.Conflict(f"{model.name} is not at {place}; {lies}", field="source_device")
        return model

    def _leave(self, given: Parameters) -> Parameters:
        model = self._models.get_or_none(self._tenant, given["model_name"])
        if model:
            place = locations.holder_name(_parse_location(given["source_device"]))
            self._artifacts.let_go(self._tenant, model.artifact.id, place)
        return {}

    def _note_placed(self, given: Parameters) -> Parameters:
        """Record the model's new location."""
        place = _parse_location(given["target_device"])
        self._hold(given["artifact"], place)
        return {"model_name": given["model_name"], "artifact": given["artifact"], "place": str(place)}

    def _note_moved(self, given: Parameters) -> Parameters:
        """Record the model's new location. For a GPU, first start a replica without requests and wait for it."""
        place = _parse_location(given["target_device"])
        if place.kind != "gpu":
            return self._note_placed(given)
        name = model_services.serve(
            self._cluster, self._find(given), place, self._maker.principal, routed=False, workflow=self._workflow
        )
        model_services.ready(self._cluster, self._tenant, name)
        return {"model_name": given["model_name"], "artifact": given["artifact"], "place": str(place)}

    def _find(self, given: Parameters) -> Model:
        return self._models.find(self._tenant, given["model_name"])

    def _hold(self, artifact: str, place: Location) -> None:
        """Record that a location holds an artifact, which prevents its garbage collection."""
        if not place.is_store and not self._artifacts.hold(self._tenant, artifact, locations.holder_name(place)):
            raise errors.Conflict(f"artifact {artifact[:12]} was deleted in the meantime", field="artifact")

    # -- services ------------------------------------------------------------------------------------------------------

    def _serve(self, given: Parameters) -> Parameters:
        """Serve a model and return its service ID and URL. Raises Unavailable until a replica is ready."""
        place = locations.parse(given["device"], locations.COMPUTE_DEVICES, any_host=True)
        name = model_services.serve(
            self._cluster, self._find(given), place, self._maker.principal, workflow=self._workflow
        )
        model_services.ready(self._cluster, self._tenant, name)
        return {"service_id": name, "url": openai.PREFIX}

    def _batch(self, given: Parameters) -> Parameters:
        """Combine model, prompts and program in a named artifact, which exists until the program has run."""
        model = self._find(given)
        files = creation.model_of(self._cluster, model.artifact.id, model.name, self._maker.principal)
        engine = registry.select_engine(files, 0)
        make = registry.batching(engine)
        if make is None:
            raise errors.Conflict(
                f"engine {engine} does not support batches; serve the model instead", field="model_name"
            )
        how = {"max_tokens": given.get("max_tokens") or 200, "temperature": float(given.get("temperature", 0.2))}
        batch = make(files, **how)
        row = self._models.put_batch(
            self._tenant,
            given["name"],
            model.artifact,
            self._trees.find(self._tenant, given["input_data"]),
            {"batch.py": batch.program, "packages.txt": batch.packages},
            self._actor,
        )
        python = {"requirements": "packages.txt", "module": batch.module or None} if batch.packages else None
        return {"artifact": row.id, "command": ["python3", "batch.py", *batch.arguments], "python": python}

    def _clear(self, given: Parameters) -> Parameters:
        """Delete the name of a finished batch. The artifact stays while its job needs it."""
        with contextlib.suppress(errors.NotFound):
            self._trees.delete(self._tenant, given["name"], self._actor, beside_jobs=True)
        return {}

    def _note_inferred(self, given: Parameters) -> Parameters:
        """Record the location of a batch's answers."""
        self._hold(given["artifact"], _parse_location(given["output_device"]))
        return {"output": given["chunk_id"], "artifact": given["artifact"], "place": given["output_device"]}

    # -- data ----------------------------------------------------------------------------------------------------------

    def _data_source(self, given: Parameters) -> Parameters:
        return self._with_secrets(given["source"], given)

    def _data_keep(self, given: Parameters) -> Parameters:
        """Point a chunk's ID to the output of a program."""
        row = self._models.keep_folder(self._tenant, given["chunk_id"], given["artifact"], given["folder"], self._actor)
        return {"artifact": row.id}

    def _data_at(self, given: Parameters) -> Parameters:
        row = self._trees.find(self._tenant, given["data_id"])
        chunk = next((name for name in row.names if name.startswith(CHUNK)), "")
        if not chunk:
            raise errors.NotFound(f"{given['data_id']} is not a chunk of data", field="data_id")
        return {"chunk_id": chunk, "artifact": row.id}

    def _note_created(self, given: Parameters) -> Parameters:
        """Record the location of a chunk."""
        self._hold(given["artifact"], _parse_location(given["target_device"]))
        return {"chunk_id": given["chunk_id"], "artifact": given["artifact"], "place": given["target_device"]}

    def _note_transferred(self, given: Parameters) -> Parameters:
        """Record the chunk's new location, and remove its other locations except the cluster's store."""
        place = _parse_location(given["target_device"])
        self._hold(given["artifact"], place)
        [row] = self._artifacts.read(self._tenant, [given["artifact"]])
        for other in locations.list_locations(row.holders) if row else ():
            if other != str(place):
                self._artifacts.let_go(self._tenant, given["artifact"], f"{locations.HOLDER_PREFIX}{other}")
        return {"chunk_id": given["chunk_id"], "artifact": given["artifact"], "place": str(place)}


def _parse_location(text: str) -> Location:
    return locations.parse(text, _PLACES)
