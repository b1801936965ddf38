"""Simulates how idle cores steal threads from other cores, in functions compiled by numba.

While no thread is ready, every attempt must fail. Such attempts are parked: counted, but not simulated one by one.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.thread.cpu_draws import INTERNAL_INLINE, at, trailing_zeros, victim
from jobs.kinds.thread.cpu_events import bit, cancel, schedule
from jobs.kinds.thread.cpu_layout import STEALS
from jobs.kinds.thread.cpu_queues import steal_from

_0, _1 = np.uint64(0), np.uint64(1)


@njit(**INTERNAL_INLINE)
def begin_attempts(replica, machine, core):
    """Start a steal attempt of an idle core."""
    replica.idle &= replica.idle - _1
    replica.thieves |= bit(core)
    machine.steals[at(core)].ends = replica.now + replica.steal_ns
    if not replica.parked:
        schedule(replica, machine, core, replica.now + replica.steal_ns)


@njit(**INTERNAL_INLINE)
def end_attempt(replica, machine, measured):
    """Finish the steal attempt of the current core. The core becomes idle again, with or without a stolen thread."""
    core = replica.core
    replica.stepped += 1
    other = victim(core, machine.steals[at(core)].tries, replica.key, replica.p)
    machine.steals[at(core)].tries += 1
    if steal_from(replica, machine, other):
        measured.row[STEALS] += 1
    replica.thieves ^= bit(core)
    replica.idle |= bit(core)


@njit(**INTERNAL_INLINE)
def park_or_wake(replica, machine):
    """Stop simulating steal attempts while no thread is ready, and resume once a thread is ready."""
    if replica.parked == (replica.ready == 0):
        return
    replica.parked = replica.ready == 0
    rest = replica.thieves
    while rest != _0:
        thief = trailing_zeros(rest)
        rest &= rest - _1
        if replica.parked:
            cancel(replica, machine, thief)
        else:
            _wake(replica, machine, thief)


@njit(**INTERNAL_INLINE)
def _wake(replica, machine, thief):
    missed = _finished_attempts(replica, machine, thief)
    machine.steals[at(thief)].ends += missed * replica.steal_ns
    machine.steals[at(thief)].tries += missed
    schedule(replica, machine, thief, machine.steals[at(thief)].ends)


@njit(**INTERNAL_INLINE)
def _finished_attempts(replica, machine, thief):
    """Return how many steal attempts of a core finish before the current event, while no thread is ready."""
    ends, now = machine.steals[at(thief)].ends, replica.now
    if ends > now or (ends == now and thief > replica.core):
        return 0
    steps = (now - ends) // replica.steal_ns
    if ends + steps * replica.steal_ns == now and thief > replica.core:
        return steps
    return steps + 1


@njit(**INTERNAL_INLINE)
def total_attempts(replica, machine):
    """Return the number of finished steal attempts of all cores."""
    ended = np.int64(0)
    for core in range(replica.p):
        ended += machine.steals[at(core)].tries
        if replica.thieves & bit(core) != _0:
            ended += _finished_attempts(replica, machine, core)
    return ended
