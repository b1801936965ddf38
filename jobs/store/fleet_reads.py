"""Reads of workers and queues, for people and for decisions. One or two round trips each.

A key of another type counts as missing, and is noted in `skipped`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jobs import queues
from jobs.models import Device
from jobs.store import keys, skipped
from jobs.store.scripts import Part


class KnownWorker(NamedTuple):
    """A worker's hash, and when it counts as dead, in ms of Redis' clock; None when that was noticed already."""

    fields: Mapping[bytes, bytes]
    expiry_ms: float | None


class Capacity(NamedTuple):
    """Load and workers, from which decisions about new jobs are made."""

    #: Milliseconds of one lane's work that wait or run, by queue.
    load: Mapping[bytes, bytes]
    #: Measured speed over the kind's estimate, by kind|mode|device.
    paces: Mapping[bytes, bytes]
    #: (device, name) of each live worker, and its fields lanes, drain and kinds.
    workers: list[tuple[tuple[Device, bytes], Sequence[bytes | None]]]


class QueueHead(NamedTuple):
    """One place in which jobs of a queue wait."""

    queue: str
    #: Jobs that wait in this place.
    depth: int
    #: The job that waits there longest; empty for none.
    first: str


class FleetReads(Part):
    """Reads what is stored of workers and queues; changes nothing."""

    def known_workers(self, since: float) -> tuple[list[tuple[str, KnownWorker]], float]:
        """Return workers that were heard of after `since`, by name, and Redis' time; both in seconds since 1970."""
        [members] = skipped.replies(self._pipe().zrangebyscore(keys.NODES, since * 1000, "+inf"))
        names = sorted(member.decode(errors="replace") for member in members or ())
        pipe = self._pipe()
        for name in names:
            pipe.hgetall(keys.worker(name)).zscore(keys.WORKERS, name)
        *replies, (seconds, micros) = skipped.replies(pipe.time())
        stored = zip(names, replies[::2], replies[1::2], strict=True)
        known = [(name, KnownWorker(fields, expiry)) for name, fields, expiry in stored if fields]
        return known, seconds + micros / 1e6

    def lost_workers(self, names: Iterable[str]) -> dict[str, int]:
        """Return, of those that do not live, the last heartbeat in ms of Redis' clock; 0 where none is known."""
        asked = sorted(set(names))
        pipe = self._pipe()
        for name in asked:
            pipe.zscore(keys.WORKERS, name).hget(keys.worker(name), "seen")
        *replies, (seconds, micros) = skipped.replies(pipe.time())
        now = seconds * 1000 + micros // 1000
        stored = zip(asked, zip(replies[::2], replies[1::2], strict=True), strict=True)
        silent = [(name, seen) for name, (expiry, seen) in stored if expiry is None or expiry <= now]
        return dict(skipped.readable("worker", silent, lambda name, seen: (name, int(seen or 0))))

    def capacity(self) -> Capacity:
        """Return the load, the paces and the live workers."""
        seconds, _ = self._client.time()  # scores are of Redis' clock, which need not be ours
        pipe = self._pipe().hgetall(keys.LOAD).hgetall(keys.PACE)
        devices = (Device.CPU, Device.GPU)
        for device in devices:
            pipe.zrangebyscore(keys.workers_of(device), (seconds - 1) * 1000, "+inf")
        load, paces, *alive = skipped.replies(pipe)
        names = [(device, name) for device, members in zip(devices, alive, strict=True) for name in members or ()]
        return Capacity(load or {}, paces or {}, list(zip(names, self._abilities(names), strict=True)))

    def _abilities(self, names: Sequence[tuple[Device, bytes]]) -> list[Any]:
        pipe = self._pipe()
        for _, name in names:
            pipe.hmget(keys.worker("").encode() + name, "lanes", "drain", "kinds")
        return skipped.replies(pipe) if names else []

    def queue_heads(self) -> list[QueueHead]:
        """Return what waits in each queue, and beside it what its workers lack: a queue comes more than once."""
        [members] = skipped.replies(self._pipe().smembers(keys.LACKED))
        lacked = [member.decode(errors="replace") for member in members or ()]
        places = [(queue, keys.pending(queue)) for queue in queues.ALL]
        places += [(member.partition(":")[0], keys.lacked_member(member)) for member in lacked]
        pipe = self._pipe()
        for _, place in places:
            pipe.zcard(place).zrange(place, 0, 0)
        replies = skipped.replies(pipe)
        return [
            QueueHead(queue, depth or 0, ids[0].decode(errors="replace") if ids else "")
            for (queue, _), depth, ids in zip(places, replies[::2], replies[1::2], strict=True)
        ]

    def bells_waiting(self) -> dict[str, int]:
        """Count the bells in each queue."""
        pipe = self._pipe()
        for queue in queues.ALL:
            pipe.llen(keys.rq_queue(queue))
        return dict(zip(queues.ALL, pipe.execute(), strict=True))
