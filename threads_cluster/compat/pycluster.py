"""Client with PyCluster's interface for language models.

models = LLMClusterManager()
deployment = models.deploy_model("Qwen/Qwen3-0.6B", download=True)
print(models.inference(deployment["deployment_id"], "once upon")["text"])
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, TypeAlias

from threads_cluster.client.api import Cluster

Json: TypeAlias = dict[str, Any]

#: Configuration file of PyCluster.
_FILE = Path("pycluster.yaml")
_NOT_READ = (
    "is not read. Choose the cluster with Cluster(URL) or CLUSTER_URL, set precision and memory as arguments of "
    "deploy_model, and other values as settings: docs/coming-from/pycluster.md lists them"
)


class LLMClusterManager:
    """Client that deploys language models as services. Use it only from one thread.

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
        cluster downloads the model first. `Cluster.services.deploy` describes the other arguments.
        """
        return self.cluster.deploy(model_name, **how)

    def inference(self, deployment_id: str, prompt: str, **how: Any) -> Json:
        """Let a model continue a text, and return `{text, usage, deployment_id}`.

        `how` accepts `max_tokens`, `temperature` and `stop_sequences`.
        """
        return self.cluster.infer(deployment_id, prompt, **how)
