"""Classes with the interface of PyCluster, for calls of Python functions and for language models.

cluster = HeadNode("my-cluster")
print(cluster.submit_task(lambda x: x**2, 10).result())

models = LLMClusterManager()
deployment = models.deploy_model("Qwen/Qwen3-0.6B", download=True)
print(models.inference(deployment["deployment_id"], "once upon")["text"])
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from threads_cluster.client.api import Cluster
from threads_cluster.client.calling.executor import ClusterExecutor
from threads_cluster.client.calling.futures import ClusterFuture
from threads_protocol import answers as shapes

Json: TypeAlias = dict[str, Any]

#: Configuration file of PyCluster.
_FILE = Path("pycluster.yaml")
_NOT_READ = (
    "is not read. Choose the cluster with Cluster(URL) or CLUSTER_URL, set precision and memory as arguments of "
    "deploy_model, and other values as settings: docs/coming-from/pycluster.md lists them"
)


class HeadNode:
    """Client that calls Python functions on the runners of a cluster that is already running.

    Functions, lambdas and functions of scripts and notebooks can be called.
    """

    def __init__(self, cluster_name: str = "", *, cluster: Cluster | None = None) -> None:
        """Connect to a cluster: by default to the one that `Cluster()` chooses. The name is only sent with `start`."""
        self._name = cluster_name
        self.cluster = cluster or Cluster()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @cached_property
    def _executor(self) -> ClusterExecutor:
        return self.cluster.executor()

    def start(self, n_local_workers: int = 1) -> Json:
        """Return the status of the cluster and its `dashboard_address`.

        Raises ApiError 409 if fewer than `n_local_workers` workers are live. The error names the command that starts
        them, because a client cannot start workers.
        """
        body = {"cluster_name": self._name, "n_workers": n_local_workers}
        status: Json = self.cluster.connection.ask(
            "POST", "/api/cluster/start", shapes.fleet.Status, patience=self.cluster.patience, body=body
        )
        return {**status, "dashboard_address": self.cluster.url}

    def submit_task(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> ClusterFuture:
        """Call a function on a runner, and return its future."""
        return self._executor.submit(function, *args, **kwargs)

    def stop(self) -> None:
        """Wait for the calls, and close the connection. The cluster continues to run."""
        if "_executor" in self.__dict__:
            self._executor.shutdown()
        self.cluster.close()


class LLMClusterManager:
    """Client that deploys language models as services.

        models = LLMClusterManager()
        deployment = models.deploy_model("Qwen/Qwen3-0.6B", download=True)
        print(models.inference(deployment["deployment_id"], "once upon")["text"])

    Warns if the current folder contains pycluster.yaml, because its values have no effect.
    """

    def __init__(self, cluster: Cluster | None = None) -> None:
        """Connect to a cluster: by default to the one that `Cluster()` chooses."""
        if _FILE.is_file():
            warnings.warn(f"{_FILE} {_NOT_READ}", stacklevel=2)
        self.cluster = cluster or Cluster()

    def deploy_model(self, model_name: str, **how: Any) -> Json:
        """Serve a model, and return `{deployment_id, status}`.

        `model_name` is the name of a model in the cluster, or ORG/REPO of Hugging Face. With `download=True`, the
        cluster downloads the model first. `how` accepts the other arguments of `Cluster.services.deploy`.

        Example:
            manager.deploy_model("Qwen/Qwen3-0.6B-GGUF", download=True)
        """
        return self.cluster.deploy(model_name, **how)

    def inference(self, deployment_id: str, prompt: str, **how: Any) -> Json:
        """Let a model continue the text `prompt`, and return `{text, usage, deployment_id}`.

        `how` accepts `max_tokens`, `temperature` and `stop_sequences`.

        Example:
            print(manager.inference(deployment_id="qwen", prompt="Once upon a time")["text"])
        """
        return self.cluster.infer(deployment_id, prompt, **how)
