"""Arrays and records that a simulation works on, and the places of numbers in them. Integers only; times are int64 ns,
hashes uint64.

The children of one thread are one family: same parent, depth, ready time and path lengths. A family is one row of
`families` from its spawn on; it is at once the entry in a ready queue (first..end-1 are not yet started) and the join
record of its parent. All roots of a batch are one family, a root that arrives by itself is one. With round_robin a row
may also hold one preempted thread, and is used again. A replica has no more rows than the array made from the spec's
`most_threads`, so it cannot overflow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype
from numba.core import cgutils
from numba.extending import intrinsic

# ready, span and path are the time, the burdened path and the work path when the family became ready; pending and
# latest count unfinished members and hold the longest finished path; parent is the family of the parent thread, -1 for
# roots; link is the next row of a queue; holder the core that a blocked parent keeps. A preempted thread's row has its
# own key and paths, its family in parent, its children in pending, its waits in latest, what is left of it in holder.
FAMILY = np.dtype(
    [
        ("key", "u8"),
        ("first", "i8"),
        ("end", "i8"),
        ("ready", "i8"),
        ("span", "i8"),
        ("path", "i8"),
        ("depth", "i8"),
        ("pending", "i8"),
        ("latest", "i8"),
        ("parent", "i8"),
        ("link", "i8"),
        ("holder", "i8"),
    ]
)
#: The depth of a preempted thread's row.
PAUSED = -1
#: Added to the depth of families whose root is a warm-up root.
WARM = 128
# The thread that a core runs; children is CONTINUES while it runs a continuation, left what follows this slice.
CORE = np.dtype(
    [
        ("key", "u8"),
        ("family", "i8"),
        ("span", "i8"),
        ("path", "i8"),
        ("children", "i8"),
        ("left", "i8"),
        ("waited", "i8"),
        ("", "i8"),
    ]
)
CONTINUES = -1
# A core's deque is entries top..bottom-1; its attempt to steal ends at ends; it has made tries attempts.
STEAL = np.dtype([("top", "i8"), ("bottom", "i8"), ("ends", "i8"), ("tries", "i8")])

# Of `numbers`, under the same names: p is CORES, mean the ARRIVAL.
_PARAMETERS = (
    "roots",
    "max_depth",
    "joins",
    "law",
    "dispatch_ns",
    "spawn_ns",
    "join_ns",
    "steal_ns",
    "p",
    "quantum",
    "mean",
    "budget",
)
# now is the time of the event, core the core that it is of, -1 for an arrival; last is that core until it has a new
# event; head and tail are the ends of the global queue; born counts rows used so far, spare is the first row to use
# again; room is how many more threads may be created; due is when the next root arrives, clock the same in the units of
# the arrival's mean; stolen and taken are the family and the member that an attempt has just stolen, -1 when it has
# not; blocked counts cores held by waiting threads, stepped the attempts and slices that were stepped through.
# next_key, next_children and next_work are drawn ahead for the thread that the global queue gives next, while drawn.
_STATE = (
    "now",
    "core",
    "last",
    "head",
    "tail",
    "born",
    "spare",
    "live",
    "ready",
    "room",
    "arrived",
    "clock",
    "due",
    "stolen",
    "taken",
    "blocked",
    "stepped",
    "next_work",
    "next_children",
)
# What becomes columns of a row; sums of waits are high * WIDE + low, those of warm-up roots' threads are also in warm;
# unwaited is what the histogram of waits began with in its first bin.
_SUMS = (
    "spawned",
    "peak_live",
    "peak_ready",
    "work_ns",
    "busy",
    "wanted",
    "started",
    "again",
    "joined",
    "refused",
    "longest",
    "longest_work",
    "max_wait",
    "wait_low",
    "wait_high",
    "warm_low",
    "warm_high",
    "warm_started",
    "unwaited",
)
# The scalars of one replica. idle and thieves are sets of cores, a bit each: those to be served, and those that attempt
# to steal; parked says that nothing is ready, so that attempts are not stepped through.
REPLICA = np.dtype(
    [("key", "u8"), ("idle", "u8"), ("thieves", "u8"), ("next_key", "u8")]
    + [(name, "i8") for name in _PARAMETERS + _STATE + _SUMS]
    + [("lifo", "?"), ("stealing", "?"), ("parked", "?"), ("drawn", "?")]
)


class Model(NamedTuple):
    """A spec's tables: `numbers` are its scalars, the others what is drawn from."""

    numbers: Any
    laws: Any
    logs: Any
    values: Any
    thresholds: Any


class Machine(NamedTuple):
    """Room for one replica at a time: `events` is a tree, `deques` has a row of families for each core."""

    families: Any
    cores: Any
    events: Any
    deques: Any
    steals: Any


class Measured(NamedTuple):
    """Results of a replica: overwritten by each, but for the histograms of waits and sojourns, which add up."""

    row: Any
    aside: Any
    by_depth: Any
    waits: Any
    sojourns: Any


# Columns of a row, in the order of rows.ROW.
MAKESPAN, WORK, OVERHEAD, LONGEST, LONGEST_WORK, THREADS, REACHED, PEAK_LIVE = range(8)
PEAK_READY, BUSY, STEALING, IDLE, STEALS, ATTEMPTS, SWITCHES, WAITED = range(8, 16)
N_MEASURED, N_WAITED, REFUSED, OUTCOME, SOJOURN, N_SOJOURNS, MAX_WAIT, MAX_SOJOURN = range(16, 24)
# Entries of `aside`: multiples of 2^62 of WAITED, of SOJOURN, and the two parts of all waits; costs of dispatching
# preempted threads.
HIGH_WAITED, HIGH_SOJOURN, READY_LOW, READY_HIGH, AGAIN = range(5)
ASIDE = 5
# Entries of `numbers`; BUDGET is the most attempts and slices stepped through; a QUANTUM of 0 is none, an ARRIVAL of 0
# a batch.
ROOTS, MAX_DEPTH, MAX_THREADS, JOINS, DISPATCH_NS, SPAWN_NS, JOIN_NS, STEAL_NS = range(8)
LAW, CORES, POLICY, BUDGET, QUANTUM, ARRIVAL, ARRIVAL_BITS, WARMUP = range(8, 16)
POLICIES = ("fifo", "lifo", "round_robin", "work_stealing")
LIFO = POLICIES.index("lifo")
JOINING = ("none", "suspend", "block")
NONE, SUSPEND, BLOCK = range(3)
COMPLETED, DEADLOCKED, CAPPED = range(3)
#: The event of a core that waits for none.
NEVER = 2**63 - 1
#: The arrival after the last one: later than the time of NEVER.
NO_ARRIVAL = 2**57
#: A sum of waits is `high * 2^62 + low`.
WIDE = 2**62


@intrinsic
def replica_on_stack(_context):
    """A REPLICA, not yet set, on the stack of the calling function. Where all functions that take it are inlined, LLVM
    keeps each field as it keeps a local variable.
    """
    record = from_dtype(REPLICA)

    def generate(context, builder, _signature, _arguments):
        return cgutils.alloca_once(builder, context.data_model_manager[record].get_data_type())

    return record(), generate
