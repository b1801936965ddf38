"""Cache of the fleet (live workers and waiting work) for scheduling decisions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from functools import lru_cache
from statistics import median

from coordinator import decoding
from coordinator.jobs import scheduler
from coordinator.jobs.caches.worker_table import WorkerTable
from jobs.hosts import labels
from jobs.hosts.requirements import Offer
from jobs.models import Device
from jobs.store import Store, services, unreadable_entries
from jobs.store.fleet_reads import Load

#: Maximum age of the cached fleet in seconds.
FLEET_SECONDS = 0.25


class FleetCache:
    """Caches the fleet for one coordinator. A thread that finds the cached fleet too old reads it again."""

    def __init__(self, store: Store, table: WorkerTable) -> None:
        self._store = store
        self._table = table
        self._seen: tuple[float, scheduler.Fleet] | None = None

    def get(self) -> scheduler.Fleet:
        """Return the fleet, at most FLEET_SECONDS old."""
        now = time.monotonic()  # measure the age from the start of the read
        if (fleet := self.fresh()) is not None:
            return fleet
        fleet = read_fleet(self._store, self._table)
        self._seen = now, fleet
        return fleet

    def fresh(self) -> scheduler.Fleet | None:
        """Return the cached fleet if it is recent enough, otherwise None."""
        seen = self._seen
        return seen[1] if seen is not None and time.monotonic() - seen[0] < FLEET_SECONDS else None

    def forget(self) -> None:
        """Discard the cached fleet."""
        self._seen = None


def read_fleet(store: Store, table: WorkerTable) -> scheduler.Fleet:
    load = store.fleet_reads.load()
    workers, _ = table.read(store)
    alive = [(worker.name, worker.fields) for worker, is_alive in workers if is_alive]
    required = labels.required_labels_by_tenant(load.shares)
    whole = _fleet(load, alive)
    parts = {
        wanted: _fleet(load, [one for one in alive if _has_labels(one[1], wanted)]) for wanted in set(required.values())
    }
    names = _service_names(
        store, [each for fleet in (whole, *parts.values()) for each in _replica_jobs(fleet).values()]
    )
    parts = {wanted: replace(part, services=_services(part, names)) for wanted, part in parts.items()}
    return replace(whole, required=required, labelled=parts, services=_services(whole, names))


def _replica_jobs(fleet: scheduler.Fleet) -> dict[str, list[str]]:
    """Return the jobs of running replicas by the name of their runner."""
    return {runner: jobs for runner, offer in fleet.beside_replicas.items() if (jobs := offer.get("replica_jobs"))}


def _service_names(store: Store, jobs: Sequence[Sequence[str]]) -> dict[str, tuple[str, str]]:
    """Return the name and the tenant of each service by its ID."""
    ids = sorted({services.parse_job_id(job)[0] for several in jobs for job in several} - {""})
    return {one.service_id: (one.name, one.tenant) for one in store.services.by_ids(ids)} if ids else {}


def _services(fleet: scheduler.Fleet, names: Mapping[str, tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    return {
        runner: [names[service] for job in jobs if (service := services.parse_job_id(job)[0]) in names]
        for runner, jobs in _replica_jobs(fleet).items()
    }


def _has_labels(fields: Mapping[bytes, bytes], wanted: Set[str]) -> bool:
    return wanted <= set(labels.split_labels(fields.get(b"labels", b"").decode(errors="replace")))


def _fleet(load: Load, alive: Sequence[tuple[str, Mapping[bytes, bytes]]]) -> scheduler.Fleet:
    """Build the fleet from workers, each a pair of name and Redis hash."""
    served = [(name, fields) for name, fields in alive if b"device" in fields]
    known = [(name, fields) for name, fields in served if fields.get(b"drain") != b"1"]
    drained = [(name, fields[b"device"]) for name, fields in served if fields.get(b"drain") == b"1"]
    cordoned = [(name, fields) for name, fields in known if fields.get(b"cordoned")]
    sound = [(name, fields) for name, fields in known if not fields.get(b"cordoned")]
    able = [(name, fields) for name, fields in sound if fields.get(b"state") != b"parked"]
    starting = [(name, fields[b"device"]) for name, fields in able if fields.get(b"state") == b"starting"]
    compiling = [(name, fields) for name, fields in able if fields.get(b"compiling")]
    count, idle, lanes = Counter[Device](), Counter[Device](), Counter[Device]()
    kinds: dict[Device, dict[bytes, Mapping[str, int]]] = {}
    for device, has_lanes, is_idle, text, versions in unreadable_entries.readable("worker", able, _ability):
        count[device] += 1
        idle[device] += is_idle
        lanes[device] += has_lanes
        kinds.setdefault(device, {})[text] = versions
    shares = [(name, share) for name, share in load.shares.items() if b"|" not in name]
    work = unreadable_entries.readable("figure", load.work.items(), lambda queue, ms: (queue.decode(), int(ms) / 1000))
    speeds = unreadable_entries.readable("figure", load.paces.items(), _parse_speed)
    runners = [(name, fields[b"offer"]) for name, fields in able if b"offer" in fields]
    resting = [(name, fields) for name, fields in served if b"offer" in fields and _is_resting(fields)]
    reported = [(name, fields[b"beside_replicas"]) for name, fields in able if b"beside_replicas" in fields]
    offers = dict(unreadable_entries.readable("worker", reported, lambda name, text: (name, decoding.parse_json(text))))
    slots = dict(unreadable_entries.readable("worker", runners, lambda name, _: (name, _slots(dict(able)[name]))))
    return scheduler.Fleet(
        beside_replicas=offers,
        slots={name: total for name, (total, _) in slots.items()},
        free_slots={name: free for name, (_, free) in slots.items()},
        reserved={
            name: fields[b"reserved"].decode(errors="replace")
            for name, fields in able
            if b"offer" in fields and fields.get(b"reserved")
        },
        runners=dict(
            unreadable_entries.readable("worker", runners, lambda name, text: (name, decoding.parse_json(text)))
        ),
        resting=dict(unreadable_entries.readable("worker", resting, _resting)),
        parked=len(sound) - len(able),
        cordoned=dict(unreadable_entries.readable("worker", cordoned, _cordon)),
        drained=Counter(unreadable_entries.readable("worker", drained, _device)),
        workers=count,
        idle=idle,
        lanes=lanes,
        starting=Counter(unreadable_entries.readable("worker", starting, _device)),
        load_seconds={queue: max(0.0, seconds) for queue, seconds in work},
        speeds=_lane_speeds(dict(speeds)),
        kinds={device: tuple(each.values()) for device, each in kinds.items()},
        compiling=dict(unreadable_entries.readable("worker", compiling, _compiling)),
        waiting=load.waiting,
        weights=dict(unreadable_entries.readable("figure", shares, _weight)),
    )


def _slots(fields: Mapping[bytes, bytes]) -> tuple[int, int]:
    """Return the number of a runner's slots, and how many of them are free."""
    slots = int(fields.get(b"lanes", 0))
    return slots, max(0, slots - int(fields.get(b"busy_lanes", 0)))


def _device(_name: str, stored: bytes) -> Device:
    return Device(stored.decode())


def _cordon(name: str, fields: Mapping[bytes, bytes]) -> tuple[str, tuple[Device, str]]:
    return name, (Device(fields[b"device"].decode()), fields[b"cordoned"].decode(errors="replace"))


def _compiling(name: str, fields: Mapping[bytes, bytes]) -> tuple[str, tuple[Device, frozenset[str]]]:
    return name, (Device(fields[b"device"].decode()), frozenset(fields[b"compiling"].decode().split(",")))


def _is_resting(fields: Mapping[bytes, bytes]) -> bool:
    return fields.get(b"drain") == b"1" or bool(fields.get(b"cordoned"))


def _resting(name: str, fields: Mapping[bytes, bytes]) -> tuple[str, tuple[Offer, str]]:
    """Return the resources of a runner that accepts no work, and the reason."""
    why = fields.get(b"cordoned", b"").decode(errors="replace")
    if not why:
        why = f"it is drained; reactivate it with: cluster drain {name} --off"
    return name, (decoding.parse_json(fields[b"offer"]), why)


def _ability(_name: str, fields: Mapping[bytes, bytes]) -> tuple[Device, int, bool, bytes, Mapping[str, int]]:
    """Return a worker's device, lanes, idle state, and the versions of its kinds, both as text and parsed."""
    text, is_idle = fields.get(b"kinds", b"{}"), fields.get(b"state") == b"idle"
    return Device(fields[b"device"].decode()), int(fields.get(b"lanes", 0)), is_idle, text, _versions(text)


@lru_cache(maxsize=64)
def _versions(text: bytes) -> Mapping[str, int]:
    return {name: int(version) for name, version in decoding.parse_json(text).items()}


def _weight(tenant: bytes, share: bytes) -> tuple[str, int]:
    return tenant.decode(), int(share.partition(b"|")[0])


def _parse_speed(field: bytes, stored: bytes) -> tuple[str, str]:
    Device(field.decode().rpartition("|")[2])
    if decoding.parse_finite(stored.decode()) <= 0:
        raise ValueError("the speed must be positive")
    return field.decode(), stored.decode()


def _lane_speeds(paces: Mapping[str, str]) -> dict[Device, float]:
    """Return the speed of a lane relative to the kinds' estimates, by device: the median of the measured speeds."""
    measured: dict[Device, list[float]] = {}
    for field, pace in paces.items():
        measured.setdefault(Device(field.rpartition("|")[2]), []).append(float(pace))
    return {device: median(values) for device, values in measured.items()}
