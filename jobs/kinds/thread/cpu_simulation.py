"""numba: one replica, event by event. Integers only; times are int64 ns, hashes uint64.

The children of one thread are one family: same parent, depth, ready time and path lengths. A family is one row of
`families` from its spawn on; it is at once the entry in a ready queue (first..end-1 are not yet started) and the join
record of its parent. All roots of a batch are one family, a root that arrives by itself is one. With round_robin a row
may also hold one preempted thread, and is used again. A replica has no more rows than the array made from the spec's
`most_threads`, so it cannot overflow.

uint64 and int64 must never meet in one expression: numba would make it a float.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.random_cpu import sub
from jobs.kinds.thread.cpu_draws import (
    INLINE,
    JIT,
    bin_of,
    draw_children,
    draw_work,
    interarrival,
    trailing_zeros,
    victim,
)

# ready, span and path are the time, the burdened path and the work path when the family became ready; pending and
# latest count unfinished members and hold the longest finished path; parent is the family of the parent thread, -1 for
# roots; link is the next row of a queue; holder the core that a blocked parent keeps. A preempted thread's row has its
# own key and paths, its family in parent, its children in pending, its waits in latest, what is left of it in holder.
FAMILY = np.dtype([
    ("key", "u8"), ("first", "i8"), ("end", "i8"), ("ready", "i8"), ("span", "i8"), ("path", "i8"), ("depth", "i8"),
    ("pending", "i8"), ("latest", "i8"), ("parent", "i8"), ("link", "i8"), ("holder", "i8"),
])  # fmt: skip
#: The depth of a preempted thread's row.
PAUSED = -1
#: Added to the depth of families whose root is a warm-up root.
WARM = 128
# The thread that a core runs; children is CONTINUES while it runs a continuation, left what follows this slice.
CORE = np.dtype([
    ("key", "u8"), ("family", "i8"), ("span", "i8"), ("path", "i8"), ("children", "i8"), ("left", "i8"),
    ("waited", "i8"), ("", "i8"),
])  # fmt: skip
CONTINUES = -1
# A core's deque is entries top..bottom-1; its attempt to steal ends at ends; it has made tries attempts.
STEAL = np.dtype([("top", "i8"), ("bottom", "i8"), ("ends", "i8"), ("tries", "i8")])
# Columns of a row, in the order of rows.ROW.
MAKESPAN, WORK, OVERHEAD, LONGEST, LONGEST_WORK, THREADS, REACHED, PEAK_LIVE = range(8)
PEAK_READY, BUSY, STEALING, IDLE, STEALS, ATTEMPTS, SWITCHES, WAITED = range(8, 16)
N_MEASURED, N_WAITED, REFUSED, OUTCOME, SOJOURN, N_SOJOURNS, MAX_WAIT, MAX_SOJOURN = range(16, 24)
# Entries of `aside`: multiples of 2^62 of WAITED, of SOJOURN, and the two parts of all waits; costs of dispatching
# preempted threads.
HIGH_WAITED, HIGH_SOJOURN, READY_LOW, READY_HIGH, AGAIN = range(5)
ASIDE = 5
# Entries of `numbers`, the spec's scalars; BUDGET is the most attempts and slices stepped through; a QUANTUM of 0 is
# none, an ARRIVAL of 0 a batch.
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
_0, _1 = np.uint64(0), np.uint64(1)
#: A sum of waits is `high * 2^62 + low`.
WIDE = 2**62


@njit(**INLINE)
def put(events, leaves, core, event):
    """Set a core's event, packed as time * 64 + core. `events` is a tree: a node is the least of its two children,
    node 1 the least of all; the cores are the leaves.
    """
    node = np.uint64(leaves + core)
    events[node] = event
    while node > _1:
        event = min(event, events[node ^ _1])
        node >>= _1
        events[node] = event


@njit(**INLINE)
def futile(ends, core, now, actor, cost):
    """Attempts of a core that end, in the order of events, before the event of `actor` at `now`."""
    if ends > now or (ends == now and core > actor):
        return 0
    steps = (now - ends) // cost
    if ends + steps * cost == now and core > actor:
        return steps
    return steps + 1


def _simulator(stealing):  # noqa: C901 - one event loop
    """Compile the simulator for work stealing or for the global queues: neither pays for the other."""

    @njit(**JIT)
    def simulate(  # noqa: C901 - one event loop
        key, numbers, laws, logs, values, thresholds, families, cores, events, deques, steals,
        row, aside, by_depth, waits, sojourns,
    ):  # fmt: skip
        """Simulate one replica: fill `row`, `aside` and `by_depth`, add to the histograms of waits and sojourns.

        Entries of a deque have strictly increasing depth, so none outgrows max_depth entries. Return False when more
        attempts and slices were stepped through than the budget allows, which only a bug can do.
        """
        roots, max_depth, joins, law = numbers[ROOTS], numbers[MAX_DEPTH], numbers[JOINS], numbers[LAW]
        dispatch_ns, spawn_ns, join_ns, cost = (
            numbers[DISPATCH_NS], numbers[SPAWN_NS], numbers[JOIN_NS], numbers[STEAL_NS],
        )  # fmt: skip
        p, lifo, quantum, mean = numbers[CORES], numbers[POLICY] == LIFO, numbers[QUANTUM], numbers[ARRIVAL]
        leaves = events.shape[0] // 2
        row[:] = 0
        aside[:] = 0
        by_depth[:] = 0
        for each in range(p):
            steals[each].top = 0
            steals[each].bottom = 0
            steals[each].tries = 0
        events[:] = NEVER
        spawned = live = ready = np.int64(0)
        born = np.int64(0)  # rows used so far
        spare = np.int64(-1)  # rows to use again
        head = tail = np.int64(-1)  # of the global queue
        arrived = roots
        clock = np.int64(0)
        due = NO_ARRIVAL
        if mean == 0:
            families[0].key = key
            families[0].first = 0
            families[0].end = roots
            families[0].ready = 0
            families[0].span = 0
            families[0].path = 0
            families[0].depth = 0
            families[0].parent = -1
            families[0].link = -1
            head = tail = np.int64(0)
            born = np.int64(1)
            live = ready = roots
        else:
            arrived = np.int64(0)
            clock = interarrival(key, 0, mean, logs)
            due = clock >> numbers[ARRIVAL_BITS]
        room = numbers[MAX_THREADS] - roots
        peak_live, peak_ready = live, np.int64(0)
        work_ns = busy = wanted = started = again = joined = refused = np.int64(0)
        longest = longest_work = max_wait = np.int64(0)
        wait_low = wait_high = warm_low = warm_high = warm_started = np.int64(0)
        unwaited = waits[0]
        stepped = blocked = np.int64(0)
        stolen = taken = np.int64(-1)
        parked = True  # nothing is ready: attempts of idle cores are not stepped through
        thieves = _0
        now = np.int64(0)
        core = last = np.int64(-1)  # last: the core whose event is past and not yet replaced
        idle = ~_0 >> np.uint64(64 - p)
        while True:
            while idle != _0:
                free = trailing_zeros(idle)
                if stealing and stolen >= 0:
                    family, child = stolen, taken
                    stolen = np.int64(-1)
                elif stealing and steals[free].bottom > steals[free].top:
                    entry = steals[free].bottom - 1
                    family = deques[free, entry]
                    child = families[family].end - 1
                    families[family].end = child
                    if child == families[family].first:
                        steals[free].bottom = entry
                elif head >= 0:
                    family = head
                    if lifo and not stealing:
                        child = families[family].end - 1
                        families[family].end = child
                        if child == families[family].first:
                            head = families[family].link
                    else:
                        child = families[family].first
                        families[family].first = child + 1
                        if child + 1 == families[family].end:
                            head = families[family].link
                else:
                    if not stealing or p == 1:
                        break
                    idle &= idle - _1
                    thieves |= _1 << np.uint64(free)
                    steals[free].ends = now + cost
                    if not parked:
                        put(events, leaves, free, (now + cost) << 6 | free)
                        if free == last:
                            last = np.int64(-1)
                    continue
                idle &= idle - _1
                ready -= 1
                wait = now - families[family].ready
                wait_low += wait
                if wait_low >= WIDE:
                    wait_low -= WIDE
                    wait_high += 1
                depth = families[family].depth
                if not stealing and depth == PAUSED:
                    cores[free].key = families[family].key
                    cores[free].family = families[family].parent
                    cores[free].span = families[family].span
                    cores[free].path = families[family].path
                    cores[free].children = families[family].pending
                    cores[free].waited = families[family].latest + wait
                    left = families[family].holder
                    depth = families[families[family].parent].depth
                    families[family].link = spare
                    spare = family
                    again += 1
                else:
                    name = sub(families[family].key, child)
                    children = draw_children(name, depth & (WARM - 1), max_depth, values, thresholds)
                    work = draw_work(name, law, laws, logs)
                    left = work + children * spawn_ns
                    cores[free].key = name
                    cores[free].family = family
                    cores[free].span = families[family].span + dispatch_ns + left
                    cores[free].path = families[family].path + work
                    cores[free].children = children
                    cores[free].waited = wait
                    started += 1
                    work_ns += work
                    wanted += children
                    if depth >= WARM:
                        warm_started += 1
                    elif stealing or quantum == 0:
                        max_wait = max(max_wait, wait)
                        waits[bin_of(wait)] += 1
                if depth >= WARM:
                    warm_low += wait
                    if warm_low >= WIDE:
                        warm_low -= WIDE
                        warm_high += 1
                if not stealing and quantum > 0:
                    part = min(left, quantum)
                    cores[free].left = left - part
                    left = part
                busy += dispatch_ns + left
                put(events, leaves, free, (now + dispatch_ns + left) << 6 | free)
                if free == last:
                    last = np.int64(-1)
            if last >= 0:
                put(events, leaves, last, NEVER)
                last = np.int64(-1)
            peak_ready = max(peak_ready, ready)
            if stealing and parked != (ready == 0):
                parked = ready == 0
                rest = thieves
                while rest != _0:
                    thief = trailing_zeros(rest)
                    rest &= rest - _1
                    if parked:
                        put(events, leaves, thief, NEVER)
                    else:
                        missed = futile(steals[thief].ends, thief, now, core, cost)
                        steals[thief].ends += missed * cost
                        steals[thief].tries += missed
                        put(events, leaves, thief, steals[thief].ends << 6 | thief)
            if (live == 0 and arrived == roots) or blocked == p:
                break

            event = events[1]
            if due <= event >> 6:
                now, core = due, np.int64(-1)
                families[born].key = key
                families[born].first = arrived
                families[born].end = arrived + 1
                families[born].ready = now
                families[born].span = now
                families[born].path = 0
                families[born].depth = WARM if arrived < numbers[WARMUP] else 0
                families[born].parent = -1
                if lifo and not stealing:
                    families[born].link = head
                    head = born
                else:
                    families[born].link = -1
                    if head < 0:
                        head = born
                    else:
                        families[tail].link = born
                    tail = born
                born += 1
                live += 1
                ready += 1
                peak_live = max(peak_live, live)
                arrived += 1
                due = NO_ARRIVAL
                if arrived < roots:
                    clock += interarrival(key, arrived, mean, logs)
                    due = clock >> numbers[ARRIVAL_BITS]
                continue

            now = event >> 6
            core = last = event & 63
            bit = _1 << np.uint64(core)
            if stealing and thieves & bit != _0:
                stepped += 1
                if stepped > numbers[BUDGET]:
                    return False
                other = victim(core, steals[core].tries, key, p)
                steals[core].tries += 1
                top = steals[other].top
                if top < steals[other].bottom:
                    stolen = deques[other, top]
                    taken = families[stolen].first
                    families[stolen].first = taken + 1
                    if taken + 1 == families[stolen].end:
                        steals[other].top = top + 1
                    row[STEALS] += 1
                thieves ^= bit
                idle |= bit
                continue

            if not stealing and quantum > 0 and cores[core].left > 0:
                stepped += 1
                if stepped > numbers[BUDGET]:
                    return False
                left = cores[core].left
                if head < 0:
                    part = min(left, quantum)
                    cores[core].left = left - part
                    busy += part
                    put(events, leaves, core, (now + part) << 6 | core)
                    last = np.int64(-1)
                    continue
                place = spare
                if place >= 0:
                    spare = families[place].link
                else:
                    place = born
                    born += 1
                families[place].key = cores[core].key
                families[place].first = 0
                families[place].end = 1
                families[place].ready = now
                families[place].span = cores[core].span
                families[place].path = cores[core].path
                families[place].depth = PAUSED
                families[place].pending = cores[core].children
                families[place].latest = cores[core].waited
                families[place].holder = left
                families[place].parent = cores[core].family
                families[place].link = -1
                families[tail].link = place
                tail = place
                ready += 1
                idle |= bit
                continue

            children = cores[core].children
            family = cores[core].family
            if children != CONTINUES:
                longest_work = max(longest_work, cores[core].path)
                if not stealing and quantum > 0:
                    wait = cores[core].waited
                    if families[family].depth < WARM:
                        max_wait = max(max_wait, wait)
                        waits[bin_of(wait)] += 1
            if children > 0:
                allowed = min(children, room)
                refused += children - allowed
                children = allowed
            if children > 0:
                room -= children
                depth = families[family].depth + 1
                families[born].key = cores[core].key
                families[born].first = 0
                families[born].end = children
                families[born].ready = now
                families[born].span = cores[core].span
                families[born].path = cores[core].path
                families[born].depth = depth
                families[born].pending = children
                families[born].latest = 0
                families[born].parent = family
                by_depth[depth & (WARM - 1)] += children
                spawned += children
                live += children
                ready += children
                peak_live = max(peak_live, live)
                if stealing:
                    entry = steals[core].bottom
                    if steals[core].top == entry:
                        steals[core].top = 0
                        entry = 0
                    deques[core, entry] = born
                    steals[core].bottom = entry + 1
                elif lifo:
                    families[born].link = head
                    head = born
                else:
                    families[born].link = -1
                    if head < 0:
                        head = born
                    else:
                        families[tail].link = born
                    tail = born
                if joins == BLOCK:
                    families[born].holder = core
                    blocked += 1
                born += 1
                if joins != NONE:
                    if joins == SUSPEND:
                        idle |= bit
                    continue
            span = cores[core].span
            at = core
            while True:
                live -= 1
                above = families[family].parent
                if above < 0:
                    longest = max(longest, span)
                    if families[family].depth < WARM:
                        sojourn = now - families[family].ready
                        row[N_SOJOURNS] += 1
                        row[MAX_SOJOURN] = max(row[MAX_SOJOURN], sojourn)
                        sojourns[bin_of(sojourn)] += 1
                        row[SOJOURN] += sojourn
                        if row[SOJOURN] >= WIDE:
                            row[SOJOURN] -= WIDE
                            aside[HIGH_SOJOURN] += 1
                    idle |= _1 << np.uint64(at)
                    break
                if joins == NONE:
                    longest = max(longest, span)
                    idle |= bit
                    break
                families[family].pending -= 1
                families[family].latest = max(families[family].latest, span)
                if families[family].pending > 0:
                    idle |= _1 << np.uint64(at)
                    break
                span = families[family].latest + join_ns
                joined += 1
                if joins == BLOCK:
                    idle |= _1 << np.uint64(at)
                    at = families[family].holder
                    blocked -= 1
                family = above
                if join_ns > 0:
                    busy += join_ns
                    cores[at].family = family
                    cores[at].span = span
                    cores[at].children = CONTINUES
                    put(events, leaves, at, (now + join_ns) << 6 | at)
                    if at == last:
                        last = np.int64(-1)
                    break

        attempts = np.int64(0)
        if stealing:
            for each in range(p):
                attempts += steals[each].tries
                if thieves & (_1 << np.uint64(each)) != _0:
                    attempts += futile(steals[each].ends, each, now, core, cost)
        by_depth[0] = arrived
        reached = 0
        for depth in range(by_depth.shape[0]):
            if by_depth[depth] > 0:
                reached = depth
        row[MAKESPAN] = now
        row[WORK] = work_ns
        row[OVERHEAD] = started * dispatch_ns + wanted * spawn_ns + joined * join_ns
        row[LONGEST] = longest
        row[LONGEST_WORK] = longest_work
        row[THREADS] = arrived + spawned
        row[REACHED] = reached
        row[PEAK_LIVE] = peak_live
        row[PEAK_READY] = peak_ready
        row[BUSY] = busy
        row[STEALING] = attempts * cost
        row[IDLE] = p * now - row[BUSY] - row[STEALING]
        row[ATTEMPTS] = attempts
        row[SWITCHES] = started + again + joined
        row[N_MEASURED] = started - warm_started
        row[N_WAITED] = row[N_MEASURED] - (waits[0] - unwaited)
        row[REFUSED] = refused
        row[MAX_WAIT] = max_wait
        row[OUTCOME] = CAPPED if refused > 0 else COMPLETED
        if blocked == p:
            row[OUTCOME] = DEADLOCKED
            row[LONGEST] = 0
            row[LONGEST_WORK] = 0
        aside[READY_LOW] = wait_low
        aside[READY_HIGH] = wait_high
        aside[AGAIN] = again * dispatch_ns
        if warm_low > wait_low:
            wait_low += WIDE
            wait_high -= 1
        row[WAITED] = wait_low - warm_low
        aside[HIGH_WAITED] = wait_high - warm_high
        return True

    return simulate


simulate_queue = _simulator(False)
simulate_stealing = _simulator(True)
