"""numba: the event of each core, in a tree of which every node is the least of its two children.

An event is packed as time * 64 + core, so events at one time come in the order of cores. Node 1 is the least of all;
the cores are the leaves.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.thread.cpu_draws import INTERNAL_INLINE
from jobs.kinds.thread.cpu_layout import NEVER

_1 = np.uint64(1)


@njit(**INTERNAL_INLINE)
def _put(events, core, event):
    node = np.uint64(events.shape[0] // 2 + core)
    events[node] = event
    while node > _1:
        event = min(event, events[node ^ _1])
        node >>= _1
        events[node] = event


@njit(**INTERNAL_INLINE)
def schedule(replica, machine, core, time):
    """Set a core's event."""
    _put(machine.events, core, time << 6 | core)
    if core == replica.last:
        replica.last = -1


@njit(**INTERNAL_INLINE)
def cancel(machine, core):
    """Leave a core without an event."""
    _put(machine.events, core, NEVER)


@njit(**INTERNAL_INLINE)
def next_time(machine):
    """Time of the next event of a core, that of NEVER when there is none."""
    return machine.events[1] >> 6


@njit(**INTERNAL_INLINE)
def advance(replica, machine):
    """Go to the next event of a core."""
    event = machine.events[1]
    replica.now = event >> 6
    replica.core = event & 63
    replica.last = replica.core


@njit(**INTERNAL_INLINE)
def replace_last(replica, machine):
    """Take away the event that is past if its core has no new one."""
    if replica.last >= 0:
        cancel(machine, replica.last)
        replica.last = -1


@njit(**INTERNAL_INLINE)
def bit(core):
    """A set of one core."""
    return _1 << np.uint64(core)
