"""Plan of what is next for a service: what is wanted and what there is go in, steps come out. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobs.store.services import Replica, Service
from threads_protocol.states import TERMINAL

#: Milliseconds before the second replica after a death begins, which double with each further death in a row, and the
#: longest such wait.
FIRST_WAIT_MS, LONGEST_WAIT_MS = 1000, 300_000
#: Milliseconds for which a replica must have been ready for earlier deaths to be forgotten.
WELL_MS = 600_000
#: Milliseconds after which every coordinator knows that a replica takes no new requests.
SETTLE_MS = 2000
#: Milliseconds that a new replica waits for room until an old one makes some.
SURGE_MS = 10_000
#: Replicas that begin in one round.
MOST_STARTS = 10
_WAITING = ("queued", "blocked", "paused")


@dataclass(frozen=True, kw_only=True)
class Start:
    """Begin a replica of this number."""

    number: int


@dataclass(frozen=True, kw_only=True)
class Submit:
    """Submit the job of a replica that was begun: nobody did."""

    replica: Replica


@dataclass(frozen=True, kw_only=True)
class Retire:
    """Take a replica out of the route."""

    replica: Replica


@dataclass(frozen=True, kw_only=True)
class Cancel:
    """Cancel the job of a replica that takes no requests any more."""

    replica: Replica


@dataclass(frozen=True, kw_only=True)
class End:
    """Forget a replica whose job has ended; it has `died` unless it was to end."""

    replica: Replica
    died: bool


@dataclass(frozen=True, kw_only=True)
class Recover:
    """Forget earlier deaths."""


@dataclass(frozen=True, kw_only=True)
class Forget:
    """Remove a deleted service."""


Step = Start | Submit | Retire | Cancel | End | Recover | Forget


def plan(
    service: Service,
    replicas: Sequence[Replica],
    now: int,
    *,
    drain_ms: int = LONGEST_WAIT_MS,
    leaving: frozenset[str] = frozenset(),
) -> list[Step]:
    """Return the next steps. `now`: milliseconds of Redis' clock.

    A replica that is to end gets `drain_ms` for the requests that it has. Replicas on workers that are `leaving` are
    replaced as those of an earlier generation are.
    """
    if service.deleted and not replicas:
        return [Forget()]
    ended = [one for one in replicas if one.job_state in TERMINAL]
    steps: list[Step] = [End(replica=one, died=not one.stopping) for one in ended]
    if any(not one.stopping for one in ended):
        service = replace(service, retry_at=now + wait_ms(service.failures + 1), failures=service.failures + 1)
    live = [one for one in replicas if one.job_state not in TERMINAL]
    steps += _ends(live, now, drain_ms)
    steps += [Submit(replica=one) for one in live if one.job_state is None and not one.stopping]
    steps += _changes(service, [one for one in live if not one.stopping], now, leaving)
    if service.failures and any(_is_well(one, now) for one in live):
        steps.append(Recover())
    return steps


def wait_ms(failures: int) -> int:
    """Return how long after this many deaths in a row the next replica begins."""
    return int(min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** min(failures - 1, 30)))


def leader(service: Service, replicas: Sequence[Replica]) -> Replica | None:
    """Return the replica that leads a group; None while none does, or it is not ready."""
    return next((one for one in replicas if one.number == service.leads and is_ready(one)), None)


def is_ready(replica: Replica) -> bool:
    """Return True for a replica that requests may go to."""
    return bool(
        replica.report
        and replica.report.state == "ready"
        and not replica.stopping
        and replica.job_state in ("running", "finishing")
    )


def _is_well(replica: Replica, now: int) -> bool:
    return is_ready(replica) and replica.report is not None and now - replica.report.since >= WELL_MS


def _ends(live: Sequence[Replica], now: int, drain_ms: int) -> list[Step]:
    """Return the ends of replicas that were taken out of the route, once they have nothing to do or no more time."""
    done: list[Step] = []
    for one in live:
        if not one.stopping or one.job_state == "cancelling":
            continue
        waited = now - one.stopping
        idle = waited >= SETTLE_MS and not one.busy
        if one.job_state is None:
            done.append(End(replica=one, died=False))
        elif one.job_state in _WAITING or idle or waited >= drain_ms:
            done.append(Cancel(replica=one))
    return done


def _changes(service: Service, live: Sequence[Replica], now: int, leaving: frozenset[str]) -> list[Step]:
    """Return the starts and the retirements by which there will be as many of this generation as are wanted."""
    wanted = 0 if service.stopped or service.deleted else service.replicas
    current = [one for one in live if one.generation == service.generation and not _leaves(one, leaving)]
    old = [one for one in live if one not in current]
    if not wanted:
        return [Retire(replica=one) for one in live]
    missing = wanted - len(current)
    if missing < 0:
        return [Retire(replica=one) for one in (*old, *_least_needed(current)[:-missing])]
    ready = sum(map(is_ready, current))
    steps: list[Step] = [Retire(replica=one) for one in _least_needed(old)[: _spare(wanted, ready, current, old, now)]]
    if missing and now >= service.retry_at and not (old and len(current) > ready):
        count = min(missing, MOST_STARTS) if not old else 1
        steps += [Start(number=service.next + ahead) for ahead in range(count)]
    return steps


def _spare(wanted: int, ready: int, current: Sequence[Replica], old: Sequence[Replica], now: int) -> int:
    """Return how many old replicas go now: those that ready ones replace, and one where a new one finds no room."""
    stuck = any(one.job_state == "queued" and now - one.since >= SURGE_MS for one in current)
    return max(0, len(old) - (wanted - ready - int(stuck)))


def _leaves(replica: Replica, leaving: frozenset[str]) -> bool:
    return replica.report is not None and replica.report.worker in leaving


def _least_needed(replicas: Sequence[Replica]) -> list[Replica]:
    """Return replicas in the order in which they go: those that are not ready, then the youngest."""
    return sorted(replicas, key=lambda one: (is_ready(one), -one.number))
