"""Worker API routes of a job's input files and output artifacts. The worker must hold a lease of the job.

Uploaded files belong to the job's tenant. Results of the jobs on which a job depends are also inputs.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query, Request, Response

from coordinator.access.principal import Scope
from coordinator.artifacts import answers, threads, upload_routes
from coordinator.artifacts.answers import Hashes, Sha
from coordinator.artifacts.routes import binary_body, binary_response
from coordinator.server import bodies, http
from coordinator.server.http import json_response
from coordinator.state import shared_state
from coordinator.work import outputs, schemas
from coordinator.work.inputs import Inputs, Which
from coordinator.work.lease_check import LeasedDep
from coordinator.work.results_of_parents import ParentUnit, ResultsOfParents, UnitResults, WantedResults
from jobs.store.work.outputs import LeasedUnits
from threads_protocol import bundles, manifest

routes = http.router(tag="worker", scope=Scope.WORKER)


async def _inputs(request: Request) -> Inputs:
    inputs: Inputs = shared_state(request).inputs
    return inputs


async def _results(request: Request) -> ResultsOfParents:
    cluster = shared_state(request).cluster
    return ResultsOfParents(cluster.artifacts, cluster.store, cluster.queries.jobs.units)


InputsDep = Annotated[Inputs, Depends(_inputs)]
ResultsDep = Annotated[ResultsOfParents, Depends(_results)]
Parent = Annotated[
    str, Query(pattern=r"^([A-Za-z0-9_-]{1,64}:[0-9]{1,7})?$", description="JOB:UNIT if it is a file of a result.")
]
Units = Annotated[
    str, Query(pattern=outputs.UNITS, max_length=8000, description="Units of the lease, such as 3-17,20.")
]


@routes.get("/worker/jobs/{job}/manifest", **binary_response("Manifest (see docs/artifacts.md)"))
async def get_manifest(lease: LeasedDep, inputs: InputsDep, which: Which = "files") -> Response:
    """Return the manifest of the job's input files, or of its items. If the job has no such files, the response is a
    404.
    """
    text = await threads.run(lambda: inputs.manifest(lease, which))
    return Response(text, media_type="application/octet-stream")


@routes.post("/worker/jobs/{job}/results", **http.describe_response(UnitResults, body=WantedResults))
async def get_results(request: Request, lease: LeasedDep, results: ResultsDep) -> Response:
    """Return values and output files of units of the jobs on which this job depends. Other jobs return a 403."""
    wanted: WantedResults = http.parse(WantedResults, await bodies.read_json(request))
    return json_response({"results": await threads.run(lambda: results.read(lease, wanted.units))})


@routes.post(
    "/worker/jobs/{job}/file-bundle", openapi_extra=http.describe_body(Hashes), **binary_response(upload_routes.BUNDLE)
)
async def get_bundle(
    request: Request,
    lease: LeasedDep,
    inputs: InputsDep,
    results: ResultsDep,
    cluster: http.ClusterDep,
    parent: Parent = "",
) -> Response:
    """Download as many of the requested input files as fit into one bundle. Files of other artifacts cause a 403."""
    asked: Hashes = http.parse(Hashes, await bodies.read_json(request))

    def work() -> Response:
        inputs.check(lease, asked.hashes[: bundles.MAX_FILES], "hashes", _hashes(lease, results, parent))
        return answers.bundle_response(cluster.artifacts, lease.tenant, asked.hashes)

    return await threads.run(work)


@routes.get("/worker/jobs/{job}/files/{sha256}", **binary_response("Contents of the file", 206))
async def get_file(
    request: Request,
    sha256: Sha,
    lease: LeasedDep,
    inputs: InputsDep,
    results: ResultsDep,
    cluster: http.ClusterDep,
    parent: Parent = "",
) -> Response:
    """Download an input file of the job, or one range of the file. For a file of another artifact, return a 403."""

    await threads.run(lambda: inputs.check(lease, [sha256], "sha256", _hashes(lease, results, parent)))
    return await answers.file_response(request, cluster.artifacts, lease.tenant, sha256)


def _hashes(lease: LeasedUnits, results: ResultsOfParents, parent: str) -> set[str]:
    job, _, unit = parent.partition(":")
    return results.hashes(lease, ParentUnit(job=job, unit=int(unit))) if parent else set()


async def _tenant(lease: LeasedDep) -> str:
    return lease.tenant


upload_routes.add(routes, "/worker/jobs/{job}", "the job's tenant", Depends(_tenant))


@routes.post(
    "/worker/jobs/{job}/artifacts",
    openapi_extra=binary_body("Manifest (see docs/artifacts.md)"),
    **http.describe_response(schemas.Kept),
)
async def keep(request: Request, lease: LeasedDep, units: Units, cluster: http.ClusterDep) -> Response:
    """Store the output files of some units of the lease as an artifact of the job. Missing files cause a 409."""
    async with bodies.open_bytes(request, manifest.MAX_BYTES) as text:
        kept = await threads.run(lambda: outputs.keep(cluster.artifacts, cluster.store.outputs, lease, units, text))
    return json_response({"artifact_id": kept})
