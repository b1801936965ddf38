"""numba: one replica, event by event. Integers only; times are int64 ns, hashes uint64.

The children of one thread are one family: same parent, depth, ready time and path lengths. A family is one row of
`families` from its spawn on; it is at once the entry in a ready queue (with a range of children not yet started) and
the join record of its parent. A replica has fewer families than threads, so the array made from the spec's
`most_threads` cannot overflow. The roots are family 0.

uint64 and int64 must never meet in one expression: numba would make it a float.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from jobs.kinds.thread.cpu_draws import INLINE, JIT, bin_of, draw_children, draw_work, sub, trailing_zeros, victim

# Columns of `families`. READY, SPAN and PATH are the time, the burdened path and the work path when the family
# became ready; PENDING and LATEST count unfinished members and hold the longest finished path; PARENT is the family
# of the parent thread.
KEY, READY, SPAN, PATH, DEPTH, COUNT, PENDING, LATEST, PARENT = range(9)
FAMILY = 9
# Columns of `cores`: the thread that a core runs. CHILDREN is CONTINUES while it runs a continuation.
RUN_KEY, RUN_FAMILY, RUN_SPAN, RUN_PATH, CHILDREN = range(5)
CORE = 8
CONTINUES = -1
# Columns of a row, in the order of rows.ROW.
MAKESPAN, WORK, OVERHEAD, LONGEST, LONGEST_WORK, THREADS, REACHED, PEAK_LIVE = range(8)
PEAK_READY, BUSY, STEALING, IDLE, STEALS, ATTEMPTS, SWITCHES, WAITED = range(8, 16)
N_MEASURED, N_WAITED, REFUSED, OUTCOME, SOJOURN, N_SOJOURNS, MAX_WAIT, MAX_SOJOURN = range(16, 24)
# Entries of `numbers`, the spec's scalars; STEALS_WORK is 1 for work_stealing, BUDGET the most attempts stepped.
ROOTS, MAX_DEPTH, MAX_THREADS, JOINS, DISPATCH_NS, SPAWN_NS = range(6)
JOIN_NS, STEAL_NS, LAW, CORES, STEALS_WORK, BUDGET = range(6, 12)
#: The event of a core that waits for none.
NEVER = 2**63 - 1
_0, _1 = np.uint64(0), np.uint64(1)
#: A sum of waits is `high * 2^62 + low`.
WIDE = 2**62


@njit(**INLINE)
def next_event(events):
    """The least of the packed (time * 64 + core)."""
    least = events[0]
    for core in range(1, events.shape[0]):
        least = min(least, events[core])
    return least


@njit(**INLINE)
def start(core, family, child, now, model, machine, measured):
    """Core begins a thread: draws it, sets when its segment ends, measures its wait, which it returns."""
    numbers, laws, logs, values, thresholds = model
    families, cores, events, _, _ = machine
    row, _, _, waits, _ = measured
    key = sub(np.uint64(families[family, KEY]), child)
    depth = families[family, DEPTH]
    children = draw_children(key, depth, numbers[MAX_DEPTH], values, thresholds)
    work = draw_work(key, numbers[LAW], laws, logs)
    segment = numbers[DISPATCH_NS] + work + children * numbers[SPAWN_NS]
    cores[core, RUN_KEY] = np.int64(key)
    cores[core, RUN_FAMILY] = family
    cores[core, RUN_SPAN] = families[family, SPAN] + segment
    cores[core, RUN_PATH] = families[family, PATH] + work
    cores[core, CHILDREN] = children
    events[core] = (now + segment) << 6 | core
    wait = now - families[family, READY]
    row[WORK] += work
    row[BUSY] += segment
    row[OVERHEAD] += segment - work
    row[N_MEASURED] += 1
    if wait > 0:
        row[N_WAITED] += 1
        row[MAX_WAIT] = max(row[MAX_WAIT], wait)
    waits[bin_of(wait)] += 1
    return wait


@njit(**INLINE)
def spawn(core, now, allowed, family, families, cores):
    """The core's thread becomes the parent of a new family."""
    parent = cores[core, RUN_FAMILY]
    families[family, KEY] = cores[core, RUN_KEY]
    families[family, READY] = now
    families[family, SPAN] = cores[core, RUN_SPAN]
    families[family, PATH] = cores[core, RUN_PATH]
    families[family, DEPTH] = families[parent, DEPTH] + 1
    families[family, COUNT] = allowed
    families[family, PENDING] = allowed
    families[family, LATEST] = 0
    families[family, PARENT] = parent


@njit(**INLINE)
def complete(core, now, numbers, machine, measured):
    """The core's thread ends, and with it every parent whose last child it was.

    Returns (threads that ended, sojourn of the root if one ended else -1); leaves a continuation running if it
    costs time.
    """
    families, cores, events, _, _ = machine
    row, _, _, _, sojourns = measured
    family = cores[core, RUN_FAMILY]
    span = cores[core, RUN_SPAN]
    ended = 0
    while True:
        ended += 1
        if family == 0:
            row[LONGEST] = max(row[LONGEST], span)
            sojourns[bin_of(now)] += 1
            row[MAX_SOJOURN] = max(row[MAX_SOJOURN], now)
            return ended, now
        if numbers[JOINS] == 0:
            row[LONGEST] = max(row[LONGEST], span)
            return ended, -1
        families[family, PENDING] -= 1
        families[family, LATEST] = max(families[family, LATEST], span)
        if families[family, PENDING] > 0:
            return ended, -1
        span = families[family, LATEST] + numbers[JOIN_NS]
        family = families[family, PARENT]
        row[SWITCHES] += 1
        if numbers[JOIN_NS] > 0:
            row[BUSY] += numbers[JOIN_NS]
            row[OVERHEAD] += numbers[JOIN_NS]
            cores[core, RUN_FAMILY] = family
            cores[core, RUN_SPAN] = span
            cores[core, CHILDREN] = CONTINUES
            events[core] = (now + numbers[JOIN_NS]) << 6 | core
            return ended, -1


@njit(**INLINE)
def futile(ends, core, now, actor, cost):
    """Attempts of a core that end, in the order of events, before the event of `actor` at `now`."""
    if ends > now or (ends == now and core > actor):
        return 0
    steps = (now - ends) // cost
    if ends + steps * cost == now and core > actor:
        return steps
    return steps + 1


@njit(**JIT)
def simulate(key, model, machine, measured):  # noqa: C901 - one event loop
    """One replica into `measured`: its row, multiples of 2^62 of its sums of waits and sojourns, threads by depth; and
    adds to the histograms of waits and sojourns.

    `deques[core]` holds (family, first, end) entries, `steals[core]` = top, bottom, end of the attempt, attempts.
    Entries of a deque have strictly increasing depth, so none outgrows max_depth entries. Returns False when more
    steal attempts were stepped through than the budget allows, which only a bug can do.
    """
    numbers = model[0]
    families, cores, events, deques, steals = machine
    row, high, by_depth, _, _ = measured
    p, roots, cost = numbers[CORES], numbers[ROOTS], numbers[STEAL_NS]
    stealing = numbers[STEALS_WORK] != 0
    row[:] = 0
    high[:] = 0
    by_depth[:] = 0
    steals[:] = 0
    events[:] = NEVER
    families[0, KEY] = np.int64(key)
    families[0, READY] = 0
    families[0, SPAN] = 0
    families[0, PATH] = 0
    families[0, DEPTH] = 0
    families[0, COUNT] = roots
    families[0, PENDING] = roots
    families[0, LATEST] = 0
    families[0, PARENT] = -1
    by_depth[0] = roots
    created = live = ready = roots
    row[PEAK_LIVE] = roots
    born = 1  # families so far
    head = child = 0  # of the global queue: a family and its next child
    total_wait = total_sojourn = np.int64(0)
    stepped = np.int64(0)
    parked = True  # nothing to steal: attempts of idle cores are not stepped through
    thieves = _0
    now = np.int64(0)
    core = np.int64(0)
    idle = ~_0 >> np.uint64(64 - p)
    while True:
        while idle != _0:
            free = trailing_zeros(idle)
            if stealing and steals[free, 1] > steals[free, 0]:
                entry = steals[free, 1] - 1
                family = deques[free, entry, 0]
                deques[free, entry, 2] -= 1
                begun = deques[free, entry, 2]
                if begun == deques[free, entry, 1]:
                    steals[free, 1] = entry
            elif head < born and (head == 0 or not stealing):
                family = head
                begun = child
                child += 1
                if child == families[head, COUNT]:
                    child = 0
                    head += 1
            else:
                if not stealing or p == 1:
                    break
                idle &= idle - _1
                thieves |= _1 << np.uint64(free)
                steals[free, 2] = now + cost
                if not parked:
                    events[free] = (now + cost) << 6 | free
                continue
            idle &= idle - _1
            ready -= 1
            total_wait += start(free, family, begun, now, model, machine, measured)
            if total_wait >= WIDE:
                total_wait -= WIDE
                high[0] += 1
        row[PEAK_READY] = max(row[PEAK_READY], ready)
        if stealing and thieves != _0 and parked != (ready == 0):
            parked = ready == 0
            left = thieves
            while left != _0:
                thief = trailing_zeros(left)
                left &= left - _1
                if parked:
                    events[thief] = NEVER
                else:
                    missed = futile(steals[thief, 2], thief, now, core, cost)
                    steals[thief, 2] += missed * cost
                    steals[thief, 3] += missed
                    events[thief] = steals[thief, 2] << 6 | thief
        elif stealing:
            parked = ready == 0
        if live == 0:
            break

        event = next_event(events)
        now = event >> 6
        core = event & 63
        bit = _1 << np.uint64(core)
        if thieves & bit != _0:
            stepped += 1
            if stepped > numbers[BUDGET]:
                return False
            other = victim(core, steals[core, 3], key, p)
            steals[core, 3] += 1
            top = steals[other, 0]
            if top == steals[other, 1]:
                steals[core, 2] = now + cost
                events[core] = (now + cost) << 6 | core
                continue
            first = deques[other, top, 1]
            deques[other, top, 1] += 1
            if first + 1 == deques[other, top, 2]:
                steals[other, 0] += 1
            deques[core, 0, 0] = deques[other, top, 0]
            deques[core, 0, 1] = first
            deques[core, 0, 2] = first + 1
            steals[core, 0] = 0
            steals[core, 1] = 1
            row[STEALS] += 1
            thieves ^= bit
            idle |= bit
            continue

        events[core] = NEVER
        children = cores[core, CHILDREN]
        if children > 0:
            allowed = min(children, numbers[MAX_THREADS] - created)
            row[REFUSED] += children - allowed
            children = allowed
        row[LONGEST_WORK] = max(row[LONGEST_WORK], cores[core, RUN_PATH])
        if children > 0:
            spawn(core, now, children, born, families, cores)
            by_depth[families[born, DEPTH]] += children
            created += children
            live += children
            ready += children
            row[PEAK_LIVE] = max(row[PEAK_LIVE], live)
            if stealing:
                if steals[core, 0] == steals[core, 1]:
                    steals[core, 0] = 0
                    steals[core, 1] = 0
                entry = steals[core, 1]
                deques[core, entry, 0] = born
                deques[core, entry, 1] = 0
                deques[core, entry, 2] = children
                steals[core, 1] = entry + 1
            born += 1
        if children <= 0 or numbers[JOINS] == 0:
            ended, sojourn = complete(core, now, numbers, machine, measured)
            live -= ended
            if sojourn >= 0:
                total_sojourn += sojourn
                if total_sojourn >= WIDE:
                    total_sojourn -= WIDE
                    high[1] += 1
        if events[core] == NEVER:
            idle |= bit

    attempts = np.int64(0)
    for each in range(p):
        attempts += steals[each, 3]
        if thieves & (_1 << np.uint64(each)) != _0:
            attempts += futile(steals[each, 2], each, now, core, cost)
    reached = 0
    for depth in range(by_depth.shape[0]):
        if by_depth[depth] > 0:
            reached = depth
    row[MAKESPAN] = now
    row[THREADS] = created
    row[REACHED] = reached
    row[STEALING] = attempts * cost
    row[IDLE] = p * now - row[BUSY] - row[STEALING]
    row[ATTEMPTS] = attempts
    row[SWITCHES] += row[N_MEASURED]
    row[WAITED] = total_wait
    row[OUTCOME] = 2 if row[REFUSED] > 0 else 0
    row[SOJOURN] = total_sojourn
    row[N_SOJOURNS] = roots
    return True
