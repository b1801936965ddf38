"""Calculate the queued and running work that needs workers. No I/O.

Work that no worker can compute now does not count: paused jobs, jobs that a cap holds back or defers to another day,
GPU work of a tenant that has used its daily GPU seconds, and work that requires labels which new workers would lack.
Running work counts like waiting work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from functools import partial
from statistics import median

from coordinator import decoding
from coordinator.fleet.autoscaling import DEVICES, Work
from jobs.hosts.labels import required_labels_by_tenant
from jobs.models import Device
from jobs.store import unreadable_entries
from jobs.store.work.demand import FIELDS, Demand
from threads_protocol.states import JobState

_HELD = {JobState.RUNNING.value, JobState.FINISHING.value, JobState.QUEUED.value}
_WAITING = {JobState.QUEUED.value}
#: Assumed seconds of work of a job that has no range left to lease.
_HARDLY_ANY = 0.001
#: Valid range of a measured speed relative to the estimate.
_SPEEDS = (1e-9, 1e9)

Row = tuple[Sequence[bytes | None], float]
#: Relative speeds of lanes, by `kind|mode|device`. The key `device` has the default for a device.
Paces = Mapping[str, float]


def work(demand: Demand, labels: Set[str] = frozenset()) -> list[Work]:
    """Return the jobs that workers with these labels can compute now. Jobs that cannot be read are skipped."""
    paces = _paces(demand)
    barred = {tenant for tenant, wanted in required_labels_by_tenant(demand.shares).items() if not wanted <= labels}
    read = partial(_work, paces=paces, capped=demand.capped, barred=barred)
    rows = unreadable_entries.readable("job", demand.running, partial(read, states=_HELD))
    rows += unreadable_entries.readable("job", demand.waiting, partial(read, states=_WAITING))
    rows += [
        Work(jobs=count, seconds=_HARDLY_ANY, paces={device: paces[device] for device in _devices(queue)})
        for queue, count in demand.unsupported.items()
    ]
    return [each for each in rows if each and each.paces and each.jobs]


def max_lanes(demand: Demand) -> dict[str, int]:
    """Return the lane caps of the tenants that have one."""
    tenants = [(name, text) for name, text in demand.shares.items() if b"|" not in name]
    caps = unreadable_entries.readable("figure", tenants, lambda name, text: (name.decode(), int(text.split(b"|")[1])))
    return {name: cap for name, cap in caps if cap > 0}


def _paces(demand: Demand) -> dict[str, float]:
    measured = dict(unreadable_entries.readable("figure", demand.paces.items(), _pace))
    known = {device: [pace for name, pace in measured.items() if name.endswith(f"|{device}")] for device in DEVICES}
    return measured | {device.value: median(several) if several else 1.0 for device, several in known.items()}


def _pace(name: bytes, text: bytes) -> tuple[str, float]:
    pace = decoding.parse_finite(text.decode())
    if not _SPEEDS[0] <= pace <= _SPEEDS[1]:
        raise ValueError("the speed is out of range")
    return name.decode(), pace


def _devices(queue: str) -> tuple[Device, ...]:
    device = Device(queue.partition(".")[0])
    return DEVICES if device is Device.ANY else tuple({device}.intersection(DEVICES))


def _work(job_id: str, row: Row, *, paces: Paces, capped: Set[str], barred: Set[str], states: Set[str]) -> Work | None:
    """Return the work of a job, or None if no worker can compute the job now."""
    values, jobs = row
    texts = (value.decode() if value else "" for value in values)
    job = dict(zip(FIELDS, texts, strict=True))
    if job["state"] not in states or job["deferred"] == "1":
        return None
    tenant = job["tenant"]
    if tenant in barred:
        return None
    devices = [device for device in _devices(job["queue"]) if device is Device.CPU or f"gpu:{tenant}" not in capped]
    if not devices:
        return None
    known = {device: paces.get(f"{job['kind']}|{job['mode']}|{device}", paces[device]) for device in devices}
    seconds = max(decoding.parse_finite(job["load"] or "0") / 1000, _HARDLY_ANY)
    return Work(jobs=jobs, seconds=seconds, paces=known, most_lanes=_most_lanes(job), tenant=tenant)


def _most_lanes(job: Mapping[str, str]) -> float:
    """Return the maximum number of lanes that can compute a job at once."""
    if job["small"] == "1":
        return 1
    pieces = max(1, math.ceil((int(job["total"]) - int(job["done"] or 0)) / int(job["grain"])))
    return min(pieces, max(0, int(job["max_running"] or 0)) or math.inf)
