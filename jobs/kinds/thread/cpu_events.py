"""numba: the event of each core, in a tree of which every node is the least of its two children.

An event is packed as time * 64 + core, so events at one time come in the order of cores. Node 1 is the least of all;
the cores are the leaves.
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
def _decided(_context, _event):
    """The event. What chooses it stays a branch: LLVM cannot go past an empty piece of assembly without one."""

    def generate(_target, builder, _signature, arguments):
        return builder.asm(ir.FunctionType(_WORD, [_WORD]), "", "=r,0", arguments, side_effect=True)

    return types.int64(types.int64), generate


@intrinsic
def _lesser(_context, _left, _right):
    """The lesser of two events, never by a branch, which LLVM would make of a comparison here."""

    def generate(_target, builder, _signature, arguments):
        less = builder.sub(*arguments)
        sign = builder.ashr(less, ir.Constant(_WORD, 63))
        sign = builder.asm(ir.FunctionType(_WORD, [_WORD]), "", "=r,0", [sign], side_effect=False)
        return builder.add(arguments[1], builder.and_(less, sign))

    return types.int64(types.int64, types.int64), generate


@njit(**INTERNAL_INLINE)
def _put(replica, events, core, event):
    if replica.stealing:
        _put_behind(events, np.uint64(events.shape[0] // 2 + core), event)
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
def _put_behind(events, node, event):
    """`_put_at` where the event is rarely the least of all. The CPU goes on with the least of the others, before it
    knows this one, which depends on what its thread draws.
    """
    others = NEVER
    events[node] = event
    while node > _1:
        others = min(others, events[node ^ _1])
        node >>= _1
        events[node] = _lesser(event, others)
    if event < others:
        events[_1] = _decided(event)
    else:
        events[_1] = others


@njit(**INTERNAL_INLINE)
def schedule(replica, machine, core, time):
    """Set a core's event."""
    _put(replica, machine.events, core, time << 6 | core)
    if core == replica.last:
        replica.last = -1


@njit(**INTERNAL_INLINE)
def cancel(replica, machine, core):
    """Leave a core without an event."""
    _put(replica, machine.events, core, NEVER)


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
        cancel(replica, machine, replica.last)
        replica.last = -1


@njit(**INTERNAL_INLINE)
def bit(core):
    """A set of one core."""
    return _1 << np.uint64(core)
