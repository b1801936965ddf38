"""Finds the earliest of the next events of all simulated cores, in functions compiled by numba.

The events form a tree of minima: a node is the minimum of its children. An event is packed as time * 64 + core, so
events at the same time are ordered by core. Node 1 is the earliest event, and the leaves are the cores.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from jobs.kinds.thread.cpu_draws import INTERNAL_INLINE
from jobs.kinds.thread.cpu_layout import NEVER

_1 = np.uint64(1)
_WORD = ir.IntType(64)


@intrinsic
def _keep_branch(_context, _event):
    """Return the event unchanged, and keep LLVM from replacing the surrounding branch by a conditional move.

    The function emits empty assembly.
    """

    def generate(_target, builder, _signature, arguments):
        return builder.asm(ir.FunctionType(_WORD, [_WORD]), "", "=r,0", arguments, side_effect=True)

    return types.int64(types.int64), generate


@intrinsic
def _minimum(_context, _left, _right):
    """Return the smaller of two events without a branch. LLVM would turn a plain comparison into a branch."""

    def generate(_target, builder, _signature, arguments):
        less = builder.sub(*arguments)
        sign = builder.ashr(less, ir.Constant(_WORD, 63))
        sign = builder.asm(ir.FunctionType(_WORD, [_WORD]), "", "=r,0", [sign], side_effect=False)
        return builder.add(arguments[1], builder.and_(less, sign))

    return types.int64(types.int64, types.int64), generate


@njit(**INTERNAL_INLINE)
def _put(replica, events, core, event):
    if replica.stealing:
        _put_speculatively(events, np.uint64(events.shape[0] // 2 + core), event)
    else:
        _put_at(events, np.uint64(events.shape[0] // 2 + core), event)


@njit(**INTERNAL_INLINE)
def _put_at(events, node, event):
    events[node] = event
    while node > _1:
        event = min(event, events[node ^ _1])
        node >>= _1
        events[node] = event


@njit(**INTERNAL_INLINE)
def _put_speculatively(events, node, event):
    """Set an event like `_put_at`, but faster if the event is rarely the earliest.

    The CPU continues with the earliest other event before this event is known, because it depends on a random draw.
    """
    others = NEVER
    events[node] = event
    while node > _1:
        others = min(others, events[node ^ _1])
        node >>= _1
        events[node] = _minimum(event, others)
    if event < others:
        events[_1] = _keep_branch(event)
    else:
        events[_1] = others


@njit(**INTERNAL_INLINE)
def schedule(replica, machine, core, time):
    """Set the next event of a simulated core."""
    _put(replica, machine.events, core, time << 6 | core)
    if core == replica.last:
        replica.last = -1


@njit(**INTERNAL_INLINE)
def cancel(replica, machine, core):
    """Remove the event of a simulated core."""
    _put(replica, machine.events, core, NEVER)


@njit(**INTERNAL_INLINE)
def next_time(machine):
    """Return the time of the earliest event of all cores, or the time of NEVER if there is no event."""
    return machine.events[1] >> 6


@njit(**INTERNAL_INLINE)
def advance(replica, machine):
    """Advance the simulation to the earliest event of all cores."""
    event = machine.events[1]
    replica.now = event >> 6
    replica.core = event & 63
    replica.last = replica.core


@njit(**INTERNAL_INLINE)
def replace_last(replica, machine):
    """Remove the event that was just processed if its core has no new event."""
    if replica.last >= 0:
        cancel(replica, machine, replica.last)
        replica.last = -1


@njit(**INTERNAL_INLINE)
def bit(core):
    """Return a bit set that contains only this core."""
    return _1 << np.uint64(core)
