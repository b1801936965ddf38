"""Decisions, pure: state in, answers out. Knows neither Redis nor HTTP."""

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
#: Reason why a runner takes no job of a tenant, and advice on adding runners.
_ONE_TENANT = "without RUNNER_UIDS it takes jobs of one tenant at a time"
_MORE_RUNNERS = "add a machine with: ./deploy-cluster.sh invite"
#: Below this many seconds of one lane, a job takes the fast path.
SMALL_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Live workers and waiting work, as far as decisions need them."""

    #: Live workers by device, those of them that are not ready yet, and those that compute nothing; empty: unknown.
    workers: Mapping[Device, int] = field(default_factory=dict)
    starting: Mapping[Device, int] = field(default_factory=dict)
    idle: Mapping[Device, int] = field(default_factory=dict)
    #: Lanes of live workers by device.
    lanes: Mapping[Device, int] = field(default_factory=dict)
    #: Estimated seconds of one lane's work that wait or run, by queue; without what a cap of its tenant keeps from
    #: starting.
    load_seconds: Mapping[str, float] = field(default_factory=dict)
    #: Jobs that wait and that a worker may take now, by queue and tenant; the tenants' weights, 1 where none is named.
    waiting: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)
    #: Estimated seconds of work that a lane of each device does in one; 1 where nothing is measured yet.
    speeds: Mapping[Device, float] = field(default_factory=dict)
    #: Live GPU workers whose GPUs programs have.
    parked: int = 0
    #: Live workers that are drained, by device.
    drained: Mapping[Device, int] = field(default_factory=dict)
    #: Live workers that take no work by themselves, by name: the device of each, and why.
    cordoned: Mapping[str, tuple[Device, str]] = field(default_factory=dict)
    #: What each live runner has in all, by name.
    runners: Mapping[str, Offer] = field(default_factory=dict)
    #: Total resources of live runners that take no work now, by name, and the reason.
    resting: Mapping[str, tuple[Offer, str]] = field(default_factory=dict)
    #: Resources that live runners have left for programs while their replicas of services run, by name. `tenant` is the
    #: only tenant whose jobs may run there, `works_for` the only one whose jobs may start now, `replicas` the number
    #: of replicas that can be added.
    beside_replicas: Mapping[str, Offer] = field(default_factory=dict)
    #: Versions of kinds' models that live workers of each device compute, a mapping a worker; empty: unknown.
    kinds: Mapping[Device, Sequence[Mapping[str, int]]] = field(default_factory=dict)
    #: Labels that tenants require of hosts, of those that require some; and the part of the fleet with such labels.
    required: Mapping[str, frozenset[str]] = field(default_factory=dict)
    labelled: Mapping[frozenset[str], Fleet] = field(default_factory=dict)

    def of(self, tenant: str) -> Fleet:
        """Return the part of the fleet that may compute for a tenant."""
        wanted = self.required.get(tenant)
        return self.labelled.get(wanted, Fleet()) if wanted else self

    def knows(self, queue: str) -> bool:
        """Return True when a live worker serves the queue, or would if nothing kept it from that."""
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
    #: May move to the any queue when no GPU worker lives.
    prefer: bool = False
    notes: tuple[str, ...] = ()


def route(
    plan: Plan, device: Device, gpu_preferred: bool, priority: Priority, fleet: Fleet, tenant: str = DEFAULT_TENANT
) -> Route:
    """Return the queue of a new job. InvalidRequest when no kernel exists for the device that was asked for."""
    fleet = fleet.of(tenant)
    able = set(plan.devices)
    if device is not Device.ANY and device not in able:
        have = ", ".join(sorted(able)) + _reason(plan)
        raise errors.InvalidRequest(f"device {device} has no kernel for this job; it runs on {have}", field="device")
    if gpu_preferred and able == {Device.RUNNER}:
        raise errors.InvalidRequest(
            "gpu_preferred: this job is for runners; requirements name its GPUs", field="device"
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
        note = "runs on cpu: there is no gpu kernel for this job" + _reason(plan)
        return Route(queue=queues.name(Device.CPU, priority), device=Device.CPU, notes=(note,))
    gpu, anywhere = queues.name(Device.GPU, priority), queues.name(Device.ANY, priority)
    if not fleet.alive(Device.GPU):
        return Route(queue=anywhere, device=Device.ANY, notes=("no gpu worker lives: any device may take it",))
    if (estimate_wait(gpu, fleet, tenant) or 0.0) > (estimate_wait(anywhere, fleet, tenant) or 0.0):
        return Route(queue=anywhere, device=Device.ANY, notes=("the wait for a gpu is longer: any device may take it",))
    return Route(queue=gpu, device=Device.GPU, prefer=True)


@cache
def devices_of(queue: str) -> frozenset[Device]:
    device = Device(queue.partition(".")[0])
    return frozenset({Device.CPU, Device.GPU} if device is Device.ANY else {device})


def estimate_wait(queue: str, fleet: Fleet, tenant: str = DEFAULT_TENANT) -> float | None:
    """Return seconds until a new job of this queue and tenant starts; None when no live worker serves the queue.

    All work of higher priorities is done before. Of its own priority, a job waits for all the work or for the turns
    before its own, whichever ends sooner; a worker's turn at a job takes at most QUANTUM_SECONDS.
    """
    fleet = fleet.of(tenant)
    mine = devices_of(queue)
    speed = sum(fleet.lanes.get(device, 0) * fleet.speeds.get(device, 1.0) for device in mine)
    if not speed:
        return None
    above, equal = _sharing_queues(queue)
    waiting = sum(sum(fleet.waiting[other].values()) for other in above + equal if other in fleet.waiting)
    if waiting < _count(fleet.idle, mine):
        return 0.0
    before, beside = (sum(fleet.load_seconds.get(other, 0.0) for other in several) for several in (above, equal))
    return round(before / speed + min(beside / speed, _estimate_turns(equal, mine, fleet, tenant)), 3)


@cache
def _sharing_queues(queue: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the queues whose workers serve this one too: those of higher priorities, and those of its own."""
    order = list(Priority)
    rank = order.index(queues.priority_of(queue))
    shared = [(order.index(queues.priority_of(each)), each) for each in queues.ALL]
    mine = [(place, each) for place, each in shared if devices_of(each) & devices_of(queue)]
    return tuple(each for place, each in mine if place < rank), tuple(each for place, each in mine if place == rank)


def _count(workers: Mapping[Device, int], devices: Set[Device]) -> int:
    return sum(workers.get(device, 0) for device in devices)


def _estimate_turns(several: Sequence[str], devices: Set[Device], fleet: Fleet, tenant: str) -> float:
    """Return seconds until a worker has ended its turn and those of the jobs that go before a new one of the tenant.

    Its own tenant's jobs all do, and of each other tenant as many as its weight gives it meanwhile.
    """
    if not (workers := _count(fleet.workers, devices)):
        return math.inf
    waiting: Counter[str] = Counter()
    for queue in several:
        if queue in fleet.waiting:
            waiting.update(fleet.waiting[queue])
    turns = waiting.pop(tenant, 0) + 1
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
    """Return why a job does not run now; None when it does or has ended. `place`: where it waits.

    `kind` and `version`: of the job; without them every worker of its queue is taken to compute it. `needed`: what it
    requires of a runner. `left`: its units that nobody has begun.
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
    able = [kinds for device in devices_of(queue) for kinds in fleet.kinds.get(device, ())]
    if kind and able and all(able) and not any(kinds.get(kind) == version for kinds in able):
        return f"{_explain_versions(kind, version, able)}; it goes on when a worker with that version lives"
    if place.before is None:
        return _explain_leased_out(queue, kind, place, max_running, needed, state == "queued" or left > 0)
    return _explain_turn(queue, kind, place, place.before, fleet, needed)


def _describe_missing_labels(queue: str, tenant: str, wanted: Set[str]) -> str:
    """Return that no host may compute for a tenant, and how one comes to have the labels that it requires."""
    named = ",".join(sorted(wanted))
    return (
        f"tenant {tenant} requires hosts with the labels {named}, and none that has them serves the queue {queue}; add"
        f" one with: ./deploy-cluster.sh invite --labels {named}"
    )


def explain_unserved(queue: str, fleet: Fleet) -> str:
    """Return why nobody serves a queue: no such worker lives, all are drained or sick, or programs have their GPUs."""
    if fleet.parked and Device.GPU in devices_of(queue):
        return f"programs have the GPU of every worker that serves the queue {queue}"
    if drained := _count(fleet.drained, devices_of(queue)):
        which = "the only worker that serves" if drained == 1 else f"all {drained} workers that serve"
        is_drained = "is drained" if drained == 1 else "are drained"
        return f"{which} the queue {queue} {is_drained}; one works again with: cluster drain WORKER --off"
    for name, (device, why) in fleet.cordoned.items():
        if device in devices_of(queue):
            return f"{name}, which would serve the queue {queue}, takes no work: {why}"
    return f"no live worker serves the queue {queue}"


def _explain_no_capacity(queue: str, kind: str, needed: Requirements, fleet: Fleet, place: Place) -> str | None:
    """Return why no runner has room for a program: no runner fits, one is reserved for it, or all work for others."""
    if why := _explain_unfit(queue, needed, fleet) or _explain_services(kind, needed, fleet, place):
        return why
    return _explain_reservation(place) if place.kept else _explain_other_tenant(needed, fleet, place)


def _explain_not_queued(state: str, place: QueuePosition) -> str | None:
    """Return why a job is in no queue; None for one that may be."""
    if state == "paused":
        return "paused; resume it to go on"
    if state == "blocked":
        return _explain_blocked(place)
    return None if place.in_backlog is None else _explain_backlog(place, place.in_backlog)


def _explain_blocked(place: Place) -> str:
    """Return what a blocked job waits for."""
    if not place.waits_for:
        return "the jobs that it waits for have just ended"
    which = f"{place.waits_for} of {place.parents} jobs" if place.parents > 1 else "1 job"
    named = ", ".join(f"{job} ({state})" for job, state in place.first)
    more = ", ..." if named and place.waits_for > len(place.first) else ""
    return f"waits for {which}{f': {named}' if named else ''}{more}"


def _explain_unfit(queue: str, needed: Requirements, fleet: Fleet) -> str | None:
    """Return the requirement that no live runner meets, or the runner that meets it but takes no work; else None."""
    if (why := _explain_resting(needed, fleet)) is not None:
        return why
    if not fleet.workers.get(Device.RUNNER) and fleet.knows(queue):
        return explain_unserved(queue, fleet)
    if not fleet.workers.get(Device.RUNNER):
        return (
            f"no live worker serves the queue {queue}: start a runner with ./deploy-cluster.sh local --runner,"
            " docker --runner, or on Kubernetes the component runner"
        )
    closest = requirements.nearest(needed, fleet.runners.items())
    if closest is None or not closest[1]:
        return None
    name, short = closest
    what, has = (", ".join(words) for words in zip(*((each.needed, each.has) for each in short), strict=True))
    return f"no runner has {what}; {name} comes nearest, with {has}"


def _explain_resting(needed: Requirements, fleet: Fleet) -> str | None:
    """Return why the first runner that fits a job takes no work; None if another one works or none fits."""
    if any(not requirements.shortfalls(needed, offer) for offer in fleet.runners.values()):
        return None
    for name, (offer, why) in sorted(fleet.resting.items()):
        if not requirements.shortfalls(needed, offer):
            has = f"has {_join_words(needed)}, but " if needed else ""
            return f"{name} {has}takes no work: {why}"
    return None


def _find_fitting(needed: Requirements, fleet: Fleet) -> list[tuple[str, Offer]]:
    """Return the live runners that can meet a job's requirements, with the resources that their replicas leave."""
    fit = [name for name, offer in sorted(fleet.runners.items()) if not requirements.shortfalls(needed, offer)]
    return [(name, fleet.beside_replicas.get(name, fleet.runners[name])) for name in fit]


def _explain_services(kind: str, needed: Requirements, fleet: Fleet, place: Place) -> str | None:
    """Return which services a job waits for; None if some runner has room for it while its services run."""
    reasons = [_explain_conflict(kind, needed, name, offer, place) for name, offer in _find_fitting(needed, fleet)]
    if not reasons or "" in reasons:
        return None
    return f"{reasons[0]}; it waits until a service there ends, or {_MORE_RUNNERS}"


def _explain_conflict(kind: str, needed: Requirements, name: str, offer: Offer, place: Place) -> str:
    """Return why a job cannot run on a runner while its replicas run; empty if it can."""
    if place.tenant and offer.get("tenant", "") not in ("", place.tenant):
        return f"{name} runs a service of another tenant, and {_ONE_TENANT}"
    if kind in registry.endless_kinds() and not offer.get("replicas", 1):
        return f"{name} cannot run another replica; with RUNNER_UIDS each needs a user other than those of the slots"
    if short := requirements.shortfalls(needed, offer):
        what, has = (", ".join(words) for words in zip(*((each.needed, each.has) for each in short), strict=True))
        return f"the job needs {what}, but the services on {name} leave {has}"
    return ""


def _explain_other_tenant(needed: Requirements, fleet: Fleet, place: Place) -> str | None:
    """Return a runner that works for another tenant if all runners with the job's requirements do; else None."""
    fit = _find_fitting(needed, fleet)
    mine = [name for name, offer in fit if not place.tenant or offer.get("works_for", "") in ("", place.tenant)]
    return f"{fit[0][0]} runs programs of another tenant, and {_ONE_TENANT}" if fit and not mine else None


def _explain_reservation(place: QueuePosition) -> str:
    """Return which runner is kept for a job, and what it waits for there."""
    if not place.kept_leases:
        return f"{place.kept} is kept for it; it is next there"
    ends = "1 lease ends" if place.kept_leases == 1 else f"{place.kept_leases} leases end"
    return f"{place.kept} is kept for it; {ends} first"


def _join_words(needed: Requirements) -> str:
    return ", ".join(
        f"{name} {', '.join(value) if isinstance(value, list) else value}" for name, value in needed.items()
    )


def _explain_backlog(place: QueuePosition, before: int) -> str:
    """Return why a job is in its tenant's backlog."""
    cap = f"tenant {place.tenant} has reached max_jobs ({place.max_jobs} that wait or run)"
    return f"{cap}; {_describe_position(before, 'its backlog')}"


def _find_spent_cap(queue: str, place: Place, fleet: Fleet) -> Spent | None:
    """Return the daily cap that keeps a job from starting: that on GPU seconds only where no CPU may compute it."""
    gpu_alone = Device.CPU not in devices_of(queue) or not fleet.alive(Device.CPU)
    return place.units or (place.gpu if gpu_alone and Device.GPU in devices_of(queue) else None)


def _explain_daily_cap(spent: Spent, tenant: str, kind: str) -> str:
    what = f"units of {kind}" if spent.cap == "max_units" else "GPU seconds"
    cap = f"tenant {tenant} has reached {spent.cap} ({spent.used:.15g} of {spent.most:.15g} {what} today)"
    return f"{cap}; it goes on at 00:00 UTC, in {math.ceil(spent.seconds)} s"


def _explain_leased_out(
    queue: str, kind: str, place: QueuePosition, max_running: int, needed: Requirements, units_wait: bool
) -> str:
    """Return why a job that nobody holds is not in its queue."""
    if 0 < max_running <= place.leases:
        lanes = "lane computes" if max_running == 1 else "lanes compute"
        return f"it has reached max_running: {max_running} {lanes} it"
    if not units_wait:
        retries = Device.RUNNER in devices_of(queue) and not place.leases
        return "failed units wait for their next attempt" if retries else "its last leases are being computed"
    able = f"runner that has {_join_words(needed)}" if needed else f"worker with {kind}"
    return f"every {able} is busy{_advise_capacity(queue, kind, needed)}"


def _explain_versions(kind: str, version: int, able: Sequence[Mapping[str, int]]) -> str:
    have = ", ".join(str(other) for other in sorted({kinds[kind] for kinds in able if kind in kinds}))
    other = f"they have version {have}" if have else "they lack the kind"
    return f"no live worker of its queue computes version {version} of {kind}: {other}"


def _describe_position(before: int, where: str, whose: str = "") -> str:
    """Return a job's place; `whose`: of which jobs alone, such as those of its tenant."""
    if not before:
        return f"it is {f'the next{whose}' if whose else 'next'} in {where}"
    jobs, are = ("job", "is") if before == 1 else ("jobs", "are")
    return f"{before} {jobs}{whose} {are} before it in {where}"


def _advise_capacity(queue: str, kind: str, needed: Requirements) -> str:
    """Return advice on making room for more programs. More slots do not help a job with requirements.

    Replicas of services need no slot.
    """
    if Device.RUNNER not in devices_of(queue):
        return ""
    slots = (
        "" if needed or kind in registry.endless_kinds() else "for more at once, give a runner more RUNNER_SLOTS, or "
    )
    return f"; {slots}{_MORE_RUNNERS}"


def _explain_turn(queue: str, kind: str, place: Place, before: int, fleet: Fleet, needed: Requirements) -> str:
    """Return the job's place in its queue, and what is served before: queues of higher priority, other tenants."""
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
        several = "tenant was given less and goes" if place.tenants_before == 1 else "tenants were given less and go"
        return f"{place.tenants_before} other {several} first; {turn}"
    if before or kind in registry.endless_kinds():  # a runner with room takes a replica within seconds
        return turn
    mine = devices_of(queue)
    if 0 < _count(fleet.workers, mine) == _count(fleet.starting, mine):
        return f"no worker is ready yet, but some are starting; {turn}"
    return f"every worker is busy; {turn}{_advise_capacity(queue, kind, needed)}"
