"""Routes for PyCluster clients that start a cluster or read its status.

PyCluster's head node starts workers itself. This coordinator only checks that enough workers are live.
"""

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
    """Body of POST /api/cluster/start."""

    model_config = ConfigDict(extra="forbid", strict=True)

    cluster_name: str = Field("", max_length=64, description="Ignored, because a cluster is identified by its address.")
    n_workers: int = Field(4, ge=1, le=_MOST, description="Required number of live workers.")
    worker_resources: dict[
        Annotated[str, Field(max_length=64)], Annotated[float, Field(ge=0, le=64, allow_inf_nan=False)]
    ] = Field(
        default_factory=dict,
        max_length=16,
        description='Resources of each worker, such as {"GPU": 1}. Only GPU is supported.',
    )

    def gpus(self) -> int:
        """Return the required number of GPU workers. Raise InvalidRequest if the number of GPUs is invalid."""
        for name, count in self.worker_resources.items():
            if name != "GPU":
                raise errors.InvalidRequest(
                    f"worker_resources.{name[:64]}: is not supported; use GPU", field="worker_resources"
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
async def start_cluster(request: Request, cluster: http.ClusterDep) -> Response:
    """Return the status if enough workers are live. Otherwise return 409 with the command that starts workers.

    This call starts no workers. Start them with `./deploy-cluster.sh` on the cluster's machine.
    """
    asked: Start = http.parse(Start, await bodies.read_json(request, empty={}))
    return json_response(await run_in_threadpool(_start, cluster, asked))


def _start(cluster: Cluster, asked: Start) -> answers.Status:
    gpus, workers = asked.gpus(), [worker for worker in cluster.queries.fleet.workers() if worker["live"]]
    on_gpus = sum(worker["device"] == Device.GPU.value for worker in workers)
    computing = sum(worker["device"] != Device.RUNNER.value for worker in workers)
    if computing < asked.n_workers or on_gpus < gpus:
        raise errors.Conflict(
            f"{_describe_workers(computing, on_gpus)}; start them with {_command(asked.n_workers, gpus)}",
            field="n_workers" if computing < asked.n_workers else "worker_resources.GPU",
        )
    return cluster.queries.fleet.status()


def _describe_workers(computing: int, on_gpus: int) -> str:
    live = "1 worker is live" if computing == 1 else f"{computing} workers are live"
    return f"{live}, {on_gpus} of them on GPUs"


def _command(workers: int, gpus: int) -> str:
    containers = f"./deploy-cluster.sh docker {max(workers, gpus)} {gpus}"
    return containers if gpus else f"./deploy-cluster.sh local --workers {workers}, or in containers {containers}"


@routes.get("/cluster/status", **http.describe_response(answers.Status))
def get_cluster_status(cluster: http.ClusterDep, principal: http.PrincipalDep) -> Response:
    """Return the status of the cluster, as GET /api/status does."""
    return json_response(cluster.queries.fleet.status(tenant=principal.only_tenant))
