"""Arrays and records of the simulation, and the indexes of their entries. Times are int64 ns, hashes are uint64.

The children of one thread form a family: they share parent, depth, ready time and path lengths. A family is one row of
`families` from its spawn on. The row is both the entry in a ready queue (members first..end-1 have not started) and the
join record of the parent. All roots of a batch form one family; a root that arrives separately is a family. With
round_robin, a row can also hold one preempted thread, and is reused. The array has enough rows for the spec's
`most_threads`, so it cannot overflow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype
from numba.core import cgutils
from numba.extending import intrinsic

# Fields of a family:
# - `ready`, `span` and `path`: the time, the burdened path and the work path at which the family became ready
# - `pending`: the number of unfinished members
# - `latest`: the longest path of a finished member
# - `parent`: the family of the parent thread, or -1 for roots
# - `link`: the next row of a queue
# - `holder`: the core that a blocked parent occupies
# The row of a preempted thread contains the key and the paths of the thread.
# In this row, `parent` is the thread's family, and `pending` is the number of its children.
# `latest` is the thread's wait so far, and `holder` is the rest of its segment.
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
#: Value of `depth` in the row of a preempted thread.
PAUSED = -1
#: Offset added to the depth of families that descend from a warm-up root.
WARM = 128
# The thread that a core is running. children is CONTINUES during a continuation; left is the time after this slice.
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
# A core's deque has entries top..bottom-1; ends is the end of its current steal attempt, tries the number of attempts.
STEAL = np.dtype([("top", "i8"), ("bottom", "i8"), ("ends", "i8"), ("tries", "i8")])

# Fields copied from `numbers` under the same names, except that p is CORES and mean is ARRIVAL.
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
# Fields of the state:
# - `now`: the time of the current event
# - `core`: the core of the current event, or -1 for an arrival
# - `last`: the core of the current event until it has a new event, else -1
# - `head` and `tail`: the ends of the global queue
# - `born`: the number of rows used so far
# - `spare`: the first row to reuse
# - `room`: the number of threads that can still be created
# - `due`: the arrival time of the next root
# - `clock`: the arrival time of the next root in the units of the mean
# - `stolen` and `taken`: the family and the member that a steal attempt has just taken, or -1
# - `blocked`: the number of cores held by waiting threads
# - `stepped`: the number of simulated attempts and slices
# - `next_key`, `next_children` and `next_work`: draws for the next thread of the global queue, valid if `drawn` is set
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
# Counters that become columns of a row. A sum of waits is high * WIDE + low.
# The fields `warm_*` count only trees of warm-up roots.
# `unwaited` is the initial count of the first bin of the wait histogram.
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
# Scalars of one replica.
# `idle` and `thieves` are bit sets of cores: cores to serve, and cores with a steal attempt.
# If `parked` is set, no thread is ready and steal attempts are not simulated one by one.
REPLICA = np.dtype(
    [("key", "u8"), ("idle", "u8"), ("thieves", "u8"), ("next_key", "u8")]
    + [(name, "i8") for name in _PARAMETERS + _STATE + _SUMS]
    + [("lifo", "?"), ("stealing", "?"), ("parked", "?"), ("drawn", "?")]
)


class Model(NamedTuple):
    """Numbers and tables of a spec: `numbers` has its scalars, and the other arrays define the distributions."""

    numbers: Any
    laws: Any
    logs: Any
    values: Any
    thresholds: Any


class Machine(NamedTuple):
    """Working memory for one replica at a time. `events` is a tree; `deques` has one row of families per core."""

    families: Any
    cores: Any
    events: Any
    deques: Any
    steals: Any


class Measured(NamedTuple):
    """Measurements of a replica. Each replica overwrites them, except for the histograms, which accumulate."""

    row: Any
    aside: Any
    by_depth: Any
    waits: Any
    sojourns: Any


# Columns of a row, in the order of rows.ROW.
MAKESPAN, WORK, OVERHEAD, LONGEST, LONGEST_WORK, THREADS, REACHED, PEAK_LIVE = range(8)
PEAK_READY, BUSY, STEALING, IDLE, STEALS, ATTEMPTS, SWITCHES, WAITED = range(8, 16)
N_MEASURED, N_WAITED, REFUSED, OUTCOME, SOJOURN, N_SOJOURNS, MAX_WAIT, MAX_SOJOURN = range(16, 24)
# Entries of `aside`: high parts of WAITED and SOJOURN, both parts of the sum of all waits, and costs of re-dispatches.
HIGH_WAITED, HIGH_SOJOURN, READY_LOW, READY_HIGH, AGAIN = range(5)
ASIDE = 5
# Entries of `numbers`. BUDGET is the maximum number of simulated attempts and slices.
# QUANTUM 0 means no slices, and ARRIVAL 0 means a batch.
ROOTS, MAX_DEPTH, MAX_THREADS, JOINS, DISPATCH_NS, SPAWN_NS, JOIN_NS, STEAL_NS = range(8)
LAW, CORES, POLICY, BUDGET, QUANTUM, ARRIVAL, ARRIVAL_BITS, WARMUP = range(8, 16)
POLICIES = ("fifo", "lifo", "round_robin", "work_stealing")
LIFO = POLICIES.index("lifo")
JOINING = ("none", "suspend", "block")
NONE, SUSPEND, BLOCK = range(3)
COMPLETED, DEADLOCKED, CAPPED = range(3)
#: Event value of a core without an event.
NEVER = 2**63 - 1
#: Arrival time after the last arrival; later than the time of NEVER.
NO_ARRIVAL = 2**57
#: Factor of the high part in sums of waits: `high * 2^62 + low`.
WIDE = 2**62


@intrinsic
def replica_on_stack(_context):
    """Allocate an uninitialized REPLICA on the caller's stack.

    If all functions that use the record are inlined, LLVM keeps its fields in registers like local variables.
    """
    record = from_dtype(REPLICA)

    def generate(context, builder, _signature, _arguments):
        return cgutils.alloca_once(builder, context.data_model_manager[record].get_data_type())

    return record(), generate
