"""What the API shows of workers and queues, read from Redis and shaped. Reads only."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from coordinator import decoding
from coordinator.fleet import rows
from coordinator.jobs.queries import JobQueries
from jobs import VERSION, queues
from jobs.models import Device
from jobs.settings import Settings
from jobs.store import Store, keys, skipped

P = keys.PREFIX
#: A worker is shown for this long after its last sign of life.
LOST_SECONDS = 3600
_DEVICES = (Device.CPU, Device.GPU)


class FleetQueries:
    def __init__(self, store: Store, settings: Settings, jobs: JobQueries) -> None:
        self._store = store
        self._settings = settings
        self._jobs = jobs

    def workers(self) -> list[dict[str, Any]]:
        """Workers, live ones and those lost within the hour."""
        client = self._store.client
        since = (time.time() - LOST_SECONDS) * 1000
        [known] = skipped.replies(client.pipeline(transaction=False).zrangebyscore(f"{P}nodes", since, "+inf"))
        names = sorted(decoding.names(known or ()))
        pipe = client.pipeline(transaction=False)
        for name in names:
            pipe.hgetall(f"{P}worker:{name}")
            pipe.zscore(f"{P}workers", name)
        pipe.time()
        *replies, (seconds, micros) = skipped.replies(pipe)
        now = seconds + micros / 1e6
        stored = zip(names, replies[::2], replies[1::2], strict=True)
        found = [(name, (row, live)) for name, row, live in stored if row]
        workers = skipped.readable(
            "worker", found, lambda name, both: rows.worker(name, decoding.fields(both[0]), both[1], now)
        )
        return [worker for worker in workers if worker["seen_seconds_ago"] < LOST_SECONDS]

    def queues(self) -> list[dict[str, Any]]:
        """Depth and oldest wait of every queue; jobs whose kind or version no worker has wait too."""
        waiting = self._waiting()
        created = self._created({job_id for _, _, job_id in waiting if job_id})
        ringing = self._store.fleet_reads.bells_waiting()
        now = time.time()
        found = []
        for name in queues.ALL:
            mine = [(depth, job_id) for queue, depth, job_id in waiting if queue == name]
            oldest = min((created[job_id] for _, job_id in mine if job_id in created), default=now)
            found.append(
                {
                    "queue": name, "jobs": sum(depth for depth, _ in mine), "bells": ringing[name],
                    "oldest_wait_seconds": round(max(0.0, now - oldest), 3),
                }
            )  # fmt: skip
        return found

    def _waiting(self) -> list[tuple[str, int, str]]:
        """Queue, number of jobs and the first of them, or empty: of each queue, and of what its workers lack."""
        client = self._store.client
        [lacked] = skipped.replies(client.pipeline(transaction=False).smembers(f"{P}lacked"))
        names = [name.decode(errors="replace") for name in lacked or ()]
        places = [(name, f"{P}pending:{name}") for name in queues.ALL]
        places += [(name.partition(":")[0], f"{P}lacked:{name}") for name in names]
        pipe = client.pipeline(transaction=False)
        for _, place in places:
            pipe.zcard(place).zrange(place, 0, 0)
        replies = skipped.replies(pipe)
        stored = zip(places, replies[::2], replies[1::2], strict=True)
        return [(name, depth or 0, ids[0].decode(errors="replace") if ids else "") for (name, _), depth, ids in stored]

    def _created(self, ids: Iterable[str]) -> dict[str, float]:
        """Seconds since 1970 of each job's submission."""
        pipe, wanted = self._store.client.pipeline(transaction=False), list(ids)
        for job_id in wanted:
            pipe.hget(keys.job(job_id), "created")
        stored = zip(wanted, skipped.replies(pipe), strict=True)
        return dict(skipped.readable("job", stored, lambda job_id, ms: (job_id, int(ms or 0) / 1000)))

    def status(self, workers: list[dict[str, Any]] | None = None, by_queue: list[Any] | None = None) -> dict[str, Any]:
        """The fleet and its jobs in numbers, of these rows of workers and queues where they were just read."""
        workers, by_queue = workers or self.workers(), by_queue or self.queues()
        live = [worker for worker in workers if worker["live"]]
        return {
            "version": VERSION,
            "cluster_size": self._settings.cluster_size or None,
            "workers": _counts(live),
            "lanes": sum(worker["lanes"] for worker in live),
            "jobs": self._jobs.counts(),
            "queues": {row["queue"]: row["jobs"] for row in by_queue if row["jobs"]},
            "oldest_wait_seconds": max(row["oldest_wait_seconds"] for row in by_queue),
            "units_per_second": self._jobs.units_per_second(),
        }


def _counts(live: list[dict[str, Any]]) -> dict[str, Any]:
    """Live workers: in all, those that started, and by device and state."""
    states = {device: Counter(worker["state"] for worker in live if worker["device"] == device) for device in _DEVICES}
    ready = sum(worker["state"] != "starting" for worker in live)
    return {"live": len(live), "ready": ready, **{device.value: dict(count) for device, count in states.items()}}
