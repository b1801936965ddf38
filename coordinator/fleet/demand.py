"""Work that workers are needed for, from the rows of `jobs.store.work.demand`. Pure.

What nobody may compute now does not count: paused jobs, those that a cap holds back or defers to another day, GPU work
of a tenant that has used the GPU seconds of its day, work of a tenant that requires labels which further workers would
not have. Work that runs counts like work that waits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from functools import partial
from statistics import median

from coordinator import decoding
from coordinator.fleet.desired import DEVICES, Work
from jobs.hosts.labels import required_in
from jobs.models import Device
from jobs.store import skipped
from jobs.store.work.demand import FIELDS, Demand
from threads_protocol.states import JobState

_HELD = {JobState.RUNNING.value, JobState.FINISHING.value, JobState.QUEUED.value}
_WAITING = {JobState.QUEUED.value}
#: Seconds of a job of which no work is left to be leased: it needs a worker, and no more than one.
_HARDLY_ANY = 0.001
#: Speeds over the estimate that a figure may have: others would be infinities or nothing in what is computed of them.
_SPEEDS = (1e-9, 1e9)

Row = tuple[Sequence[bytes | None], float]
#: Speed of a lane over the kind's estimate, by kind|mode|device, and by device where a kind's is not known.
Paces = Mapping[str, float]


def work(demand: Demand, labels: Set[str] = frozenset()) -> list[Work]:
    """Return the jobs that can be computed now by workers with these labels. Jobs that cannot be read are skipped."""
    paces = _paces(demand)
    barred = {tenant for tenant, wanted in required_in(demand.shares).items() if not wanted <= labels}
    read = partial(_work, paces=paces, capped=demand.capped, barred=barred)
    rows = skipped.readable("job", demand.running, partial(read, states=_HELD))
    rows += skipped.readable("job", demand.waiting, partial(read, states=_WAITING))
    rows += [
        Work(jobs=count, seconds=_HARDLY_ANY, paces={device: paces[device] for device in _devices(queue)})
        for queue, count in demand.unsupported.items()
    ]
    return [each for each in rows if each and each.paces and each.jobs]


def max_lanes(demand: Demand) -> dict[str, int]:
    """Return the caps on lanes, of tenants that have one."""
    tenants = [(name, text) for name, text in demand.shares.items() if b"|" not in name]
    caps = skipped.readable("figure", tenants, lambda name, text: (name.decode(), int(text.split(b"|")[1])))
    return {name: cap for name, cap in caps if cap > 0}


def _paces(demand: Demand) -> dict[str, float]:
    measured = dict(skipped.readable("figure", demand.paces.items(), _pace))
    known = {device: [pace for name, pace in measured.items() if name.endswith(f"|{device}")] for device in DEVICES}
    return measured | {device.value: median(several) if several else 1.0 for device, several in known.items()}


def _pace(name: bytes, text: bytes) -> tuple[str, float]:
    pace = decoding.parse_finite(text.decode())
    if not _SPEEDS[0] <= pace <= _SPEEDS[1]:
        raise ValueError("it is no speed")
    return name.decode(), pace


def _devices(queue: str) -> tuple[Device, ...]:
    device = Device(queue.partition(".")[0])
    return DEVICES if device is Device.ANY else tuple({device}.intersection(DEVICES))


def _work(job_id: str, row: Row, *, paces: Paces, capped: Set[str], barred: Set[str], states: Set[str]) -> Work | None:
    """Return a job's part of the work; None when nobody may compute it now."""
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
    """Return the most lanes that can compute the job at once: it is cut on its grain."""
    if job["small"] == "1":
        return 1
    pieces = max(1, math.ceil((int(job["total"]) - int(job["done"] or 0)) / int(job["grain"])))
    return min(pieces, max(0, int(job["max_running"] or 0)) or math.inf)
