"""Simulates the lifecycle of threads (dispatch, preemption, spawn, join, end) in functions compiled by numba."""

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.random_cpu import sub
from jobs.kinds.thread.cpu_draws import INTERNAL_INLINE, at, bin_of, draw_children, draw_work
from jobs.kinds.thread.cpu_events import bit, schedule
from jobs.kinds.thread.cpu_layout import (
    BLOCK,
    CONTINUES,
    HIGH_SOJOURN,
    MAX_SOJOURN,
    N_SOJOURNS,
    NONE,
    PAUSED,
    SOJOURN,
    SUSPEND,
    WARM,
    WIDE,
)
from jobs.kinds.thread.cpu_queues import enqueue, push

_1 = np.uint64(1)


@njit(**INTERNAL_INLINE)
def add_family(replica, machine, key, first, end, depth, parent, span, path):
    """Create a family (siblings with one parent) whose members first..end-1 are ready, and return its index."""
    place = replica.born
    replica.born += 1
    family = machine.families[at(place)]
    family.key = key
    family.first = first
    family.end = end
    family.ready = replica.now
    family.span = span
    family.path = path
    family.depth = depth
    family.pending = end - first
    family.latest = 0
    family.parent = parent
    count = end - first
    replica.live += count
    replica.ready += count
    replica.peak_live = max(replica.peak_live, replica.live)
    return place


@njit(**INTERNAL_INLINE)
def _draw(replica, model, machine, family, child):
    """Draw the random values of a thread, and return (key, number of children, work)."""
    row = machine.families[at(family)]
    key = sub(row.key, child)
    children = draw_children(key, row.depth & (WARM - 1), replica.max_depth, model.values, model.thresholds)
    return key, children, draw_work(key, replica.law, model.laws, model.logs)


@njit(**INTERNAL_INLINE)
def draw_ahead(replica, model, machine):
    """Draw the random values of the next thread in the global queue in advance, unless this is already done.

    The draw is the slowest part of an event, and restarts after each mispredicted branch. Drawing before the event lets
    the CPU overlap both. A core's own deque has a new next thread after every event, so drawing in advance does not pay
    there.
    """
    if replica.drawn or replica.head < 0:
        return
    row = machine.families[at(replica.head)]
    if row.depth == PAUSED:
        return
    child = row.end - 1 if replica.lifo else row.first
    replica.next_key, replica.next_children, replica.next_work = _draw(replica, model, machine, replica.head, child)
    replica.drawn = True


@njit(**INTERNAL_INLINE)
def dispatch(replica, model, machine, measured, core, family, child):
    """Start or resume a ready thread on an idle core."""
    replica.idle &= replica.idle - _1
    replica.ready -= 1
    wait = replica.now - machine.families[at(family)].ready
    depth = machine.families[at(family)].depth
    replica.wait_low, replica.wait_high = _sum_wide(replica.wait_low, replica.wait_high, wait)
    if not replica.stealing and depth == PAUSED:
        left = _resume(replica, machine, core, family, wait)
        depth = machine.families[at(machine.cores[at(core)].family)].depth
    else:
        left = _start(replica, model, machine, core, family, child, wait)
        if depth >= WARM:
            replica.warm_started += 1
        elif replica.stealing or replica.quantum == 0:
            _count_wait(replica, measured, wait)
    if depth >= WARM:
        replica.warm_low, replica.warm_high = _sum_wide(replica.warm_low, replica.warm_high, wait)
    if not replica.stealing and replica.quantum > 0:
        part = min(left, replica.quantum)
        machine.cores[at(core)].left = left - part
        left = part
    replica.busy += replica.dispatch_ns + left
    schedule(replica, machine, core, replica.now + replica.dispatch_ns + left)


@njit(**INTERNAL_INLINE)
def _start(replica, model, machine, core, family, child, wait):
    """Start a thread that has not run before, and return its duration without the dispatch cost."""
    row, running = machine.families[at(family)], machine.cores[at(core)]
    if replica.stealing:
        key, children, work = _draw(replica, model, machine, family, child)
    else:
        key, children, work = replica.next_key, replica.next_children, replica.next_work
        replica.drawn = False
    left = work + children * replica.spawn_ns
    running.key = key
    running.family = family
    running.span = row.span + replica.dispatch_ns + left
    running.path = row.path + work
    running.children = children
    running.waited = wait
    replica.started += 1
    replica.work_ns += work
    replica.wanted += children
    return left


@njit(**INTERNAL_INLINE)
def _resume(replica, machine, core, place, wait):
    """Resume a preempted thread, and return the remaining duration of its work."""
    row, running = machine.families[at(place)], machine.cores[at(core)]
    running.key = row.key
    running.family = row.parent
    running.span = row.span
    running.path = row.path
    running.children = row.pending
    running.waited = row.latest + wait
    left = row.holder
    row.link = replica.spare
    replica.spare = place
    replica.again += 1
    return left


@njit(**INTERNAL_INLINE)
def _sum_wide(low, high, value):
    """Add a value to a sum of two words (high * WIDE + low), and return the new words (low, high)."""
    low += value
    if low >= WIDE:
        low -= WIDE
        high += 1
    return low, high


@njit(**INTERNAL_INLINE)
def _count_wait(replica, measured, wait):
    replica.max_wait = max(replica.max_wait, wait)
    measured.waits[at(bin_of(wait))] += 1


@njit(**INTERNAL_INLINE)
def end_slice(replica, machine):
    """Finish a time slice of a thread that needs more slices. Requeue the thread if other threads are ready."""
    replica.stepped += 1
    core = replica.core
    if replica.head >= 0:
        _preempt(replica, machine, core)
        return
    left = machine.cores[at(core)].left
    part = min(left, replica.quantum)
    machine.cores[at(core)].left = left - part
    replica.busy += part
    schedule(replica, machine, core, replica.now + part)


@njit(**INTERNAL_INLINE)
def _preempt(replica, machine, core):
    place = replica.spare
    if place >= 0:
        replica.spare = machine.families[at(place)].link
    else:
        place = replica.born
        replica.born += 1
    row, running = machine.families[at(place)], machine.cores[at(core)]
    row.key = running.key
    row.first = 0
    row.end = 1
    row.ready = replica.now
    row.span = running.span
    row.path = running.path
    row.depth = PAUSED
    row.pending = running.children
    row.latest = running.waited
    row.holder = running.left
    row.parent = running.family
    enqueue(replica, machine, place)
    replica.ready += 1
    replica.idle |= bit(core)


@njit(**INTERNAL_INLINE)
def end_segment(replica, machine, measured):
    """Finish the work, or the continuation after a join, of the thread on the core of the current event."""
    core = replica.core
    running = machine.cores[at(core)]
    children, family = running.children, running.family
    if children != CONTINUES:
        replica.longest_work = max(replica.longest_work, running.path)
        if not replica.stealing and replica.quantum > 0 and machine.families[at(family)].depth < WARM:
            _count_wait(replica, measured, running.waited)
    if children > 0:
        allowed = min(children, replica.room)
        replica.refused += children - allowed
        children = allowed
    if children > 0:
        _spawn(replica, machine, measured, core, children)
        if replica.joins != NONE:
            return
    _end(replica, machine, measured, core, family, machine.cores[at(core)].span)


@njit(**INTERNAL_INLINE)
def _spawn(replica, machine, measured, core, children):
    """Create the children of the thread on a core. With a join, the thread then waits for its children."""
    running = machine.cores[at(core)]
    family = running.family
    depth = machine.families[at(family)].depth + 1
    place = add_family(replica, machine, running.key, 0, children, depth, family, running.span, running.path)
    replica.room -= children
    replica.spawned += children
    measured.by_depth[at(depth & (WARM - 1))] += children
    if replica.stealing:
        push(machine, core, place)
    else:
        enqueue(replica, machine, place)
    if replica.joins == SUSPEND:
        replica.idle |= bit(core)
    elif replica.joins == BLOCK:
        machine.families[at(place)].holder = core
        replica.blocked += 1


@njit(**INTERNAL_INLINE)
def _end(replica, machine, measured, core, family, span):
    """End a thread, and each ancestor whose last child has ended and whose continuation takes no time."""
    while True:
        replica.live -= 1
        parents = machine.families[at(family)].parent
        if parents < 0:
            _end_root(replica, machine, measured, family, span)
            break
        if replica.joins == NONE:
            replica.longest = max(replica.longest, span)
            break
        if not _is_last(machine, family, span):
            break
        replica.joined += 1
        span = machine.families[at(family)].latest + replica.join_ns
        if replica.joins == BLOCK:
            replica.idle |= bit(core)
            core = machine.families[at(family)].holder
            replica.blocked -= 1
        family = parents
        if replica.join_ns > 0:
            _continue(replica, machine, core, family, span)
            return
    replica.idle |= bit(core)


@njit(**INTERNAL_INLINE)
def _is_last(machine, family, span):
    """Record that a thread ended after a path of this length. Return True if it was the last of its siblings."""
    row = machine.families[at(family)]
    row.pending -= 1
    row.latest = max(row.latest, span)
    return row.pending == 0


@njit(**INTERNAL_INLINE)
def _continue(replica, machine, core, family, span):
    """Run the continuation of a thread whose children have all ended."""
    running = machine.cores[at(core)]
    running.family = family
    running.span = span
    running.children = CONTINUES
    replica.busy += replica.join_ns
    schedule(replica, machine, core, replica.now + replica.join_ns)


@njit(**INTERNAL_INLINE)
def _end_root(replica, machine, measured, family, span):
    replica.longest = max(replica.longest, span)
    if machine.families[at(family)].depth >= WARM:
        return
    sojourn = replica.now - machine.families[at(family)].ready
    row = measured.row
    row[N_SOJOURNS] += 1
    row[MAX_SOJOURN] = max(row[MAX_SOJOURN], sojourn)
    measured.sojourns[at(bin_of(sojourn))] += 1
    row[SOJOURN], measured.aside[HIGH_SOJOURN] = _sum_wide(row[SOJOURN], measured.aside[HIGH_SOJOURN], sojourn)
