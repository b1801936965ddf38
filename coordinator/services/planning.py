"""Compare the desired and actual replicas of a service, and return the next steps. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobs.store.services import Replica, Service
from threads_protocol.states import TERMINAL

#: Initial and maximum delay in milliseconds before a restart. Each consecutive failure doubles the delay.
FIRST_WAIT_MS, LONGEST_WAIT_MS = 1000, 300_000
#: Milliseconds of readiness after which a replica's earlier failures no longer count.
WELL_MS = 600_000
#: Milliseconds after which all coordinators have stopped sending requests to a retired replica.
SETTLE_MS = 2000
#: Milliseconds that a new replica waits for free resources before an old replica is retired.
SURGE_MS = 10_000
#: Maximum number of replicas to start in one round.
MOST_STARTS = 10
_WAITING = ("queued", "blocked", "paused")


@dataclass(frozen=True, kw_only=True)
class Start:
    """Step that starts a replica with this number."""

    number: int


@dataclass(frozen=True, kw_only=True)
class Submit:
    """Step that submits the job of a recorded replica."""

    replica: Replica


@dataclass(frozen=True, kw_only=True)
class Retire:
    """Step that stops routing requests to a replica."""

    replica: Replica


@dataclass(frozen=True, kw_only=True)
class Cancel:
    """Step that cancels the job of a retired replica."""

    replica: Replica


@dataclass(frozen=True, kw_only=True)
class End:
    """Step that removes a replica whose job has finished. `died` is True unless the replica was stopping."""

    replica: Replica
    died: bool


@dataclass(frozen=True, kw_only=True)
class Recover:
    """Step that resets the number of consecutive failures."""


@dataclass(frozen=True, kw_only=True)
class Forget:
    """Step that removes a deleted service."""


Step = Start | Submit | Retire | Cancel | End | Recover | Forget


def plan(
    service: Service,
    replicas: Sequence[Replica],
    now: int,
    *,
    drain_ms: int = LONGEST_WAIT_MS,
    leaving: frozenset[str] = frozenset(),
) -> list[Step]:
    """Return the next steps for a service. `now` is Redis time in milliseconds.

    A stopping replica has `drain_ms` milliseconds to finish its requests. Replicas on `leaving` workers are replaced
    like replicas of an earlier generation.
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
    """Return the delay in milliseconds before the next start, after this number of consecutive failures."""
    return int(min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** min(failures - 1, 30)))


def leader(service: Service, replicas: Sequence[Replica]) -> Replica | None:
    """Return the replica that leads a group, or None if it is not ready."""
    return next((one for one in replicas if one.number == service.leads and is_ready(one)), None)


def is_ready(replica: Replica) -> bool:
    """Return True if a replica can receive requests."""
    return bool(
        replica.report
        and replica.report.state == "ready"
        and not replica.stopping
        and replica.job_state in ("running", "finishing")
    )


def _is_well(replica: Replica, now: int) -> bool:
    return is_ready(replica) and replica.report is not None and now - replica.report.since >= WELL_MS


def _ends(live: Sequence[Replica], now: int, drain_ms: int) -> list[Step]:
    """Return Cancel steps for retired replicas that are idle or have exceeded the drain time."""
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
    """Return the starts and retirements that lead to the desired number of replicas of the current generation."""
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
    """Return how many old replicas to retire now. One more is retired if a new replica waits for free resources."""
    stuck = any(one.job_state == "queued" and now - one.since >= SURGE_MS for one in current)
    return max(0, len(old) - (wanted - ready - int(stuck)))


def _leaves(replica: Replica, leaving: frozenset[str]) -> bool:
    return replica.report is not None and replica.report.worker in leaving


def _least_needed(replicas: Sequence[Replica]) -> list[Replica]:
    """Sort replicas in the order of retirement: replicas that are not ready first, then the newest."""
    return sorted(replicas, key=lambda one: (is_ready(one), -one.number))
