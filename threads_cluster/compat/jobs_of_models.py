"""The cluster by the words of a manager of GPUs: `ClusterClient("HOST:9090").submit_job(...)`.

client = ClusterClient("gpu1:9090")
job = client.submit_job(model_path="tiny.gguf", input_data={"prompt": "once upon"}, gpu_requirements={"memory_gb": 16})
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

#: Where others have the calls that the API answers: here metrics are at that port.
_THEIRS, _OURS = "9090", "3000"
_ACTION = "answer"
#: Fields of `input_data` beside the prompts, and of `gpu_requirements`.
_OPTIONS = ("max_tokens", "temperature")
_GPUS = ("count", "memory_gb", "compute_capability")
_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class ClusterClient:
    """Inference as jobs of a cluster; use it as a context manager, from one thread.

    A job is a batch of prompts for one model, computed once by a program on a runner. A model that is asked again and
    again is better served: `Cluster().deploy`.
    """

    def __init__(self, address: str, token: str | None = None, *, cluster: Cluster | None = None) -> None:
        """`address`: HOST:PORT of the API; 9090, which others have for it, stands for 3000. `token`: as Cluster's."""
        host, colon, port = address.rpartition(":")
        self.cluster = cluster or Cluster(f"{host}:{_OURS}" if colon and port == _THEIRS else address, token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; jobs go on."""
        self.cluster.close()

    def submit_job(
        self, model_path: str | Path, input_data: Mapping[str, Any], gpu_requirements: Mapping[str, Any] | None = None
    ) -> str:
        """Submit prompts for a model, and return the job's id, which is a workflow's: `cluster workflow status ID`.

        `model_path`: a file or folder here, which is put into the cluster, or the name of a model there. `input_data`:
        `prompt`, a text or several; `max_tokens`, `temperature`. `gpu_requirements`: `memory_gb` (GiB of each GPU),
        `compute_capability`, `count` of GPUs; none: on CPUs. BadArgument naming what is wrong.
        """
        prompts, options = _asked(input_data)
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
        """Return running, waiting, done, failed, cancelling or cancelled."""
        state: str = self.cluster.workflows.get(job_id)["state"]
        return state

    def result(self, job_id: str, timeout: float | None = None) -> Json | list[Json]:
        """`{text, prompt}`, or a list of them where there were several prompts, once the job is done.

        TimedOut after `timeout` seconds, JobEnded when it failed or was cancelled.
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
        """Cancel a job; what it has computed is lost."""
        self.cluster.workflows.cancel(job_id)

    def _model(self, path: str | Path) -> str:
        """Return the name of a model of the cluster; a path that is here is put there first."""
        place = Path(path)
        if not place.exists():
            return str(path)
        name = _NAME.sub("-", place.name).strip("-.")[:64]
        if not name:
            raise BadArgument(f"model_path: {place} gives no name for a model")
        self.cluster.artifacts.put(place, name=name)
        return name

    def _put(self, prompts: list[str]) -> str:
        with TemporaryDirectory() as folder:
            lines = (json.dumps({"prompt": prompt}, ensure_ascii=False) + "\n" for prompt in prompts)
            file = Path(folder) / "prompts.jsonl"
            file.write_text("".join(lines), encoding="utf-8")
            artifact: str = self.cluster.artifacts.put(file)["artifact"]["artifact_id"]
        return artifact


def _asked(given: Mapping[str, Any]) -> tuple[list[str], Json]:
    """Return the prompts and the other choices of `input_data`."""
    _check_names("input_data", given, ("prompt", *_OPTIONS))
    prompts = given.get("prompt")
    several = [prompts] if isinstance(prompts, str) else prompts
    if not isinstance(several, list | tuple) or not several or not all(isinstance(one, str) and one for one in several):
        raise BadArgument("input_data: prompt must be a text, or a list of texts, none of them empty")
    return list(several), {name: given[name] for name in _OPTIONS if name in given}


def _requirements(given: Mapping[str, Any]) -> Json:
    """Return what each GPU must have, in the words of a program's requirements."""
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
        raise BadArgument(f"{what}: {unknown[0]} is not known; there are {', '.join(known)}")
