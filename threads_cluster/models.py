"""Models from Python: `Cluster().models`. A model is an artifact with a name and weights; a download is a workflow.

cluster.models.download("qwen", "hf://Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf")
cluster.models.copy("qwen", "node1:disk")
cluster.services.serve("chat", "llamacpp", model="qwen")
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from threads_cluster import answers
from threads_cluster.errors import BadArgument

if TYPE_CHECKING:
    from pydantic import BaseModel

    from threads_cluster.connection import Connection
    from threads_cluster.workflows import Patient

Json: TypeAlias = dict[str, Any]
Rows: TypeAlias = list[Json]

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class Models:
    """Models of the tenant whose token the cluster has. Places: disk (the cluster's store), HOST:disk, HOST:dram."""

    def __init__(self, connection: Connection, cluster: Patient) -> None:
        self._connection = connection
        self._cluster = cluster

    def list(self) -> Rows:
        """Models by name, each with `locations`, `weights` (paths) and `services` of it."""
        found: Rows = []
        cursor: str | None = None
        while True:
            page = self._ask("GET", "", answers.ModelPage, cursor=cursor)
            found += page["models"]
            cursor = page.get("cursor")
            if not cursor:
                return found

    def get(self, name: str) -> Json:
        """One model, as `list` has it. ApiError 404 where the artifact of this name is none."""
        return self._ask("GET", f"/{_checked(name)}", answers.Model)

    def register(self, name: str, source: str, *, kind: str = "llm") -> Json:
        """Note where a model comes from, and return it: `https://...`, `hf://ORG/REPO[@REVISION][/FILE]`, `s3://...`."""
        body = {"model_name": _checked(name), "type": kind, "source": source}
        return self._ask("POST", "", answers.Model, body=body)

    def download(
        self, name: str, source: str | None = None, *, to: str = "disk", sha256: str | None = None,
        secrets: Sequence[str] = (),
    ) -> Json:  # fmt: skip
        """Have a runner download a model; return `{task_id}`, the workflow that does. Needs the scope run.

        `source`: unless given, as it was registered. `sha256`: of its one file. `to`: where it will lie besides the
        cluster's store; a host's own runner downloads it. What breaks off goes on where it stopped.
        """
        fields = {"source": source, "target_device": to, "sha256": sha256, "secrets": list(secrets) or None}
        return self._begin(name, "download", {field: value for field, value in fields.items() if value is not None})

    def copy(self, name: str, to: str, *, source: str = "disk") -> Json:
        """Bring a model to another place as well; return `{task_id}`."""
        return self._begin(name, "copy", {"source_device": source, "target_device": to})

    def move(self, name: str, to: str, *, source: str = "disk", keep_source: bool = False) -> Json:
        """Bring a model to another place, and let it leave the one before; return `{task_id}`."""
        fields = {"source_device": source, "target_device": to, "keep_source": keep_source}
        return self._begin(name, "move", fields)

    def delete(self, name: str, *, at: str | None = None) -> None:
        """Delete a model, or let it lie `at` a place no more. ApiError 409 while one serves it."""
        self._ask("DELETE", f"/{_checked(name)}", None, device=at)

    def _begin(self, name: str, verb: str, body: Json) -> Json:
        return self._ask("POST", f"/{_checked(name)}/{verb}", answers.TaskBegun, body=body)

    def _ask(self, method: str, path: str, shape: type[BaseModel] | None, **how: Any) -> Json:
        how.setdefault("patience", self._cluster.patience)
        answer: Json = self._connection.ask(method, f"/api/v1/models{path}", **how)
        return answer if shape is None else answers.checked(shape, answer, self._cluster.url)


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadArgument(f"name: must be 1 to 64 of a-z, 0-9, ., _ and -, a letter or digit first; got {name!r}")
    return name
