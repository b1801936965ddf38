"""A fake runner that leases a job over the worker API and handles files and output as a test says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jobs.hosts.requirements import Offer
from jobs.models import Device
from jobs.store import Store
from jobs.store.work.leases import Grant
from jobs.worker.api.api_files import JobFiles
from jobs.worker.api.api_store import ApiStore
from tests.contract.api_transport import Served
from tests.contract.lease_model import new_job

OFFER: Offer = {"cpus": 4, "memory_mib": 4096, "gpus": [], "host": "h", "labels": [], "tenant": ""}


def written(root: Path, tree: dict[str, bytes]) -> Path:
    for path, data in tree.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return root


class Runner:
    """A worker with a lease of one job."""

    def __init__(self, served: Served, name: str = "r", lease: str = "t") -> None:
        self.api: ApiStore = served.worker(name, Device.RUNNER)
        self.lease = lease

    def takes(self, job: str, want: int = 100) -> Grant:
        found = self.api.slots.next("", [], offer=OFFER)
        assert not isinstance(found, str)
        grant = self.api.leases.lease(job, self.lease, want=want, worker="")
        assert isinstance(grant, Grant)
        return grant

    def files(self, job: str, lease: str = "", **more: Any) -> JobFiles:
        return JobFiles(self.api.api, job, lease or self.lease, **{"patience_seconds": 0.0, **more})


def submit(store: Store, job: str = "j", total: int = 100, queue: str = "runner.normal", **more: Any) -> str:
    store.jobs.submit([new_job(job, total, queue, **more)])
    return job


def running(served: Served, store: Store, job: str = "j", **spec: Any) -> Runner:
    """Return a runner with a lease of a whole job with this specification."""
    submit(store, job, spec=spec, kind="command")
    runner = Runner(served)
    runner.takes(job)
    return runner
