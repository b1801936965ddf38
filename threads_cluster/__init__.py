"""Access to a cluster from Python (`Cluster`) and from a shell (`cluster`). This package uses only HTTP.

Names are imported on first use, so that help and completion of the command are fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threads_cluster.client.api import Cluster
    from threads_cluster.compat.cluster_client import ClusterClient
    from threads_cluster.compat.pycluster import LLMClusterManager

__all__ = ["Cluster", "ClusterClient", "LLMClusterManager"]


def __getattr__(name: str) -> Any:
    if name == "ClusterClient":
        from threads_cluster.compat.cluster_client import ClusterClient

        return ClusterClient
    if name == "LLMClusterManager":
        from threads_cluster.compat.pycluster import LLMClusterManager

        return LLMClusterManager
    if name != "Cluster":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from threads_cluster.client.api import Cluster

    return Cluster
