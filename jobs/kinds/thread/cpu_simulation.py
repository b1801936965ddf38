"""Simulation of one replica event by event, compiled by numba.

Every function that uses the replica's record is inlined into `simulate`, so that its fields are kept in registers.

Never mix uint64 and int64 in one expression: numba would convert the result to a float.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.thread import cpu_layout as layout
from jobs.kinds.thread.cpu_draws import INTERNAL, INTERNAL_INLINE, at, interarrival, trailing_zeros
from jobs.kinds.thread.cpu_events import advance, bit, next_time, replace_last
from jobs.kinds.thread.cpu_queues import enqueue, take
from jobs.kinds.thread.cpu_stealing import begin_attempts, end_attempt, park_or_wake, total_attempts
from jobs.kinds.thread.cpu_threads import add_family, dispatch, draw_ahead, end_segment, end_slice

_0 = np.uint64(0)


def _simulator(stealing):
    """Compile the simulator for work stealing or for global queues; each contains only the code that it needs."""

    @njit(**INTERNAL)
    def simulate(key, model, machine, measured):
        """Simulate one replica and fill its measurements. Return False if it exceeds the budget of attempts and slices.

        Waits and sojourns are added to the histograms. An exceeded budget indicates a bug.
        """
        replica = layout.replica_on_stack()
        replica.stealing = stealing
        _begin(replica, key, model, machine, measured)
        # Check the budget once per event, because a check at each increment would occupy more registers.
        while replica.stepped <= replica.budget:
            _serve_idle_cores(replica, model, machine, measured)
            if _has_ended(replica):
                _fill(replica, machine, measured)
                return True
            if replica.due <= next_time(machine):
                _arrive(replica, model, machine)
                continue
            advance(replica, machine)
            if stealing and replica.thieves & bit(replica.core) != _0:
                end_attempt(replica, machine, measured)
            elif not stealing and replica.quantum > 0 and machine.cores[at(replica.core)].left > 0:
                end_slice(replica, machine)
            else:
                end_segment(replica, machine, measured)
        return False

    return simulate


@njit(**INTERNAL_INLINE)
def _begin(replica, key, model, machine, measured):
    numbers = model.numbers
    replica.key = key
    replica.p = numbers[layout.CORES]
    replica.lifo = not replica.stealing and numbers[layout.POLICY] == layout.LIFO
    replica.roots, replica.max_depth = numbers[layout.ROOTS], numbers[layout.MAX_DEPTH]
    replica.joins, replica.law, replica.mean = numbers[layout.JOINS], numbers[layout.LAW], numbers[layout.ARRIVAL]
    replica.dispatch_ns, replica.spawn_ns = numbers[layout.DISPATCH_NS], numbers[layout.SPAWN_NS]
    replica.join_ns, replica.steal_ns = numbers[layout.JOIN_NS], numbers[layout.STEAL_NS]
    replica.quantum, replica.budget = numbers[layout.QUANTUM], numbers[layout.BUDGET]
    _clear(replica, machine, measured)
    replica.room = numbers[layout.MAX_THREADS] - replica.roots
    if replica.mean == 0:
        enqueue(replica, machine, add_family(replica, machine, key, 0, replica.roots, 0, -1, 0, 0))
        replica.arrived, replica.due = replica.roots, layout.NO_ARRIVAL
    else:
        _expect_root(replica, model)


@njit(**INTERNAL_INLINE)
def _clear(replica, machine, measured):
    replica.now = replica.live = replica.ready = replica.born = replica.arrived = replica.clock = 0
    replica.blocked = replica.stepped = replica.taken = 0
    replica.core = replica.last = replica.head = replica.tail = replica.spare = replica.stolen = -1
    replica.idle, replica.thieves, replica.parked = ~_0 >> np.uint64(64 - replica.p), _0, True
    replica.next_key, replica.next_work, replica.next_children, replica.drawn = _0, 0, 0, False
    replica.spawned = replica.peak_live = replica.peak_ready = 0
    replica.work_ns = replica.busy = replica.wanted = replica.started = replica.again = replica.joined = 0
    replica.refused = replica.longest = replica.longest_work = replica.max_wait = 0
    replica.wait_low = replica.wait_high = replica.warm_low = replica.warm_high = replica.warm_started = 0
    replica.unwaited = measured.waits[0]
    measured.row[:] = 0
    measured.aside[:] = 0
    measured.by_depth[:] = 0
    machine.events[:] = layout.NEVER
    for core in range(replica.p):
        machine.steals[at(core)].top = 0
        machine.steals[at(core)].bottom = 0
        machine.steals[at(core)].tries = 0


@njit(**INTERNAL_INLINE)
def _expect_root(replica, model):
    """Draw the time at which the next root arrives."""
    replica.due = layout.NO_ARRIVAL
    if replica.arrived < replica.roots:
        replica.clock += interarrival(replica.key, replica.arrived, replica.mean, model.logs)
        replica.due = replica.clock >> model.numbers[layout.ARRIVAL_BITS]


@njit(**INTERNAL_INLINE)
def _arrive(replica, model, machine):
    """Process the arrival of a root."""
    replica.now, replica.core = replica.due, -1
    number = replica.arrived
    depth = layout.WARM if number < model.numbers[layout.WARMUP] else 0
    enqueue(replica, machine, add_family(replica, machine, replica.key, number, number + 1, depth, -1, replica.now, 0))
    replica.arrived += 1
    _expect_root(replica, model)


@njit(**INTERNAL_INLINE)
def _serve_idle_cores(replica, model, machine, measured):
    """Assign a ready thread to each idle core, in ascending order, or start a steal attempt."""
    while True:
        if not replica.stealing:
            draw_ahead(replica, model, machine)
        if replica.idle == _0:
            break
        core = trailing_zeros(replica.idle)
        family, child = take(replica, machine, core)
        if family >= 0:
            dispatch(replica, model, machine, measured, core, family, child)
        elif replica.stealing and replica.p > 1:
            begin_attempts(replica, machine, core)
        else:
            break
    replace_last(replica, machine)
    replica.peak_ready = max(replica.peak_ready, replica.ready)
    if replica.stealing:
        park_or_wake(replica, machine)


@njit(**INTERNAL_INLINE)
def _has_ended(replica):
    """Return True if no thread is left, or if a waiting thread occupies every core."""
    return (replica.live == 0 and replica.arrived == replica.roots) or replica.blocked == replica.p


@njit(**INTERNAL_INLINE)
def _fill(replica, machine, measured):
    """Fill the row of measurements of a replica."""
    row, by_depth = measured.row, measured.by_depth
    by_depth[0] = replica.arrived
    for depth in range(by_depth.shape[0]):
        if by_depth[at(depth)] > 0:
            row[layout.REACHED] = depth
    row[layout.MAKESPAN] = replica.now
    row[layout.WORK] = replica.work_ns
    row[layout.OVERHEAD] = (
        replica.started * replica.dispatch_ns + replica.wanted * replica.spawn_ns + replica.joined * replica.join_ns
    )
    row[layout.LONGEST] = replica.longest
    row[layout.LONGEST_WORK] = replica.longest_work
    row[layout.THREADS] = replica.arrived + replica.spawned
    row[layout.PEAK_LIVE] = replica.peak_live
    row[layout.PEAK_READY] = replica.peak_ready
    row[layout.BUSY] = replica.busy
    if replica.stealing:
        row[layout.ATTEMPTS] = total_attempts(replica, machine)
    row[layout.STEALING] = row[layout.ATTEMPTS] * replica.steal_ns
    row[layout.IDLE] = replica.p * replica.now - row[layout.BUSY] - row[layout.STEALING]
    row[layout.SWITCHES] = replica.started + replica.again + replica.joined
    row[layout.REFUSED] = replica.refused
    _fill_outcome(replica, row)
    _fill_waits(replica, measured)


@njit(**INTERNAL_INLINE)
def _fill_outcome(replica, row):
    row[layout.OUTCOME] = layout.CAPPED if replica.refused > 0 else layout.COMPLETED
    if replica.blocked == replica.p:
        row[layout.OUTCOME] = layout.DEADLOCKED
        row[layout.LONGEST] = 0
        row[layout.LONGEST_WORK] = 0


@njit(**INTERNAL_INLINE)
def _fill_waits(replica, measured):
    row, aside = measured.row, measured.aside
    row[layout.N_MEASURED] = replica.started - replica.warm_started
    row[layout.N_WAITED] = row[layout.N_MEASURED] - (measured.waits[0] - replica.unwaited)
    row[layout.MAX_WAIT] = replica.max_wait
    aside[layout.READY_LOW] = replica.wait_low
    aside[layout.READY_HIGH] = replica.wait_high
    aside[layout.AGAIN] = replica.again * replica.dispatch_ns
    low, high = replica.wait_low - replica.warm_low, replica.wait_high - replica.warm_high
    row[layout.WAITED] = low if low >= 0 else low + layout.WIDE
    aside[layout.HIGH_WAITED] = high if low >= 0 else high - 1


simulate_queue = _simulator(False)
simulate_stealing = _simulator(True)
