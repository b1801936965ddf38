"""Models from Python: `Cluster().models`. A model is an artifact with a name; a download is a workflow that makes one.

cluster.models.download("qwen", "hf://Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf")
cluster.services.serve("chat", "llamacpp", model="qwen")
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from threads_cluster.errors import BadArgument

if TYPE_CHECKING:
    from threads_cluster.api import Cluster

Json: TypeAlias = dict[str, Any]
Rows: TypeAlias = list[Json]

#: Endings of files with weights that are no code.
WEIGHTS = (".gguf", ".safetensors")
_SCHEMES = ("https://", "http://", "hf://")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_SHA = re.compile(r"[0-9a-f]{64}")


class Models:
    """Models of the tenant whose token the cluster has."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def download(
        self, name: str, source: str, *, sha256: str | None = None, host: str | None = None,
        secrets: Sequence[str] = (),
    ) -> Json:  # fmt: skip
        """Have a runner download a model, and return the workflow that does; `name` is the artifact's at its end.

        `source`: `https://...`, or `hf://ORG/REPO[@REVISION][/FILE]`. `sha256`: of one file. `secrets`: names such as
        HF_TOKEN. It is tried again where it breaks off, and goes on there on the same `host`. Needs the scope run.
        """
        if not _NAME.fullmatch(name):
            raise BadArgument(f"name: must be 1 to 64 of a-z, 0-9, ., _ and -, a letter or digit first; got {name!r}")
        if not source.startswith(_SCHEMES):
            raise BadArgument(f"source: must begin with {', '.join(_SCHEMES)}; got {source!r}")
        if sha256 is not None and not _SHA.fullmatch(sha256):
            raise BadArgument(f"sha256: must be 64 digits 0-9, a-f; got {sha256!r}")
        return self._cluster.workflows.submit(_workflow(name, source, sha256, host, secrets))

    def list(self) -> Rows:
        """Artifacts that have a name and weights, each with `model_name`, `weights` (paths) and `services` of it."""
        served = self._cluster.services.list()
        return [row for artifact in self._cluster.artifacts.list() for row in self._rows(artifact, served)]

    def get(self, name: str) -> Json:
        """One model, as `list` has it. BadArgument where the artifact of this name has no weights."""
        rows = self._rows(self._cluster.artifacts.info(name), self._cluster.services.list())
        if not rows:
            raise BadArgument(f"{name} has no file that ends with {' or '.join(WEIGHTS)}; see: cluster artifact info")
        return next((row for row in rows if row["model_name"] == name), rows[0])

    def delete(self, name: str) -> None:
        """Delete a model with all its names. ApiError 409 while a service has it."""
        self._cluster.artifacts.delete(self.get(name)["artifact_id"])

    def _rows(self, artifact: Json, services: Sequence[Json]) -> Rows:
        """Return an artifact as one model for each of its names."""
        if not artifact["names"]:
            return []
        files = self._cluster.artifacts.files(artifact["artifact_id"])
        weights = [each.path for each in files if each.is_file and each.path.lower().endswith(WEIGHTS)]
        known = {artifact["artifact_id"], *artifact["names"]}
        served = [row["name"] for row in services if row["model"] in known]
        return [
            {**artifact, "model_name": name, "weights": weights, "services": served}
            for name in (artifact["names"] if weights else ())
        ]


def _workflow(name: str, source: str, sha256: str | None, host: str | None, secrets: Sequence[str]) -> Json:
    """Return the text of the workflow: a program that downloads, then the name."""
    program = (Path(__file__).parent / "fetching.py").read_text(encoding="utf-8")
    fetch = {
        "command": ["python3", "-c", program, source, *([sha256] if sha256 else [])],
        "outputs": ["model"], "workspace": f"model-{re.sub(r'[^a-z0-9-]', '-', name)}"[:64], "secrets": list(secrets),
        "retries": {"max": 5, "initial_delay_seconds": 2}, **({"requirements": {"host": host}} if host else {}),
    }  # fmt: skip
    return {
        "name": f"download-{name}",
        "description": f"Download of the model {name} from {source}",
        "actions": [
            {"action_id": "fetch", "action_type": "command", "parameters": fetch},
            {"action_id": "publish", "action_type": "artifact_publish",
             "parameters": {"name": name, "artifact": "${fetch.artifact}"}},
        ],
    }  # fmt: skip
