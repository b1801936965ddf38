"""Data from Python: `Cluster().data`. A chunk is an artifact that a source was read into, or that a model answered.

begun = cluster.data.create("s3://bucket/prompts", device="node1:disk")
cluster.workflows.wait(begun["task_id"])
cluster.artifacts.fetch(begun["chunk_id"], "prompts")
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

_CHUNK = re.compile(r"chunk-[0-9a-f]{12}")


class Data:
    """Chunks of the tenant whose token the cluster has. Places: disk (the cluster's store), HOST:disk, HOST:dram."""

    def __init__(self, connection: Connection, cluster: Patient) -> None:
        self._connection = connection
        self._cluster = cluster

    def create(self, source: str, *, device: str = "disk", secrets: Sequence[str] = ()) -> Json:
        """Have a runner read a source (`https://...`, `s3://...`); `{chunk_id, task_id}`. Needs the scope run."""
        body: Json = {"source": source, "device": device, **({"secrets": list(secrets)} if secrets else {})}
        return self._ask("POST", "", answers.ChunkBegun, body=body)

    def list(self) -> Rows:
        """Chunks by their ids, each with `device`, `locations`, `bytes` and `references`."""
        found: Rows = []
        cursor: str | None = None
        while True:
            page = self._ask("GET", "", answers.ChunkList, cursor=cursor)
            found += page["chunks"]
            cursor = page.get("cursor")
            if not cursor:
                return found

    def get(self, chunk: str) -> Json:
        """One chunk, as `list` has it. ApiError 404 until it is there."""
        return self._ask("GET", f"/{_checked(chunk)}", answers.Chunk)

    def move(self, chunk: str, to: str) -> Json:
        """Bring a chunk to another place, and to no other besides the cluster's store; `{task_id}`, a workflow."""
        return self._begin(chunk, "move", to)

    def transfer(self, chunk: str, to: str) -> Json:
        """Bring a chunk to another host, as `move` does; `{task_id}`, a workflow."""
        return self._begin(chunk, "transfer", to)

    def delete(self, chunk: str) -> None:
        """Delete a chunk; jobs that have it keep its files until they go."""
        self._ask("DELETE", f"/{_checked(chunk)}", None)

    def _begin(self, chunk: str, verb: str, to: str) -> Json:
        return self._ask("POST", f"/{_checked(chunk)}/{verb}", answers.TaskBegun, body={"target_device": to})

    def _ask(self, method: str, path: str, shape: type[BaseModel] | None, **how: Any) -> Json:
        how.setdefault("patience", self._cluster.patience)
        answer: Json = self._connection.ask(method, f"/api/v1/data{path}", **how)
        return answer if shape is None else answers.checked(shape, answer, self._cluster.url)


def _checked(chunk: str) -> str:
    if not _CHUNK.fullmatch(chunk):
        raise BadArgument(f"chunk: must be chunk- and 12 digits 0-9, a-f; got {chunk!r}")
    return chunk
