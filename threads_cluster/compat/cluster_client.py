"""Client with the interface of another GPU cluster manager, for example `ClusterClient("HOST:9090")`.

client = ClusterClient("gpu1:9090")
job = client.submit_job(model_path="tiny.gguf", input_data={"prompt": "once upon"}, gpu_requirements={"count": 1})
print(client.result(job)["text"])
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self, TypeAlias

from threads_cluster.client.api import Cluster
from threads_cluster.errors import BadArgument, JobEnded

Json: TypeAlias = dict[str, Any]

#: Default API port of the other system.
#: Default API port of this project.
_OTHER_PORT, _API_PORT = "9090", "3000"
_ACTION = "answer"
#: Valid fields of `input_data`, except for the prompt.
_OPTIONS = ("max_tokens", "temperature")
_GPUS = ("count", "memory_gb", "compute_capability")
_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class ClusterClient:
    """Client that runs inference as jobs of a cluster. Use it as a context manager.

    A job is a batch of prompts for one model, which a program on a runner computes once. To query a model repeatedly,
    serve it with `Cluster().deploy`.

        with ClusterClient("127.0.0.1:3000") as client:
            job_id = client.submit_job("model.gguf", {"prompt": "once upon", "max_tokens": 32})
            print(client.result(job_id))
    """

    def __init__(self, address: str, token: str | None = None, *, cluster: Cluster | None = None) -> None:
        """Connect to the API at the `address` HOST:PORT with a `token`, or use an existing `cluster`.

        The port 9090 is replaced by 3000, because 9090 is for metrics here.
        """
        host, colon, port = address.rpartition(":")
        self.cluster = cluster or Cluster(f"{host}:{_API_PORT}" if colon and port == _OTHER_PORT else address, token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Submitted jobs continue.

        Example:
            client.close()
        """
        self.cluster.close()

    def submit_job(
        self, model_path: str | Path, input_data: Mapping[str, Any], gpu_requirements: Mapping[str, Any] | None = None
    ) -> str:
        """Submit prompts for a model, and return the ID of the job. It is the ID of a workflow.

        `cluster workflow status ID` shows the workflow. `model_path` is a local file or folder, which is uploaded, or
        the name of a model in the cluster. `input_data` contains `prompt` (a text or a list) and optionally
        `max_tokens` and `temperature`. `gpu_requirements` contains `memory_gb` (GiB per GPU), `compute_capability` and
        `count`; without it, the job runs on CPUs. Raises BadArgument for invalid values.

        Example:
            job_id = client.submit_job("model.gguf", {"prompt": "once upon", "max_tokens": 32})
        """
        prompts, options = _parse_input(input_data)
        action = {
            "action_id": _ACTION,
            "action_type": "inference",
            "model_name": self._model(model_path),
            "input_data": self._put(prompts),
            "output_device": "disk",
            **options,
            **({"requirements": _requirements(gpu_requirements)} if gpu_requirements else {}),
        }
        row = self.cluster.workflows.submit({"name": "inference", "actions": [action]})
        job: str = row["workflow_id"]
        return job

    def status(self, job_id: str) -> str:
        """Return the state of a job: running, waiting, done, failed, cancelling or cancelled.

        Example:
            print(client.status(job_id))
        """
        state: str = self.cluster.workflows.get(job_id)["state"]
        return state

    def result(self, job_id: str, timeout: float | None = None) -> Json | list[Json]:
        """Wait until a job ends, and return `{text, prompt}`, or a list of such objects for several prompts.

        Raises TimedOut after `timeout` seconds, and JobEnded if the job failed or was cancelled.

        Example:
            print(client.result(job_id, timeout=600)["text"])
        """
        course = self.cluster.workflows.wait(job_id, timeout)
        if course["state"] != "done":
            raise JobEnded(job_id, course["state"], course.get("error"))
        output = self.cluster.workflows.action(job_id, _ACTION)["result"]["artifact"]
        with TemporaryDirectory() as folder:
            self.cluster.artifacts.fetch(output, folder)
            [file] = Path(folder).rglob("answers.jsonl")
            answers = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
        return answers[0] if len(answers) == 1 else answers

    def cancel(self, job_id: str) -> None:
        """Cancel a job. Its partial output is lost.

        Example:
            client.cancel(job_id)
        """
        self.cluster.workflows.cancel(job_id)

    def _model(self, path: str | Path) -> str:
        """Return the name of the model for a path. If the path is a local file or folder, upload it first."""
        place = Path(path)
        if not place.exists():
            return str(path)
        name = _NAME.sub("-", place.name).strip("-.")[:64]
        if not name:
            raise BadArgument(f"model_path: no model name can be derived from {place}")
        self.cluster.artifacts.put(place, name=name)
        return name

    def _put(self, prompts: list[str]) -> str:
        with TemporaryDirectory() as folder:
            lines = (json.dumps({"prompt": prompt}, ensure_ascii=False) + "\n" for prompt in prompts)
            file = Path(folder) / "prompts.jsonl"
            file.write_text("".join(lines), encoding="utf-8")
            artifact: str = self.cluster.artifacts.put(file)["artifact"]["artifact_id"]
        return artifact


def _parse_input(given: Mapping[str, Any]) -> tuple[list[str], Json]:
    """Return the prompts and the other options that `input_data` contains."""
    _check_names("input_data", given, ("prompt", *_OPTIONS))
    prompts = given.get("prompt")
    several = [prompts] if isinstance(prompts, str) else prompts
    if not isinstance(several, list | tuple) or not several or not all(isinstance(one, str) and one for one in several):
        raise BadArgument("input_data: prompt must be a non-empty text or a list of non-empty texts")
    return list(several), {name: given[name] for name in _OPTIONS if name in given}


def _requirements(given: Mapping[str, Any]) -> Json:
    """Convert the caller's GPU requirements to requirements of a program."""
    _check_names("gpu_requirements", given, _GPUS)
    memory, capability = given.get("memory_gb"), given.get("compute_capability")
    if memory is not None and (isinstance(memory, bool) or not isinstance(memory, int | float) or not 0 < memory < 1e6):
        raise BadArgument(f"gpu_requirements: memory_gb must be a number of GiB above 0; got {memory!r}")
    return {
        "gpus": given.get("count", 1),
        **({} if memory is None else {"gpu_memory_mib": math.ceil(memory * 1024)}),
        **({} if capability is None else {"compute_capability": str(capability)}),
    }


def _check_names(what: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    if not isinstance(given, Mapping):
        raise BadArgument(f"{what}: must be a dictionary; got {type(given).__name__}")
    if unknown := sorted(set(map(str, given)) - set(known)):
        raise BadArgument(f"{what}: unknown field {unknown[0]}; the fields are {', '.join(known)}")
