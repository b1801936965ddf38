"""Models and chunks of data in the cluster, and the workflows that move them between locations.

cluster.models.download("qwen", "hf://Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf")
cluster.models.copy("qwen", "node1:disk")
cluster.services.serve("chat", "llamacpp", model="qwen")

begun = cluster.data.create("s3://bucket/prompts", device="node1:disk")
cluster.workflows.wait(begun["task_id"])
cluster.artifacts.fetch(begun["chunk_id"], "prompts")
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, ClassVar

from threads_cluster.client.resource import Json, Resource, Rows, pages
from threads_cluster.errors import JOB_FAILED, ApiError, BadArgument, ClientError
from threads_protocol import hub
from threads_protocol.answers import models as answers


class DownloadFailed(ClientError):
    """The download of a model failed or was cancelled."""

    exit_code = JOB_FAILED

    def __init__(self, model: str, task: str, reason: str) -> None:
        super().__init__(f"{model} was not downloaded: {reason}")
        self.next = f"see why with cluster workflow status {task}"


class _Placed(Resource):
    """Base class for artifacts that can have copies on hosts. A workflow executes each move."""

    #: Type of a response with a page of records.
    _page: ClassVar[type[Any]]
    _row: ClassVar[type[Any]]
    _rows: ClassVar[str]
    #: Pattern of valid names.
    _name: ClassVar[re.Pattern[str]]
    _rule: ClassVar[str]

    def list(self) -> Rows:
        """Return all records sorted by name, each with its `locations` and its `bytes`.

        Example:
            for model in cluster.models.list():
                print(model["name"], model["bytes"])
        """

        def ask(cursor: str | None, _size: int) -> Json:
            return self._ask("GET", "", self._page, cursor=cursor)

        return list(pages(self._cluster.url, ask, self._rows))

    def get(self, name: str) -> Json:
        """Return one record by its name. Raises ApiError 404 if it does not exist.

        Example:
            print(cluster.models.get("qwen")["locations"])
        """
        return self._ask("GET", self._below(name), self._row)

    def _begin(self, name: str, verb: str, body: Json) -> Json:
        return self._ask("POST", f"{self._below(name)}/{verb}", answers.TaskBegun, body=body)

    def _below(self, name: str) -> str:
        if not self._name.fullmatch(name):
            raise BadArgument(f"{self._rule}; got {name!r}")
        return f"/{name}"


class Models(_Placed):
    """Models: named artifacts that contain weights, or names with a registered source.

    `weights` lists the paths of the weight files.
    """

    path = "/api/v1/models"
    _page, _row, _rows = answers.ModelPage, answers.Model, "models"
    _name = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
    _rule = "name: must be 1 to 64 of a-z, 0-9, ., _ and -, a letter or digit first"

    def register(self, name: str, source: str, *, kind: str = "llm") -> Json:
        """Register the source of the model `name`, and return the model. `kind` is a type for display.

        A source is `https://...`, `hf://ORG/REPO[@REVISION][/FILE]` or `s3://...`.

        Example:
            cluster.models.register("qwen", "hf://Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf")
        """
        self._below(name)
        body = {"model_name": name, "type": kind, "source": source}
        return self._ask("POST", "", answers.Model, body=body)

    def download(
        self,
        name: str,
        source: str | None = None,
        *,
        to: str = "disk",
        sha256: str | None = None,
        secrets: Sequence[str] = (),
    ) -> Json:
        """Download the model `name` on a runner. Return `{task_id}`, the ID of the workflow. Requires the scope run.

        `source` defaults to the registered source. `sha256` is the hash of the model's only file. `to` is a location to
        which the model is copied in addition to the cluster's store. A host's own runner downloads to that host. The
        download can use the `secrets` of the tenant. An interrupted download resumes.

        Example:
            task = cluster.models.download("qwen", "hf://Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf")
            cluster.workflows.wait(task["task_id"])
        """
        fields = {"source": source, "target_device": to, "sha256": sha256, "secrets": [*secrets] or None}
        return self._begin(name, "download", {field: value for field, value in fields.items() if value is not None})

    def fetch(self, model: str, timeout: float | None = None) -> str:
        """Download a model from Hugging Face unless the cluster has it. Return its name there.

        `model` is ORG/REPO or ORG/REPO/FILE. Raises TimedOut after `timeout` seconds, and DownloadFailed if the
        download fails. Requires the scope run.

        Example:
            name = cluster.models.fetch("Qwen/Qwen3-0.6B-GGUF", timeout=600)
        """
        if not hub.is_model(model):
            raise BadArgument(f"model_name: must be ORG/REPO or ORG/REPO/FILE of Hugging Face; got {model!r}")
        name, source = hub.stored_name(model), f"{hub.SCHEME}{model}"
        if not self._has(name, source):
            task = self.download(name, source)["task_id"]
            course = self._cluster.workflows.wait(task, timeout)
            if course["state"] != "done":
                raise DownloadFailed(model, task, course["error"] or f"the workflow was {course['state']}")
        return name

    def _has(self, name: str, source: str) -> bool:
        """Return True if the cluster has downloaded a model from a source. Raises BadArgument if the name is taken."""
        try:
            row = self.get(name)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return False
            raise
        if row["status"] == "ready" and row["source"] != source:
            other = row["source"] or "an uploaded file"
            raise BadArgument(f"model {name} already exists, from {other}; deploy {name}, or delete it first")
        return bool(row["status"] == "ready")

    def copy(self, name: str, to: str, *, source: str = "disk") -> Json:
        """Copy the model `name` from `source` to another location. Return `{task_id}`, the ID of the workflow.

        Example:
            cluster.models.copy("qwen", to="node1:disk")
        """
        return self._begin(name, "copy", {"source_device": source, "target_device": to})

    def move(self, name: str, to: str, *, source: str = "disk", keep_source: bool = False) -> Json:
        """Move the model `name` from `source` to another location. Return `{task_id}`, the ID of the workflow.

        With `keep_source`, the copy at the old location stays.

        Example:
            cluster.models.move("qwen", to="node1:disk")
        """
        fields = {"source_device": source, "target_device": to, "keep_source": keep_source}
        return self._begin(name, "move", fields)

    def delete(self, name: str, *, at: str | None = None) -> None:
        """Delete the model `name`, or only its copy at the location `at`. Raises ApiError 409 while a service uses it.

        Example:
            cluster.models.delete("qwen", at="node1:disk")
        """
        self._ask("DELETE", self._below(name), None, device=at)


class Data(_Placed):
    """Chunks of data: artifacts that were read from a source or written by a model.

    `references` is the number of users of a chunk.
    """

    path = "/api/v1/data"
    _page, _row, _rows = answers.ChunkList, answers.Chunk, "chunks"
    _name = re.compile(r"chunk-[0-9a-f]{12}")
    _rule = "chunk: must be chunk- and 12 digits 0-9, a-f"

    def create(self, source: str, *, device: str = "disk", secrets: Sequence[str] = ()) -> Json:
        """Read a source on a runner into a new chunk. Return `{chunk_id, task_id}`. Requires the scope run.

        `source` is `https://...` or `s3://...`. The chunk is stored on `device`. The download can use the `secrets` of
        the tenant.

        Example:
            print(cluster.data.create("s3://bucket/images")["chunk_id"])
        """
        body: Json = {"source": source, "device": device, **({"secrets": [*secrets]} if secrets else {})}
        return self._ask("POST", "", answers.ChunkBegun, body=body)

    def move(self, chunk: str, to: str) -> Json:
        """Move a chunk to a location outside of the cluster's store. Return `{task_id}`, the ID of the workflow.

        Example:
            cluster.data.move(chunk_id, to="node1:dram")
        """
        return self._begin(chunk, "move", {"target_device": to})

    def transfer(self, chunk: str, to: str) -> Json:
        """Move a chunk to another host. Return `{task_id}`, the ID of the workflow.

        Example:
            cluster.data.transfer(chunk_id, to="node2:disk")
        """
        return self._begin(chunk, "transfer", {"target_device": to})

    def delete(self, chunk: str) -> None:
        """Delete a chunk. Jobs that use the chunk keep its files until they are deleted.

        Example:
            cluster.data.delete(chunk_id)
        """
        self._ask("DELETE", self._below(chunk), None)
