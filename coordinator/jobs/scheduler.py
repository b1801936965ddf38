"""Decisions, pure: state in, answers out. Knows neither Redis nor HTTP."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jobs import errors, queues
from jobs.models import Device, Place, Plan, Priority, Spent

#: Below this many seconds of one lane, a job takes the fast path.
SMALL_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Live workers and waiting work, as far as decisions need them."""

    #: Lanes of live workers by device.
    lanes: Mapping[Device, int] = field(default_factory=dict)
    #: Estimated seconds of one lane's work that wait or run, by queue.
    load_seconds: Mapping[str, float] = field(default_factory=dict)
    #: Estimated seconds of work that a lane of each device does in one; 1 where nothing is measured yet.
    speeds: Mapping[Device, float] = field(default_factory=dict)
    #: Versions of kinds' models that live workers of each device compute, a mapping a worker; empty: unknown.
    kinds: Mapping[Device, Sequence[Mapping[str, int]]] = field(default_factory=dict)

    def alive(self, device: Device) -> bool:
        return self.lanes.get(device, 0) > 0


@dataclass(frozen=True, kw_only=True)
class Route:
    queue: str
    device: Device
    #: May move to the any queue when no GPU worker lives.
    prefer: bool = False
    notes: tuple[str, ...] = ()


def route(plan: Plan, device: Device, gpu_preferred: bool, priority: Priority, fleet: Fleet) -> Route:
    """Return the queue of a new job. InvalidRequest when no kernel exists for the device that was asked for."""
    able = set(plan.devices)
    if device is not Device.ANY and device not in able:
        have = ", ".join(sorted(able)) + _reason(plan)
        raise errors.InvalidRequest(f"device {device} has no kernel for this job; it runs on {have}", field="device")
    if gpu_preferred:
        return _preferred(plan, priority, fleet)
    if device is Device.ANY and len(able) == 1:
        device = next(iter(able))
    return Route(queue=queues.name(device, priority), device=device)


def _reason(plan: Plan) -> str:
    return f" ({plan.cpu_only})" if plan.cpu_only else ""


def _preferred(plan: Plan, priority: Priority, fleet: Fleet) -> Route:
    if Device.GPU not in plan.devices:
        note = "runs on cpu: there is no gpu kernel for this job" + _reason(plan)
        return Route(queue=queues.name(Device.CPU, priority), device=Device.CPU, notes=(note,))
    gpu, anywhere = queues.name(Device.GPU, priority), queues.name(Device.ANY, priority)
    if not fleet.alive(Device.GPU):
        return Route(queue=anywhere, device=Device.ANY, notes=("no gpu worker lives: any device may take it",))
    if (estimated_wait(gpu, fleet) or 0.0) > (estimated_wait(anywhere, fleet) or 0.0):
        return Route(queue=anywhere, device=Device.ANY, notes=("the wait for a gpu is longer: any device may take it",))
    return Route(queue=gpu, device=Device.GPU, prefer=True)


def _devices_of(queue: str) -> set[Device]:
    device = Device(queue.partition(".")[0])
    return {Device.CPU, Device.GPU} if device is Device.ANY else {device}


def estimated_wait(queue: str, fleet: Fleet) -> float | None:
    """Return seconds until a new job of this queue starts: work of its priority and above over the workers' speed.

    None when no live worker serves the queue.
    """
    mine = _devices_of(queue)
    speed = sum(fleet.lanes.get(device, 0) * fleet.speeds.get(device, 1.0) for device in mine)
    if not speed:
        return None
    order = list(Priority)
    rank = order.index(queues.priority_of(queue))
    ahead = sum(
        seconds
        for other, seconds in fleet.load_seconds.items()
        if order.index(queues.priority_of(other)) <= rank and _devices_of(other) & mine
    )
    return round(ahead / speed, 3)


def is_small(plan: Plan) -> bool:
    return plan.cpu_seconds <= SMALL_SECONDS


def waiting_because(
    state: str, queue: str, place: Place, holders: int, fleet: Fleet, kind: str = "", version: int = 0,
    max_running: int = 0,
) -> str | None:  # fmt: skip
    """Return why a job does not run now; None when it does or has ended. `place`: where it waits.

    `kind` and `version`: of the job; without them every worker of its queue is taken to compute it.
    """
    if state == "paused":
        return "paused; resume it to go on"
    if place.in_backlog is not None:
        return _held(place, place.in_backlog)
    if state not in ("queued", "running") or holders > 0:
        return None
    if spent := _spent(queue, place, fleet):
        return _tomorrow(spent, place.tenant, kind)
    if estimated_wait(queue, fleet) is None:
        return f"no live worker serves the queue {queue}"
    able = [kinds for device in _devices_of(queue) for kinds in fleet.kinds.get(device, ())]
    if kind and able and all(able) and not any(kinds.get(kind) == version for kinds in able):
        return f"{_lacking(kind, version, able)}; it goes on when a worker with that version lives"
    if place.before is None:
        return _leased_out(state, kind, place, max_running)
    return _in_turn(queue, place, place.before, fleet)


def _held(place: Place, before: int) -> str:
    """Return why a job is in its tenant's backlog."""
    cap = f"tenant {place.tenant} has reached max_jobs ({place.max_jobs} that wait or run)"
    return f"{cap}; {_before(before, 'its backlog')}"


def _spent(queue: str, place: Place, fleet: Fleet) -> Spent | None:
    """Return the daily cap that keeps a job from starting: that on GPU seconds only where no CPU may compute it."""
    gpu_alone = Device.CPU not in _devices_of(queue) or not fleet.alive(Device.CPU)
    return place.units or (place.gpu if gpu_alone and Device.GPU in _devices_of(queue) else None)


def _tomorrow(spent: Spent, tenant: str, kind: str) -> str:
    what = f"units of {kind}" if spent.cap == "max_units" else "GPU seconds"
    cap = f"tenant {tenant} has reached {spent.cap} ({spent.used:.15g} of {spent.most:.15g} {what} today)"
    return f"{cap}; it goes on at 00:00 UTC, in {math.ceil(spent.seconds)} s"


def _leased_out(state: str, kind: str, place: Place, max_running: int) -> str:
    """Return why a job that nobody holds is not in its queue."""
    if 0 < max_running <= place.leases:
        lanes = "lane computes" if max_running == 1 else "lanes compute"
        return f"it has reached max_running: {max_running} {lanes} it"
    return "its last leases are being computed" if state == "running" else f"every worker with {kind} is busy"


def _lacking(kind: str, version: int, able: Sequence[Mapping[str, int]]) -> str:
    have = ", ".join(str(other) for other in sorted({kinds[kind] for kinds in able if kind in kinds}))
    other = f"they have version {have}" if have else "they lack the kind"
    return f"no live worker of its queue computes version {version} of {kind}: {other}"


def _before(before: int, where: str, whose: str = "") -> str:
    """Return a job's place; `whose`: of which jobs alone, such as those of its tenant."""
    if not before:
        return f"it is {f'the next{whose}' if whose else 'next'} in {where}"
    jobs, are = ("job", "is") if before == 1 else ("jobs", "are")
    return f"{before} {jobs}{whose} {are} before it in {where}"


def _in_turn(queue: str, place: Place, before: int, fleet: Fleet) -> str:
    """Return the job's place in its queue, and what is served before: queues of higher priority, other tenants."""
    turn = _before(before, f"the queue {queue}")
    if place.tenant:
        turn = _before(before, f"the queue {queue}", " of its tenant")
    if place.max_lanes:
        return f"tenant {place.tenant} has reached max_lanes ({place.max_lanes}); {turn}"
    above = queues.higher(queue, tuple(fleet.load_seconds))
    busy = [other for other in above if fleet.load_seconds[other] and _devices_of(other) & _devices_of(queue)]
    if busy:
        return f"work of a higher priority is served first ({', '.join(busy)}); {turn} after that"
    if place.tenants_before:
        several = "tenant was given less and goes" if place.tenants_before == 1 else "tenants were given less and go"
        return f"{place.tenants_before} other {several} first; {turn}"
    return turn if before else f"every worker is busy; {turn}"
