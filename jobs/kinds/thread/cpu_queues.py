"""Queues of ready threads in functions compiled by numba: a global queue, and a deque for each simulated core.

An entry is a family whose members first..end-1 are ready. Depth strictly increases along a deque, so a deque has at
most max_depth entries.
"""

from __future__ import annotations

from numba import njit

from jobs.kinds.thread.cpu_draws import INTERNAL_INLINE, at


@njit(**INTERNAL_INLINE)
def enqueue(replica, machine, family):
    """Append a family (siblings) to the global queue, or insert it at the head if the scheduler is lifo."""
    if replica.lifo:
        replica.drawn = False
        machine.families[at(family)].link = replica.head
        replica.head = family
        return
    machine.families[at(family)].link = -1
    if replica.head < 0:
        replica.head = family
    else:
        machine.families[at(replica.tail)].link = family
    replica.tail = family


@njit(**INTERNAL_INLINE)
def push(machine, core, family):
    """Push a family (siblings) to the bottom of a core's deque."""
    steal = machine.steals[at(core)]
    entry = steal.bottom
    if steal.top == entry:
        steal.top = 0
        entry = 0
    machine.deques[at(core), at(entry)] = family
    steal.bottom = entry + 1


@njit(**INTERNAL_INLINE)
def take(replica, machine, core):
    """Remove the next ready thread for a core and return (family, member); the family is -1 if there is none."""
    if replica.stealing:
        if replica.stolen >= 0:
            family = replica.stolen
            replica.stolen = -1
            return family, replica.taken
        if machine.steals[at(core)].bottom > machine.steals[at(core)].top:
            return _pop(machine, core)
    if replica.head < 0:
        return -1, 0
    if replica.lifo:
        return _take_last(replica, machine)
    return _take_first(replica, machine)


@njit(**INTERNAL_INLINE)
def _pop(machine, core):
    """Remove the youngest thread from the core's own deque."""
    entry = machine.steals[at(core)].bottom - 1
    family = machine.deques[at(core), at(entry)]
    child = machine.families[at(family)].end - 1
    machine.families[at(family)].end = child
    if child == machine.families[at(family)].first:
        machine.steals[at(core)].bottom = entry
    return family, child


@njit(**INTERNAL_INLINE)
def _take_first(replica, machine):
    family = replica.head
    child = machine.families[at(family)].first
    link = machine.families[at(family)].link
    machine.families[at(family)].first = child + 1
    replica.head = link if child + 1 == machine.families[at(family)].end else family
    return family, child


@njit(**INTERNAL_INLINE)
def _take_last(replica, machine):
    family = replica.head
    child = machine.families[at(family)].end - 1
    machine.families[at(family)].end = child
    if child == machine.families[at(family)].first:
        replica.head = machine.families[at(family)].link
    return family, child


@njit(**INTERNAL_INLINE)
def steal_from(replica, machine, victim):
    """Steal the oldest thread of another core's deque. Return False if the deque is empty.

    The thread is stored in `stolen` and `taken`.
    """
    top = machine.steals[at(victim)].top
    if top >= machine.steals[at(victim)].bottom:
        return False
    family = machine.deques[at(victim), at(top)]
    child = machine.families[at(family)].first
    machine.families[at(family)].first = child + 1
    if child + 1 == machine.families[at(family)].end:
        machine.steals[at(victim)].top = top + 1
    replica.stolen, replica.taken = family, child
    return True
