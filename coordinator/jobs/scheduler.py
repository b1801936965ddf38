"""Scheduling decisions as pure functions, without Redis or HTTP."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache

from jobs import errors, queues
from jobs.hosts import requirements
from jobs.hosts.requirements import Offer, Requirements
from jobs.kinds import registry
from jobs.models import DEFAULT_TENANT, QUANTUM_SECONDS, Device, Plan, Priority, QueuePosition, ReachedCap

_NOTHING: Requirements = {}
#: Reason why a runner accepts no job of a tenant.
_ONE_TENANT = "without RUNNER_UIDS it runs jobs of one tenant at a time"
#: Number of digits of a job ID in a reason.
_SHORT_ID = 8
#: Estimated CPU seconds up to which a job counts as small and takes the fast path.
SMALL_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Live workers and waiting work, as needed for scheduling decisions."""

    #: Numbers of live, starting and idle workers by device; empty if unknown.
    workers: Mapping[Device, int] = field(default_factory=dict)
    starting: Mapping[Device, int] = field(default_factory=dict)
    idle: Mapping[Device, int] = field(default_factory=dict)
    #: Number of lanes of live workers, by device.
    lanes: Mapping[Device, int] = field(default_factory=dict)
    #: Estimated lane seconds of queued and running work, by queue. Excludes work that a tenant's cap holds back.
    load_seconds: Mapping[str, float] = field(default_factory=dict)
    #: Number of queued jobs that a worker can start now, by queue and tenant.
    waiting: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: Weights of tenants. The default is 1.
    weights: Mapping[str, int] = field(default_factory=dict)
    #: Estimated seconds of work that a lane completes per second, by device; 1 if not measured yet.
    speeds: Mapping[Device, float] = field(default_factory=dict)
    #: Number of live GPU workers whose GPU is in use by programs.
    parked: int = 0
    #: Number of live drained workers, by device.
    drained: Mapping[Device, int] = field(default_factory=dict)
    #: Device of each live worker that cordoned itself, and the reason, by worker name.
    cordoned: Mapping[str, tuple[Device, str]] = field(default_factory=dict)
    #: Total resources of each live runner, by name.
    runners: Mapping[str, Offer] = field(default_factory=dict)
    #: Total resources of live runners that accept no work now, and the reason, by name.
    resting: Mapping[str, tuple[Offer, str]] = field(default_factory=dict)
    #: Resources that each live runner has left for programs in addition to its service replicas, by name.
    #: `tenant` is the only tenant whose jobs can run on the runner.
    #: `works_for` is the only tenant whose jobs can start now. `replicas` is the number of replicas that can be added.
    beside_replicas: Mapping[str, Offer] = field(default_factory=dict)
    #: Number of slots of each live runner, and of its free slots, by name.
    slots: Mapping[str, int] = field(default_factory=dict)
    free_slots: Mapping[str, int] = field(default_factory=dict)
    #: Job for which a runner is reserved, by the runner's name.
    reserved: Mapping[str, str] = field(default_factory=dict)
    #: Name and tenant of each service that has a replica on a runner, by the runner's name.
    services: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    #: Versions of the kinds that live workers compute, one mapping per worker, by device; empty if unknown.
    kinds: Mapping[Device, Sequence[Mapping[str, int]]] = field(default_factory=dict)
    #: Device of each live worker that is compiling kernels, and the kinds of these kernels, by worker name.
    compiling: Mapping[str, tuple[Device, frozenset[str]]] = field(default_factory=dict)
    #: Host labels that tenants require, by tenant.
    required: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: Part of the fleet on hosts with certain labels, keyed by these labels.
    labelled: Mapping[frozenset[str], Fleet] = field(default_factory=dict)

    def of(self, tenant: str) -> Fleet:
        """Return the part of the fleet that can compute for a tenant."""
        wanted = self.required.get(tenant)
        return self.labelled.get(wanted, Fleet()) if wanted else self

    def knows(self, queue: str) -> bool:
        """Return True if a live worker serves the queue, even if it is drained, parked or cordoned."""
        serving = devices_of(queue)
        there = any(self.workers.get(one) or self.drained.get(one) for one in serving)
        parked = self.parked and Device.GPU in serving
        return there or bool(parked) or any(device in serving for device, _ in self.cordoned.values())

    def alive(self, device: Device) -> bool:
        return self.lanes.get(device, 0) > 0


@dataclass(frozen=True, kw_only=True)
class Route:
    queue: str
    device: Device
    #: Whether the job can move to the `any` queue if no GPU worker is alive.
    prefer: bool = False
    notes: tuple[str, ...] = ()


def route(
    plan: Plan, device: Device, gpu_preferred: bool, priority: Priority, fleet: Fleet, tenant: str = DEFAULT_TENANT
) -> Route:
    """Return the queue of a new job. Raises InvalidRequest if the requested device cannot compute the job."""
    fleet = fleet.of(tenant)
    able = set(plan.devices)
    if device is not Device.ANY and device not in able:
        have = ", ".join(sorted(able)) + _reason(plan)
        raise errors.InvalidRequest(f"this job cannot run on device {device}; it runs on {have}", field="device")
    if gpu_preferred and able == {Device.RUNNER}:
        raise errors.InvalidRequest(
            "gpu_preferred: does not apply to jobs of runners; request GPUs with parameters.requirements",
            field="device",
        )
    if gpu_preferred:
        return _preferred_route(plan, priority, fleet, tenant)
    if device is Device.ANY and len(able) == 1:
        device = next(iter(able))
    return Route(queue=queues.name(device, priority), device=device)


def _reason(plan: Plan) -> str:
    return f" ({plan.cpu_only})" if plan.cpu_only else ""


def _preferred_route(plan: Plan, priority: Priority, fleet: Fleet, tenant: str) -> Route:
    if Device.GPU not in plan.devices:
        note = "runs on the CPU: the job has no GPU kernel" + _reason(plan)
        return Route(queue=queues.name(Device.CPU, priority), device=Device.CPU, notes=(note,))
    gpu, anywhere = queues.name(Device.GPU, priority), queues.name(Device.ANY, priority)
    if not fleet.alive(Device.GPU):
        return Route(queue=anywhere, device=Device.ANY, notes=("no GPU worker is alive: any device can run the job",))
    if (estimate_wait(gpu, fleet, tenant) or 0.0) > (estimate_wait(anywhere, fleet, tenant) or 0.0):
        return Route(
            queue=anywhere, device=Device.ANY, notes=("the wait for a GPU is longer: any device can run the job",)
        )
    return Route(queue=gpu, device=Device.GPU, prefer=True)


@cache
def devices_of(queue: str) -> frozenset[Device]:
    device = Device(queue.partition(".")[0])
    return frozenset({Device.CPU, Device.GPU} if device is Device.ANY else {device})


def estimate_start(
    queue: str,
    fleet: Fleet,
    tenant: str,
    kind: str,
    version: int,
    needed: Requirements,
    place: QueuePosition | None = None,
) -> float | None:
    """Estimate the seconds until a job in this queue starts, or return None if this cannot be known.

    `place` is the position of a queued job, or None for a new job. The duration of programs is unknown, so a program
    has an estimate only if a runner is idle.
    """
    place = place or QueuePosition()
    if place.in_backlog is not None or place.max_lanes:
        return None
    if spent := _find_spent_cap(queue, place, fleet.of(tenant)):
        return float(math.ceil(spent.seconds))
    if _lacks_version(queue, kind, version, fleet.of(tenant)):
        return None
    wait = estimate_wait(queue, fleet, tenant, place.before)
    if Device.RUNNER in devices_of(queue) and (wait or not _find_fitting(needed, fleet.of(tenant))):
        return None
    return wait


def estimate_wait(queue: str, fleet: Fleet, tenant: str = DEFAULT_TENANT, ahead: int | None = None) -> float | None:
    """Estimate the seconds until a job in this queue starts, or return None if no live worker serves the queue.

    `ahead` is the number of the tenant's jobs before a queued job, or None for a new job, which follows all of them.

    Work of higher priority runs first. At equal priority, a job waits until either all other work or the time slices
    before its own are finished, whichever is sooner. A time slice takes at most QUANTUM_SECONDS.
    """
    fleet = fleet.of(tenant)
    mine = devices_of(queue)
    speed = sum(fleet.lanes.get(device, 0) * fleet.speeds.get(device, 1.0) for device in mine)
    if not speed:
        return None
    above, equal = _sharing_queues(queue)
    waiting = sum(sum(fleet.waiting[other].values()) for other in above + equal if other in fleet.waiting)
    if waiting - (ahead is not None) < _count(fleet.idle, mine):  # A queued job does not wait for itself
        return 0.0
    before, beside = (sum(fleet.load_seconds.get(other, 0.0) for other in several) for several in (above, equal))
    return round(before / speed + min(beside / speed, _estimate_turns(equal, mine, fleet, tenant, ahead)), 3)


@cache
def _sharing_queues(queue: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the queues of higher priority, and of the same priority, whose workers also serve this queue."""
    order = list(Priority)
    rank = order.index(queues.priority_of(queue))
    shared = [(order.index(queues.priority_of(each)), each) for each in queues.ALL]
    mine = [(place, each) for place, each in shared if devices_of(each) & devices_of(queue)]
    return tuple(each for place, each in mine if place < rank), tuple(each for place, each in mine if place == rank)


def _count(workers: Mapping[Device, int], devices: Set[Device]) -> int:
    return sum(workers.get(device, 0) for device in devices)


def _estimate_turns(
    several: Sequence[str], devices: Set[Device], fleet: Fleet, tenant: str, ahead: int | None
) -> float:
    """Estimate the seconds until a worker has finished the time slices before a job of the tenant.

    `ahead` of the tenant's own jobs precede the job, and as many jobs of each other tenant as its weight permits. All
    of the tenant's own jobs precede a new job, for which `ahead` is None.
    """
    if not (workers := _count(fleet.workers, devices)):
        return math.inf
    waiting: Counter[str] = Counter()
    for queue in several:
        if queue in fleet.waiting:
            waiting.update(fleet.waiting[queue])
    own = waiting.pop(tenant, 0)
    turns = (own if ahead is None else ahead) + 1
    shares = {name: fleet.weights.get(name, 1) / fleet.weights.get(tenant, 1) for name in waiting}
    others = sum(min(jobs, math.ceil(turns * shares[name])) for name, jobs in waiting.items())
    return (turns + others) * QUANTUM_SECONDS / workers


def is_small(plan: Plan) -> bool:
    return plan.cpu_seconds <= SMALL_SECONDS


def waiting_because(
    state: str,
    queue: str,
    place: QueuePosition,
    holders: int,
    fleet: Fleet,
    kind: str = "",
    version: int = 0,
    max_running: int = 0,
    needed: Requirements = _NOTHING,
    left: int = 0,
) -> str | None:
    """Return why a job is not running, or None if it is running or has ended.

    `kind` and `version` are the job's; without them, every worker of the queue is assumed to support the job. `needed`
    are its requirements for a runner, and `left` is the number of its units that are not leased.
    """
    if why := _explain_not_queued(state, place):
        return why
    if state not in ("queued", "running") or holders > 0:
        return None
    wanted, fleet = fleet.required.get(place.tenant), fleet.of(place.tenant)
    if spent := _find_spent_cap(queue, place, fleet):
        return _explain_daily_cap(spent, place.tenant, kind)
    if wanted and not fleet.knows(queue):
        return _describe_missing_labels(queue, place.tenant, wanted)
    if Device.RUNNER in devices_of(queue) and (why := _explain_no_capacity(queue, kind, needed, fleet, place)):
        return why
    if estimate_wait(queue, fleet) is None:
        return explain_unserved(queue, fleet)
    if able := _lacks_version(queue, kind, version, fleet):
        if why := _explain_compilation(queue, kind, fleet):
            return why
        return f"{_explain_versions(kind, version, able)}; the job continues when a worker with that version is alive"
    if place.before is None:
        return _explain_leased_out(queue, fleet, place, max_running, needed, state == "queued" or left > 0)
    return _explain_turn(queue, kind, place, place.before, fleet, needed)


def _lacks_version(queue: str, kind: str, version: int, fleet: Fleet) -> Sequence[Mapping[str, int]]:
    """Return the versions that workers of the queue compute if none is the job's version, otherwise an empty list."""
    able = [kinds for device in devices_of(queue) for kinds in fleet.kinds.get(device, ())]
    lacks = kind and able and all(able) and not any(kinds.get(kind) == version for kinds in able)
    return able if lacks else ()


def explain_unschedulable(queue: str, needed: Requirements, fleet: Fleet, tenant: str) -> str | None:
    """Explain why no live runner could ever take a program. Return None if one could, and for jobs without programs.

    A runner that accepts no work now counts as one that could.
    """
    wanted, fleet = fleet.required.get(tenant), fleet.of(tenant)
    if Device.RUNNER not in devices_of(queue):
        return None
    if wanted and not fleet.knows(queue):
        return _describe_missing_labels(queue, tenant, wanted)
    offers = [*fleet.runners.values(), *(offer for offer, _ in fleet.resting.values())]
    if any(not requirements.shortfalls(needed, offer) for offer in offers):
        return None
    return _explain_unfit(queue, needed, fleet)


def _describe_missing_labels(queue: str, tenant: str, wanted: Set[str]) -> str:
    """Explain that no host has the labels that a tenant requires, and how to add one."""
    named = ",".join(sorted(wanted))
    return (
        f"tenant {tenant} requires hosts with the labels {named}, but no such host serves the queue {queue}; add"
        f" one with: ./deploy-cluster.sh invite --labels {named}"
    )


def explain_unserved(queue: str, fleet: Fleet) -> str:
    """Explain why no worker serves a queue: none is alive, all are drained or cordoned, or programs use their GPUs."""
    if fleet.parked and Device.GPU in devices_of(queue):
        return f"programs use the GPUs of all workers that serve the queue {queue}"
    if drained := _count(fleet.drained, devices_of(queue)):
        which = "the only worker that serves" if drained == 1 else f"all {drained} workers that serve"
        is_drained = "is drained" if drained == 1 else "are drained"
        return f"{which} the queue {queue} {is_drained}; reactivate one with: cluster drain WORKER --off"
    for name, (device, why) in fleet.cordoned.items():
        if device in devices_of(queue):
            return f"{name}, which serves the queue {queue}, accepts no work: {why}"
    return f"no live worker serves the queue {queue}"


def _explain_no_capacity(queue: str, kind: str, needed: Requirements, fleet: Fleet, place: QueuePosition) -> str | None:
    """Explain why no runner has capacity for a program, or return None if a runner may have capacity."""
    if why := _explain_unfit(queue, needed, fleet) or _explain_services(kind, needed, fleet, place):
        return why
    return _explain_reservation(place, fleet) if place.kept else _explain_other_tenant(needed, fleet, place)


def _explain_not_queued(state: str, place: QueuePosition) -> str | None:
    """Explain why a job is not in a queue, or return None if it can be in a queue."""
    if state == "paused":
        return "paused; resume the job to continue"
    if state == "blocked":
        return _explain_blocked(place)
    return None if place.in_backlog is None else _explain_backlog(place, place.in_backlog)


def _explain_blocked(place: QueuePosition) -> str:
    """Describe the jobs that a blocked job waits for."""
    if not place.waits_for:
        return "the jobs that it depends on have just ended"
    which = f"{place.waits_for} of {place.parents} jobs" if place.parents > 1 else "1 job"
    named = ", ".join(f"{job} ({state})" for job, state in place.first)
    more = ", ..." if named and place.waits_for > len(place.first) else ""
    return f"waits for {which}{f': {named}' if named else ''}{more}"


def _explain_unfit(queue: str, needed: Requirements, fleet: Fleet) -> str | None:
    """Explain why no live runner is suitable for a job, or return None if a suitable one accepts work."""
    if (why := _explain_resting(needed, fleet)) is not None:
        return why
    if not fleet.workers.get(Device.RUNNER) and fleet.knows(queue):
        return explain_unserved(queue, fleet)
    if not fleet.workers.get(Device.RUNNER):
        return (
            f"no live worker serves the queue {queue}: start a runner with ./deploy-cluster.sh local,"
            " docker --runner, or on Kubernetes the component runner"
        )
    closest = requirements.nearest(needed, fleet.runners.items())
    if closest is None or not closest[1]:
        return None
    name, short = closest
    what, has = (" and ".join(words) for words in zip(*((each.needed, each.has) for each in short), strict=True))
    return f"no runner has {what}; {name} has {has}"


def _explain_resting(needed: Requirements, fleet: Fleet) -> str | None:
    """Explain why the suitable runners accept no work, or return None if one accepts work or none is suitable."""
    if any(not requirements.shortfalls(needed, offer) for offer in fleet.runners.values()):
        return None
    for name, (offer, why) in sorted(fleet.resting.items()):
        if not requirements.shortfalls(needed, offer):
            has = f"has {requirements.describe(needed)}, but " if needed else ""
            return f"{name} {has}accepts no work: {why}"
    return None


def _find_fitting(needed: Requirements, fleet: Fleet) -> list[tuple[str, Offer]]:
    """Return the live runners that meet a job's requirements, with the resources that their replicas leave."""
    fit = [name for name, offer in sorted(fleet.runners.items()) if not requirements.shortfalls(needed, offer)]
    return [(name, fleet.beside_replicas.get(name, fleet.runners[name])) for name in fit]


def _explain_services(kind: str, needed: Requirements, fleet: Fleet, place: QueuePosition) -> str | None:
    """Explain which services leave no capacity for a job, or return None if a runner has capacity."""
    reasons = [
        _explain_conflict(kind, needed, name, offer, fleet, place) for name, offer in _find_fitting(needed, fleet)
    ]
    return reasons[0] if reasons and "" not in reasons else None


def _explain_conflict(
    kind: str, needed: Requirements, name: str, offer: Offer, fleet: Fleet, place: QueuePosition
) -> str:
    """Explain why a job does not fit on a runner next to its replicas, or return an empty string if it fits."""
    if place.tenant and offer.get("tenant", "") not in ("", place.tenant):
        return f"starts when a service of another tenant stops on {name}; {_ONE_TENANT}"
    if kind in registry.endless_kinds() and not offer.get("replicas", 1):
        return f"{_await_service(name, fleet, place)}; with RUNNER_UIDS, each replica needs its own user"
    if short := requirements.shortfalls(needed, offer):
        what, has = (" and ".join(words) for words in zip(*((each.needed, each.has) for each in short), strict=True))
        return f"{_await_service(name, fleet, place)}; the job needs {what}, and {has} is left"
    return ""


def _await_service(runner: str, fleet: Fleet, place: QueuePosition) -> str:
    """Return which service must stop on a runner. Services of other tenants are not named."""
    services = fleet.services.get(runner, ())
    names = sorted({name for name, tenant in services if not place.tenant or tenant == place.tenant})
    if len(services) == len(names) == 1:
        return f"starts when service {names[0]} stops on {runner}"
    listed = f" ({', '.join(names)})" if names else ""
    return f"starts when a service stops on {runner}{listed}"


def _explain_other_tenant(needed: Requirements, fleet: Fleet, place: QueuePosition) -> str | None:
    """Return a reason if all fitting runners work for other tenants, otherwise None."""
    fit = _find_fitting(needed, fleet)
    mine = [name for name, offer in fit if not place.tenant or offer.get("works_for", "") in ("", place.tenant)]
    return f"{fit[0][0]} runs programs of another tenant, and {_ONE_TENANT}" if fit and not mine else None


def _explain_reservation(place: QueuePosition, fleet: Fleet) -> str:
    """Describe what must end on the runner that is reserved for a job."""
    runner = place.kept
    if not place.kept_leases:
        return f"starts next on {runner}, which is reserved for it"
    if fleet.services.get(runner) and fleet.free_slots.get(runner, 0) >= fleet.slots.get(runner, 1):
        return _await_service(runner, fleet, place)
    ends = "a program ends" if place.kept_leases == 1 else f"{place.kept_leases} programs end"
    return f"starts when {ends} on {runner}, which is reserved for it"


def _explain_backlog(place: QueuePosition, before: int) -> str:
    """Explain why a job is in its tenant's backlog."""
    cap = f"tenant {place.tenant} has reached max_jobs ({place.max_jobs} queued or running jobs)"
    return f"{cap}; {_describe_position(before, 'its backlog')}"


def _find_spent_cap(queue: str, place: QueuePosition, fleet: Fleet) -> ReachedCap | None:
    """Return the daily cap that prevents a job from starting. The GPU cap does not apply if a CPU can run the job."""
    gpu_alone = Device.CPU not in devices_of(queue) or not fleet.alive(Device.CPU)
    return place.units or (place.gpu if gpu_alone and Device.GPU in devices_of(queue) else None)


def _explain_daily_cap(spent: ReachedCap, tenant: str, kind: str) -> str:
    what = f"units of {kind}" if spent.cap == "max_units" else "GPU seconds"
    cap = f"tenant {tenant} has reached {spent.cap} ({spent.used:.15g} of {spent.most:.15g} {what} today)"
    return f"{cap}; the job continues at 00:00 UTC, in {math.ceil(spent.seconds)} s"


def _explain_leased_out(
    queue: str, fleet: Fleet, place: QueuePosition, max_running: int, needed: Requirements, units_wait: bool
) -> str:
    """Explain why a job without a worker is not in its queue."""
    if 0 < max_running <= place.leases:
        lanes = "lane computes" if max_running == 1 else "lanes compute"
        return f"the job has reached max_running: {max_running} {lanes} it"
    if not units_wait:
        retries = Device.RUNNER in devices_of(queue) and not place.leases
        return "failed units wait for their next attempt" if retries else "its last leases are being computed"
    return _explain_busy(queue, needed, fleet)


def _explain_compilation(queue: str, kind: str, fleet: Fleet) -> str | None:
    """Return a reason if a worker is compiling the kernel of a job that no worker can compute yet."""
    for name, (device, kinds) in sorted(fleet.compiling.items()):
        if device in devices_of(queue) and kind in kinds:
            return (
                f"{name} is compiling the kernel of {kind}, which takes up to a few minutes; the job starts after that"
            )
    return None


def _explain_versions(kind: str, version: int, able: Sequence[Mapping[str, int]]) -> str:
    have = ", ".join(str(other) for other in sorted({kinds[kind] for kinds in able if kind in kinds}))
    other = f"the workers have version {have}" if have else "the workers lack the kind"
    return f"no live worker of its queue computes version {version} of {kind}: {other}"


def _describe_position(before: int, where: str, whose: str = "") -> str:
    """Describe a job's position in a queue.

    `whose` limits the description to some jobs, such as those of the tenant.
    """
    if not before:
        return f"the job is {f'the next{whose}' if whose else 'next'} in {where}"
    jobs, are = ("job", "is") if before == 1 else ("jobs", "are")
    return f"{before} {jobs}{whose} {are} ahead in {where}"


def _explain_busy(queue: str, needed: Requirements, fleet: Fleet) -> str:
    """Name what the next job of a queue waits for: a reservation, a free worker, or free resources of a runner."""
    devices = devices_of(queue)
    if Device.RUNNER not in devices:
        if _count(fleet.idle, devices):
            return "starts in a moment on an idle worker"
        return f"starts when a worker of the queue {queue} is free"
    runners = [name for name, _ in _find_fitting(needed, fleet)]
    free = [name for name in runners if fleet.free_slots.get(name)]
    for name in free:
        if name not in fleet.reserved:
            return (
                f"starts when {name} has {requirements.describe(needed)} free" if needed else f"starts next on {name}"
            )
    for name in free or runners:
        if name in fleet.reserved:
            return f"{name} is reserved for job {fleet.reserved[name][:_SHORT_ID]}"
    where = runners[0] if len(runners) == 1 else f"one of {len(runners)} runners" if runners else "a runner"
    return f"starts when a program ends on {where}"


def _explain_turn(queue: str, kind: str, place: QueuePosition, before: int, fleet: Fleet, needed: Requirements) -> str:
    """Describe a job's position in its queue, and which other jobs are served earlier."""
    turn = _describe_position(before, f"the queue {queue}")
    if place.tenant:
        turn = _describe_position(before, f"the queue {queue}", " of its tenant")
    if place.max_lanes:
        return f"tenant {place.tenant} has reached max_lanes ({place.max_lanes}); {turn}"
    above = queues.with_higher_priority(queue, tuple(fleet.load_seconds))
    busy = [other for other in above if fleet.load_seconds[other] and devices_of(other) & devices_of(queue)]
    if busy:
        return f"work of a higher priority is served first ({', '.join(busy)}); {turn} after that"
    if place.tenants_before:
        several = (
            "tenant used less of its share and is served"
            if place.tenants_before == 1
            else "tenants used less of their shares and are served"
        )
        return f"{place.tenants_before} other {several} first; {turn}"
    if before or kind in registry.endless_kinds():  # a runner with capacity starts a replica within seconds
        return turn
    mine = devices_of(queue)
    if 0 < _count(fleet.workers, mine) == _count(fleet.starting, mine):
        return f"no worker is ready yet, but some are starting; {turn}"
    return _explain_busy(queue, needed, fleet)
