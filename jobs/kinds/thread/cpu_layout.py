"""Memory layout of the compiled simulation: arrays, records, and the indexes of their entries.

Times are int64 ns, hashes are uint64. The children of one thread form a family: they share parent, depth, ready time
and path lengths. A family is one row of `families` from its spawn on. The row is both the entry in a ready queue
(members first..end-1 have not started) and the join record of the parent. All roots of a batch form one family; a root
that arrives separately is a family. With round_robin, a row can also hold one preempted thread, and is reused. The
array has enough rows for the spec's `most_threads`, so it cannot overflow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype
from numba.core import cgutils
from numba.extending import intrinsic

# Fields of a family (the children of one thread):
# - `ready`, `span` and `path`: the time, the burdened path and the work path at which the family became ready
# - `pending`: the number of unfinished members
# - `latest`: the longest path of a finished member
# - `parent`: the family of the parent thread, or -1 for roots
# - `link`: the next row of a queue
# - `holder`: the core that a blocked parent occupies
# The row of a preempted thread contains the key and the paths of the thread.
# In the row of a preempted thread, `parent` is the thread's family, and `pending` is its number of children.
# `latest` is the time that a preempted thread has waited, and `holder` is the remaining duration of its work.
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
#: Number that is added to the depth of threads of the warm-up, whose times are not measured.
WARM = 128
# Record of a simulated core with its thread; `left` is the time that the thread needs after this slice.
# `children` is CONTINUES while the thread continues after a join.
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
# Record of a core's deque (entries top..bottom-1), the end of its steal attempt, and the number of its attempts.
STEAL = np.dtype([("top", "i8"), ("bottom", "i8"), ("ends", "i8"), ("tries", "i8")])

# Parameters of the simulation, copied from `Model.numbers`; p is CORES, and mean is ARRIVAL.
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
# Fields of the state of a simulation:
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
# - `blocked`: the number of cores that waiting threads occupy
# - `stepped`: the number of simulated steal attempts and time slices
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
# Counters of a simulation run from which its measurements are computed.
# A sum of waiting times is high * WIDE + low.
# The fields `warm_*` count only the threads of the warm-up.
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
# Record with all scalars of one simulation run (replica).
# `idle` and `thieves` are bit sets of cores: cores to serve, and cores with a steal attempt.
# If `parked` is set, no thread is ready, and steal attempts are not simulated one by one.
REPLICA = np.dtype(
    [("key", "u8"), ("idle", "u8"), ("thieves", "u8"), ("next_key", "u8")]
    + [(name, "i8") for name in _PARAMETERS + _STATE + _SUMS]
    + [("lifo", "?"), ("stealing", "?"), ("parked", "?"), ("drawn", "?")]
)


class Model(NamedTuple):
    """Model to simulate as integer arrays: `numbers` has the scalars, and the other arrays define the distributions."""

    numbers: Any
    laws: Any
    logs: Any
    values: Any
    thresholds: Any


class Machine(NamedTuple):
    """Working memory for the simulation of one replica.

    `events` is a tree; `deques` has one row of families per core.
    """

    families: Any
    cores: Any
    events: Any
    deques: Any
    steals: Any


class Measured(NamedTuple):
    """Measurements of a replica. The next replica overwrites all of them except the histograms, which accumulate."""

    row: Any
    aside: Any
    by_depth: Any
    waits: Any
    sojourns: Any


# Indexes of the measurements in a row, in the order of rows.ROW.
MAKESPAN, WORK, OVERHEAD, LONGEST, LONGEST_WORK, THREADS, REACHED, PEAK_LIVE = range(8)
PEAK_READY, BUSY, STEALING, IDLE, STEALS, ATTEMPTS, SWITCHES, WAITED = range(8, 16)
N_MEASURED, N_WAITED, REFUSED, OUTCOME, SOJOURN, N_SOJOURNS, MAX_WAIT, MAX_SOJOURN = range(16, 24)
# Indexes of `aside`: high parts of two sums, both parts of the sum of all waits, and costs of repeated dispatches.
HIGH_WAITED, HIGH_SOJOURN, READY_LOW, READY_HIGH, AGAIN = range(5)
ASIDE = 5
# Indexes of `numbers`; BUDGET is the maximum number of simulated steal attempts and time slices.
# If QUANTUM is 0, there are no time slices; if ARRIVAL is 0, all roots are ready at the start.
ROOTS, MAX_DEPTH, MAX_THREADS, JOINS, DISPATCH_NS, SPAWN_NS, JOIN_NS, STEAL_NS = range(8)
LAW, CORES, POLICY, BUDGET, QUANTUM, ARRIVAL, ARRIVAL_BITS, WARMUP = range(8, 16)
POLICIES = ("fifo", "lifo", "round_robin", "work_stealing")
LIFO = POLICIES.index("lifo")
JOINING = ("none", "suspend", "block")
NONE, SUSPEND, BLOCK = range(3)
COMPLETED, DEADLOCKED, CAPPED = range(3)
#: Event of a core that has no next event.
NEVER = 2**63 - 1
#: Arrival time of the next root after the last root has arrived; later than the time of NEVER.
NO_ARRIVAL = 2**57
#: Factor of the high word in a sum of waiting times: `high * 2^62 + low`.
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
