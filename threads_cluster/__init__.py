"""Access to a cluster from Python (`Cluster`) and from a shell (`cluster`). This package uses only HTTP.

Names are imported on first use, so that help and completion of the command are fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threads_cluster.client.api import Cluster
    from threads_cluster.client.async_api import AsyncCluster
    from threads_cluster.client.calling.executor import ClusterExecutor
    from threads_cluster.client.calling.references import Reference
    from threads_cluster.client.calling.tasks import Task, as_completed
    from threads_cluster.client.checkouts import NotRunning
    from threads_cluster.client.dask_clients import NotReached
    from threads_cluster.client.models import DownloadFailed
    from threads_cluster.client.private_files import UnusableFile
    from threads_cluster.client.programs import Ended, Program
    from threads_cluster.client.services import Died
    from threads_cluster.client.trees import UnsafeArtifact
    from threads_cluster.compat.cluster_client import ClusterClient
    from threads_cluster.compat.pycluster import LLMClusterManager
    from threads_cluster.errors import (
        ApiError,
        BadArgument,
        BrokenOff,
        CallFailed,
        CallTimedOut,
        ClientError,
        JobEnded,
        Misconfigured,
        NoRunner,
        RemoteTraceback,
        TimedOut,
        TooSlow,
        Unauthorized,
        UnexpectedAnswer,
        UnitFailed,
        Unreachable,
        ValueNotStored,
    )
    from threads_cluster.joblib_backend import register_joblib as register_joblib

__all__ = [
    "ApiError",
    "AsyncCluster",
    "BadArgument",
    "BrokenOff",
    "CallFailed",
    "CallTimedOut",
    "ClientError",
    "Cluster",
    "ClusterClient",
    "ClusterExecutor",
    "Died",
    "DownloadFailed",
    "Ended",
    "JobEnded",
    "LLMClusterManager",
    "Misconfigured",
    "NoRunner",
    "NotReached",
    "NotRunning",
    "Program",
    "Reference",
    "RemoteTraceback",
    "Task",
    "TimedOut",
    "TooSlow",
    "Unauthorized",
    "UnexpectedAnswer",
    "UnitFailed",
    "Unreachable",
    "UnsafeArtifact",
    "UnusableFile",
    "ValueNotStored",
    "as_completed",
]

#: Modules of the public names that are not errors. `register_joblib` is not in `__all__`, because it needs joblib.
_MODULES = {
    "AsyncCluster": "client.async_api",
    "Cluster": "client.api",
    "ClusterExecutor": "client.calling.executor",
    "Reference": "client.calling.references",
    "ClusterClient": "compat.cluster_client",
    "Died": "client.services",
    "DownloadFailed": "client.models",
    "Ended": "client.programs",
    "LLMClusterManager": "compat.pycluster",
    "NotReached": "client.dask_clients",
    "NotRunning": "client.checkouts",
    "Program": "client.programs",
    "Task": "client.calling.tasks",
    "UnsafeArtifact": "client.trees",
    "UnusableFile": "client.private_files",
    "as_completed": "client.calling.tasks",
    "register_joblib": "joblib_backend",
}


def __getattr__(name: str) -> Any:
    if name not in __all__ and name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
