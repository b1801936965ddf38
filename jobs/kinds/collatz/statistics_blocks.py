"""Statistics of single numbers, and of blocks of 2^k numbers, whose residue classes share their computation.

README.md proves that this is exact. In short: block h contains n = 2^k h + r for all r < 2^k. After k shortcut steps, n
has become 3^c h + d, the same number for all r of a class, so the rest of the trajectory (the tail) is computed once
per class. Classes are ordered by their smallest residue, so the first class that exceeds all before it contains a
record at that residue.
"""

# mypy: ignore-errors
# numba infers the types of these functions by rules that mypy does not know

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from jobs.kinds.collatz import quads
from jobs.kinds.collatz.tables import LOG_BITS, WEIGHT_SHIFT, Lookup
from jobs.kinds.collatz.wide import descend, exceeds, walk

#: Error codes of the compiled functions; 0 means success.
TOO_LONG, TOO_MANY_RECORDS, TOO_MANY_WIDE = 1, 2, 3
#: Length of the histogram and of the lists of records; no known delay or list below 2^96 comes close to it.
DELAYS = 8192
#: Number of shortcut steps after which a residue class is computed step by step; less than 0.64 of the steps are odd.
LONG = 4000
#: Number of residue classes that are processed together (a tile); their state fits in the first-level cache.
TILE = 2048
#: Number of powers of three with stored products (24 steps need at most 25), and number of values of a byte.
POWERS, BYTES = 32, 256
#: Bit position of the number of residues in a tag; the lower bits of a tag are the index of a residue class.
TAG_WEIGHT = 16
#: Maximum growth in 16 steps as a power of two: after x, values stay below 2 * 1.5^16 * (x + 1) < 2^11 (x + 1).
GROWTH_BITS = 11
#: Values of the argument `placed` for the runs over a tile; the second run stores delays, to find delay records.
AGAIN = (False, True)
#: Index 0 as a typed constant, because numba would compile `end_lanes` again for a plain 0.
FIRST = np.int64(0)
#: Special delay of a residue class that grew too large or can contain a peak record; it is computed step by step.
ODD_ONE = np.uint16(2**16 - 1)

_ZERO, _ONE, _ALL = np.uint64(0), np.uint64(1), np.uint64(2**64 - 1)
_WEIGHT_SHIFT = np.uint64(WEIGHT_SHIFT)
_GROWTH, _GROWTH_UP = np.uint64(GROWTH_BITS), np.uint64(64 - GROWTH_BITS)
_INDEX, _TAG_WEIGHT = np.uint64(2**TAG_WEIGHT - 1), np.uint64(TAG_WEIGHT)
_LOG_BITS, _LOG_UNIT = np.int64(LOG_BITS), float(2**LOG_BITS)
_LOG_3_OF_2 = float(np.log(2.0) / np.log(3.0))


# Functions unpack the arrays of a tuple before a loop, because numba would count references in each iteration.


class Notes(NamedTuple):
    """Arrays with the histogram and the records of a lease. A place is a number minus the start of the lease.

    Numbers must be processed in ascending order.
    """

    #: Number of integers with each delay.
    histogram: Any
    #: Rows (place, delay) of delay records, and rows (place, high word, low word) of peak records.
    by_delay: Any
    by_path: Any
    #: Rows (place, count of numbers with this delay) for numbers whose trajectories exceed two 64-bit words.
    wide: Any
    #: Lengths of `by_delay`, `by_path` and `wide`.
    sizes: Any
    #: High and low word of the number at which the lease starts.
    origin: Any


class Tile(NamedTuple):
    """Working memory for residue classes that are processed together (a tile)."""

    #: Low words, high words and tags of unfinished classes; a tag is the class's index + (number of residues << 16).
    low: Any
    high: Any
    live: Any
    #: Values and tags of classes that have just finished.
    end: Any
    ended: Any
    #: Delays of the classes by index, or 0; ODD_ONE marks a class that must be computed step by step.
    delays: Any
    #: Products 3^c h, indexed by the lowest byte of a packed class: first all low words, then all high words.
    products: Any
    #: Tables for permuting the elements of vectors of four.
    orders: Any


def empty_notes(origin: int = 0) -> Notes:
    return Notes(
        histogram=np.zeros(DELAYS, np.uint64),
        by_delay=np.zeros((DELAYS, 2), np.uint64),
        by_path=np.zeros((DELAYS, 3), np.uint64),
        wide=np.zeros((DELAYS, 2), np.uint64),
        sizes=np.zeros(3, np.int64),
        origin=np.array(divmod(origin, 2**64), np.uint64),
    )


def tile() -> Tile:
    """Allocate the working memory of a tile, with space for vectors that extend beyond its end."""
    lanes = [np.zeros(TILE + 8, np.uint64) for _ in range(5)]
    return Tile(
        *lanes, delays=np.zeros(TILE, np.uint16), products=np.zeros(2 * BYTES, np.uint64), orders=quads.orders()
    )


@njit(nogil=True, cache=True)
def _number(place: np.uint64, notes: Notes) -> tuple[np.uint64, np.uint64]:
    """Return the number at a place as two 64-bit words (high, low)."""
    low = notes.origin[1] + place
    return notes.origin[0] + np.uint64(low < place), low


@njit(nogil=True, cache=True)
def _note_delay(place: np.uint64, delay: int, notes: Notes) -> int:
    """Append a delay record if the delay is a new maximum. Numbers must arrive in ascending order."""
    size = notes.sizes[0]
    if size == 0 or delay > notes.by_delay[size - 1, 1]:
        if size == DELAYS:
            return TOO_MANY_RECORDS
        notes.by_delay[size, 0], notes.by_delay[size, 1] = place, delay
        notes.sizes[0] = size + 1
    return 0


@njit(nogil=True, cache=True)
def _note_path(place: np.uint64, high: np.uint64, low: np.uint64, notes: Notes) -> int:
    """Append a peak record if the peak is a new maximum. Numbers that can be records must arrive in ascending order."""
    size, rows = notes.sizes[1], notes.by_path
    if size == 0 or exceeds(high, low, rows[size - 1, 1], rows[size - 1, 2]):
        if size == DELAYS:
            return TOO_MANY_RECORDS
        rows[size, 0], rows[size, 1], rows[size, 2] = place, high, low
        notes.sizes[1] = size + 1
    return 0


@njit(nogil=True, cache=True)
def _note_wide(place: np.uint64, weight: np.uint64, notes: Notes) -> int:
    """Append a number to the list of numbers that must be processed as Python integers."""
    size = notes.sizes[2]
    if size == DELAYS:
        return TOO_MANY_WIDE
    notes.wide[size, 0], notes.wide[size, 1] = place, weight
    notes.sizes[2] = size + 1
    return 0


@njit(nogil=True, cache=True)
def _count(place: np.uint64, delay: int, weight: np.uint64, notes: Notes) -> int:
    """Add `weight` numbers with this delay to the histogram. Record the first number if the delay is a new maximum."""
    if delay >= DELAYS:
        return TOO_LONG
    notes.histogram[delay] += weight
    return _note_delay(place, delay, notes)


@njit(nogil=True, cache=True)
def singles(start: np.uint64, end: np.uint64, notes: Notes) -> int:
    """Compute the trajectories of the numbers at places start..end-1 step by step."""
    for place in range(start, end):
        delay, high, low = walk(*_number(np.uint64(place), notes))
        if delay < 0:
            failure = _note_wide(np.uint64(place), _ONE, notes)
        else:
            failure = max(_count(place, delay, _ONE, notes), _note_path(place, high, low, notes))
        if failure:
            return failure
    return 0


@njit(nogil=True, cache=True)
def climb(start: np.uint64, end: np.uint64, high: np.uint64, low: np.uint64, notes: Notes) -> tuple[int, np.uint64]:
    """Compute numbers one by one until a peak reaches (high, low). Return (error code, first unprocessed place)."""
    for place in range(start, end):
        size = notes.sizes[1]
        if size and not exceeds(high, low, notes.by_path[size - 1, 1], notes.by_path[size - 1, 2]):
            return 0, np.uint64(place)
        delay, most_high, most_low = walk(*_number(np.uint64(place), notes))
        note = _note_wide(place, _ZERO, notes) if delay < 0 else _note_path(place, most_high, most_low, notes)
        if note:
            return note, np.uint64(place)
    return 0, end


@njit(nogil=True, cache=True)
def reach(notes: Notes, walked: bool) -> tuple[np.uint64, np.uint64]:
    """Return the largest value whose next 16 steps cannot exceed the maximum peak so far, as two words (high, low)."""
    if walked:
        return _ALL, _ALL
    last = notes.sizes[1] - 1
    high, low = notes.by_path[last, 1], notes.by_path[last, 2]
    low = (low >> _GROWTH) | (high << _GROWTH_UP)
    high >>= _GROWTH
    return high - np.uint64(low == _ZERO), low - _ONE


@njit(nogil=True, cache=True)
def odd_steps_offset(steps: int, log_of_start: float) -> np.int64:
    """Return the offset o such that a class with value x after `steps` steps has made floor(log3(x) + o) odd steps.

    Both terms are in units of 2^-LOG_BITS. `log_of_start` is log3 of the block's first number. README.md ("Odd steps
    without counting them") proves that rounding down is exact.
    """
    return np.int64(np.floor((steps * _LOG_3_OF_2 - log_of_start + 0.3) * _LOG_UNIT))


@njit(nogil=True, cache=True)
def end_lanes(
    begin: int, stop: int, steps: int, offset: np.int64, ends, histogram, placed: bool, tile: Tile
) -> tuple[np.int64, bool]:
    """Count the delays of residue classes that finished after `steps` steps, or store the delays.

    The classes are begin..stop-1 of `tile.end`. Return (maximum delay, whether any class is marked ODD_ONE). Delays are
    counted in the histogram, or stored by index if `placed` is True. Classes that must be computed step by step are
    only marked.
    """
    most, odd, last = np.int64(0), False, np.uint64(len(ends))
    tile_end, tags, delays = tile.end, tile.ended, tile.delays
    offset += np.int64(steps) << _LOG_BITS
    for j in range(begin, stop):
        x, tag = tile_end[j], tags[j]
        if x >= last or steps > LONG:
            delays[tag & _INDEX] = ODD_ONE
            odd = True
            continue
        delay = (np.int64(ends[x]) + offset) >> _LOG_BITS
        if placed:
            delays[tag & _INDEX] = delay
        else:
            histogram[delay] += tag >> _TAG_WEIGHT
        most = max(most, delay)
    return most, odd


@njit(nogil=True, cache=True)
def mark(alive: int, over: int, tile: Tile) -> None:
    """Mark all remaining and all finished classes of a tile for computation step by step."""
    delays, live, ended = tile.delays, tile.live, tile.ended
    for j in range(alive):
        delays[live[j]] = ODD_ONE
    for j in range(over):
        delays[ended[j]] = ODD_ONE


@njit(nogil=True, cache=True)
def give_up(alive: int, tile: Tile) -> bool:
    """Mark the remaining classes for computation step by step, and return True if there are any."""
    delays, live = tile.delays, tile.live
    for j in range(alive):
        delays[live[j] & _INDEX] = ODD_ONE
    return alive > 0


@njit(nogil=True, cache=True)
def settle(start: np.uint64, packed, first, lookup: Lookup, walked: bool, tile: Tile, notes: Notes) -> int:
    """Compute the marked classes of a tile step by step, and append delay records in the order of smallest residues."""
    delays, record = tile.delays, record_of(notes)
    for i in range(len(packed)):
        # Compare with the record before the call, because calls that pass tuples of arrays are expensive.
        if np.int64(delays[i]) > record:
            failure = _settle_one(start + np.uint64(first[i]), delays[i], packed[i], lookup, walked, notes)
            record = record_of(notes)
            if failure:
                return failure
    delays[: len(packed)] = 0
    return 0


@njit(nogil=True, cache=True)
def record_of(notes: Notes) -> np.int64:
    """Return the maximum delay so far, or -1 if there is none."""
    size = notes.sizes[0]
    return np.int64(notes.by_delay[size - 1, 1]) if size else np.int64(-1)


@njit(nogil=True, cache=True)
def _settle_one(
    place: np.uint64, delay: np.uint16, entry: np.uint64, lookup: Lookup, walked: bool, notes: Notes
) -> int:
    if delay == ODD_ONE:
        return _settle_odd(place, entry >> _WEIGHT_SHIFT, lookup, walked, notes)
    return _note_delay(place, np.int64(delay), notes)


@njit(nogil=True, cache=True)
def _settle_odd(place: np.uint64, weight: np.uint64, lookup: Lookup, walked: bool, notes: Notes) -> int:
    """Process a residue class by computing the trajectory of its smallest number in two 64-bit words."""
    n = _number(place, notes)
    delay, high, low = descend(n[0], n[1], lookup)
    if delay < 0:
        return _note_wide(place, weight, notes)
    failure, limit = 0, reach(notes, walked)
    if exceeds(high, low, limit[0], limit[1]):
        walked_delay, high, low = walk(n[0], n[1])
        if walked_delay < 0:
            return _note_wide(place, weight, notes)
        failure = _note_path(place, high, low, notes)
    return max(failure, _count(place, delay, weight, notes))
