"""Read workers and queues from Redis for the API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from coordinator import decoding
from coordinator.fleet import scaler, serializers
from coordinator.jobs.caches.worker_table import LOST_SECONDS, StoredWorker, WorkerTable
from coordinator.jobs.queries import JobQueries
from jobs import VERSION, queues
from jobs.models import Device
from jobs.settings import Settings
from jobs.store import Store, unreadable_entries
from threads_protocol.answers import fleet as answers


class FleetQueries:
    """Queries of workers, queues and fleet statistics."""

    def __init__(self, store: Store, settings: Settings, jobs: JobQueries, table: WorkerTable) -> None:
        self._store = store
        self._settings = settings
        self._jobs = jobs
        self._table = table
        #: Parsed reports of workers, by the stored report.
        self._stated: dict[StoredWorker, serializers.WorkerReport] = {}

    def workers(self) -> list[answers.Worker]:
        """Return live workers, and workers lost within the last LOST_SECONDS."""
        known, now = self._table.read(self._store)
        before = self._stated
        new = [(one.name, one) for one, _ in known if one not in before]
        read = unreadable_entries.readable(
            "worker", new, lambda name, one: (one, serializers.parse_report(name, decoding.decode_fields(one.fields)))
        )
        said = before | dict(read) if read else before
        self._stated = {one: said[one] for one, _ in known if one in said} if read else before
        workers = [serializers.serialize_worker(said[one], alive, now) for one, alive in known if one in said]
        return serializers.remove_repeated_gpus(
            [worker for worker in workers if worker["seen_seconds_ago"] < LOST_SECONDS]
        )

    def queues(self) -> list[answers.Queue]:
        """Return the number of jobs and the longest wait of every queue.

        Jobs whose kind or version no worker supports are included.
        """
        heads = self._store.fleet_reads.queue_heads()
        created = self._store.job_reads.submission_times(list({head.first for head in heads if head.first}))
        ringing = self._store.fleet_reads.count_wakeups()
        now = self._store.clock.now()
        shown: list[answers.Queue] = []
        for queue in queues.ALL:
            mine = [head for head in heads if head.queue == queue]
            oldest = min((created[head.first] for head in mine if head.first in created), default=now)
            wait = round(max(0.0, now - oldest), 3)
            depth = sum(head.depth for head in mine)
            shown.append({"queue": queue, "jobs": depth, "bells": ringing[queue], "oldest_wait_seconds": wait})
        return shown

    def desired_workers(self) -> dict[str, int]:
        """Return the desired number of workers by device, or an empty dictionary if no leader calculates it."""
        return {device.value: scale.workers for device, scale in scaler.scales(self._store).items()}

    def status(
        self,
        workers: Sequence[answers.Worker] | None = None,
        by_queue: Sequence[answers.Queue] | None = None,
        *,
        tenant: str | None = None,
    ) -> answers.Status:
        """Return statistics of the fleet, and of the jobs of one tenant or of all tenants.

        Pass `workers` and `by_queue` if they have just been read.
        """
        workers, by_queue = workers or self.workers(), by_queue or self.queues()
        live = [worker for worker in workers if worker["live"]]
        status: answers.Status = {
            "version": VERSION,
            "cluster_size": self._settings.expected_workers() or None,
            "desired_workers": self.desired_workers(),
            "workers": _counts(live),
            "lanes": sum(worker["lanes"] for worker in live),
            "jobs": self._jobs.counts(tenant),
            "queues": {row["queue"]: row["jobs"] for row in by_queue if row["jobs"]},
            "oldest_wait_seconds": max(row["oldest_wait_seconds"] for row in by_queue),
            "units_per_second": self._jobs.units_per_second(tenant),
        }
        if compiling := sorted({kind for worker in live for kind in worker.get("compiling", ())}):
            status["compiling"] = compiling
        return status


def _counts(live: Sequence[answers.Worker]) -> answers.WorkerCounts:
    """Count live workers: in total, ready ones, and by device and state."""
    ready = sum(worker["state"] != "starting" for worker in live)
    return {
        "live": len(live),
        "ready": ready,
        "cpu": _states(live, Device.CPU),
        "gpu": _states(live, Device.GPU),
        "runner": _states(live, Device.RUNNER),
    }


def _states(live: Sequence[answers.Worker], device: Device) -> dict[str, int]:
    return dict(Counter(worker["state"] for worker in live if worker["device"] == device))
