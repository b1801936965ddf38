"""The cluster's start and status by the words of PyCluster, whose head node starts its workers by itself."""

from __future__ import annotations

from typing import Annotated

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from coordinator.access.principal import Scope
from coordinator.cluster import Cluster
from coordinator.server import bodies, http
from coordinator.server.http import json_response
from jobs import errors
from jobs.models import Device
from threads_protocol.answers import fleet as answers

routes = http.router(tag="cluster")

_MOST = 10_000


class Start(BaseModel):
    """The body of POST /api/cluster/start."""

    model_config = ConfigDict(extra="forbid", strict=True)

    cluster_name: str = Field("", max_length=64, description="Taken, and not used: a cluster has its address.")
    n_workers: int = Field(4, ge=1, le=_MOST, description="Workers that must live.")
    worker_resources: dict[
        Annotated[str, Field(max_length=64)], Annotated[float, Field(ge=0, le=64, allow_inf_nan=False)]
    ] = Field(default_factory=dict, max_length=16, description='Of each worker: {"GPU": 1}. No other is known.')

    def gpus(self) -> int:
        """Return the GPU workers that are needed: one each GPU. InvalidRequest for what is no number of GPUs."""
        for name, count in self.worker_resources.items():
            if name != "GPU":
                raise errors.InvalidRequest(
                    f"worker_resources.{name[:64]}: is not known; there is GPU", field="worker_resources"
                )
            if count % 1:
                raise errors.InvalidRequest(
                    f"worker_resources.GPU: must be a whole number; got {count:g}", field="worker_resources.GPU"
                )
        return self.n_workers * int(self.worker_resources.get("GPU", 0))


@routes.post(
    "/cluster/start",
    dependencies=[http.require_scope(Scope.READ)],
    **http.describe_response(answers.Status, body=Start),
)
async def start(request: Request, cluster: http.ClusterDep) -> Response:
    """Answer with the status where so many workers live; else 409 with the command that starts them.

    It starts nothing: what starts workers is `./deploy-cluster.sh`, on the machine of the cluster.
    """
    asked: Start = http.parse(Start, await bodies.read_json(request, empty={}))
    return json_response(await run_in_threadpool(_start, cluster, asked))


def _start(cluster: Cluster, asked: Start) -> answers.Status:
    gpus, workers = asked.gpus(), [worker for worker in cluster.queries.fleet.workers() if worker["live"]]
    on_gpus = sum(worker["device"] == Device.GPU.value for worker in workers)
    computing = sum(worker["device"] != Device.RUNNER.value for worker in workers)
    if computing < asked.n_workers or on_gpus < gpus:
        raise errors.Conflict(
            f"{_lack(computing, on_gpus)}; start them with {_command(asked.n_workers, gpus)}",
            field="n_workers" if computing < asked.n_workers else "worker_resources.GPU",
        )
    return cluster.queries.fleet.status()


def _lack(computing: int, on_gpus: int) -> str:
    live = "1 worker lives" if computing == 1 else f"{computing} workers live"
    return f"{live}, {on_gpus} of them on GPUs"


def _command(workers: int, gpus: int) -> str:
    containers = f"./deploy-cluster.sh docker {max(workers, gpus)} {gpus}"
    return containers if gpus else f"./deploy-cluster.sh local --workers {workers}, or in containers {containers}"


@routes.get("/cluster/status", **http.describe_response(answers.Status))
def status(cluster: http.ClusterDep) -> Response:
    """The same as GET /api/status."""
    return json_response(cluster.queries.fleet.status())
