"""Statistics of whole blocks of 2^k numbers, one tail per residue class, and of single numbers.

The README of this folder proves that this is exact. In short: block h covers n = 2^k h + r for all r < 2^k. After k
shortcut steps n has become 3^c h + d, the same number for all r of a class, so delays need one tail a class. Classes
come in the order of their least residue, so what exceeds all before it is a record at that residue.
"""

# mypy: ignore-errors
# numba types these functions, by rules that mypy does not know: int and int64 are one type

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from jobs.kinds.collatz import quads
from jobs.kinds.collatz.tables import LOG_BITS, WEIGHT_SHIFT, Lookup
from jobs.kinds.collatz.wide import descend, exceeds, walk

#: What a call answers when something does not fit; 0 is well.
TOO_LONG, TOO_MANY_RECORDS, TOO_MANY_WIDE = 1, 2, 3
#: Length of the histogram and of the lists. No delay or list below 2^96 is known to come near.
DELAYS = 8192
#: Shortcut steps after which a class is walked apart. Fewer than 0.64 of that many are odd.
LONG = 4000
#: Classes whose state is in the first-level cache at a time.
TILE = 2048
#: Powers of three of which products are kept: of 24 steps at most. Values of the byte that has their exponent.
POWERS, BYTES = 32, 256
#: Where the number of residues lies in a lane's tag; below it is an index.
TAG_WEIGHT = 16
#: From a boundary value x no value of the next 16 steps exceeds 2 * 1.5^16 * (x + 1) < 2^11 (x + 1).
GROWTH_BITS = 11
#: Of a tile: whether its delays are kept. It is done again, with them, when it may hold a delay record.
AGAIN = (False, True)
#: Where a list of lanes that ended begins. A constant of this type; numba would compile `end_lanes` anew for a plain 0.
FIRST = np.int64(0)
#: Delay of a class of a tile whose tail must be walked: it grew too large, or may hold a path record.
ODD_ONE = np.uint16(2**16 - 1)

_ZERO, _ONE, _ALL = np.uint64(0), np.uint64(1), np.uint64(2**64 - 1)
_WEIGHT_SHIFT = np.uint64(WEIGHT_SHIFT)
_GROWTH, _GROWTH_UP = np.uint64(GROWTH_BITS), np.uint64(64 - GROWTH_BITS)
_INDEX, _TAG_WEIGHT = np.uint64(2**TAG_WEIGHT - 1), np.uint64(TAG_WEIGHT)
_LOG_BITS, _LOG_UNIT = np.int64(LOG_BITS), float(2**LOG_BITS)
_LOG_3_OF_2 = float(np.log(2.0) / np.log(3.0))


# Functions take the arrays out of these tuples before a loop: inside one, numba would count references each time.


class Notes(NamedTuple):
    """Sums and records of a lease whose numbers are taken in ascending order. A place is n less the lease's origin."""

    #: Numbers by delay.
    histogram: Any
    #: Rows (place, delay) and (place, high limb of the peak, low limb) of the records so far.
    by_delay: Any
    by_path: Any
    #: Rows (place, how many numbers have its delay) of what does not fit two limbs.
    wide: Any
    #: Lengths of the three.
    sizes: Any
    #: High and low limb of the lease's origin.
    origin: Any


class Tile(NamedTuple):
    """The classes of a tile on their way down."""

    #: Limbs and tags of the lanes that go on. A tag is the class's index in the tile + (number of residues << 16).
    low: Any
    high: Any
    live: Any
    #: Values and tags of the lanes that have just ended.
    end: Any
    ended: Any
    #: Delays by index, of the odd ones at least; 0 elsewhere.
    delays: Any
    #: 3^c h of the block, for vectors of four: low limbs by the lowest byte of a packed class, then high ones.
    products: Any
    #: Moves of their lanes.
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
    """Room for the vectors that reach beyond a tile's end as well."""
    lanes = [np.zeros(TILE + 8, np.uint64) for _ in range(5)]
    return Tile(
        *lanes, delays=np.zeros(TILE, np.uint16), products=np.zeros(2 * BYTES, np.uint64), orders=quads.orders()
    )


@njit(nogil=True, cache=True)
def _number(place: np.uint64, notes: Notes) -> tuple[np.uint64, np.uint64]:
    """(high, low) of a number."""
    low = notes.origin[1] + place
    return notes.origin[0] + np.uint64(low < place), low


@njit(nogil=True, cache=True)
def _note_delay(place: np.uint64, delay: int, notes: Notes) -> int:
    """Appends a delay record if this is one; numbers come ascending."""
    size = notes.sizes[0]
    if size == 0 or delay > notes.by_delay[size - 1, 1]:
        if size == DELAYS:
            return TOO_MANY_RECORDS
        notes.by_delay[size, 0], notes.by_delay[size, 1] = place, delay
        notes.sizes[0] = size + 1
    return 0


@njit(nogil=True, cache=True)
def _note_path(place: np.uint64, high: np.uint64, low: np.uint64, notes: Notes) -> int:
    """Appends a path record if this is one; numbers come ascending, except those that cannot be records."""
    size, rows = notes.sizes[1], notes.by_path
    if size == 0 or exceeds(high, low, rows[size - 1, 1], rows[size - 1, 2]):
        if size == DELAYS:
            return TOO_MANY_RECORDS
        rows[size, 0], rows[size, 1], rows[size, 2] = place, high, low
        notes.sizes[1] = size + 1
    return 0


@njit(nogil=True, cache=True)
def _note_wide(place: np.uint64, weight: np.uint64, notes: Notes) -> int:
    """Leaves a number to integers of any size."""
    size = notes.sizes[2]
    if size == DELAYS:
        return TOO_MANY_WIDE
    notes.wide[size, 0], notes.wide[size, 1] = place, weight
    notes.sizes[2] = size + 1
    return 0


@njit(nogil=True, cache=True)
def _count(place: np.uint64, delay: int, weight: np.uint64, notes: Notes) -> int:
    """Counts numbers by their delay, and notes the first."""
    if delay >= DELAYS:
        return TOO_LONG
    notes.histogram[delay] += weight
    return _note_delay(place, delay, notes)


@njit(nogil=True, cache=True)
def singles(start: np.uint64, end: np.uint64, notes: Notes) -> int:
    """Numbers at places start..end-1 one after the other, every step of each."""
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
    """Notes path records from start on until one reaches (high, low): (failure, first place not looked at)."""
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
    """(high, low): from no boundary value up to it can the next 16 steps exceed the greatest peak so far."""
    if walked:
        return _ALL, _ALL
    last = notes.sizes[1] - 1
    high, low = notes.by_path[last, 1], notes.by_path[last, 2]
    low = (low >> _GROWTH) | (high << _GROWTH_UP)
    high >>= _GROWTH
    return high - np.uint64(low == _ZERO), low - _ONE


@njit(nogil=True, cache=True)
def odd_steps_offset(steps: int, log_of_start: float) -> np.int64:
    """Return o such that a class that stands at x after `steps` steps has made floor(log3(x) + o) odd ones.

    Both the logarithm and o are in units of 2^-LOG_BITS. `log_of_start` is log3 of the block's first number. The README
    ("Odd steps without counting them") proves that rounding down is exact.
    """
    return np.int64(np.floor((steps * _LOG_3_OF_2 - log_of_start + 0.3) * _LOG_UNIT))


@njit(nogil=True, cache=True)
def end_lanes(
    begin: int, stop: int, steps: int, offset: np.int64, ends, histogram, placed: bool, tile: Tile
) -> tuple[np.int64, bool]:
    """Return (greatest delay, any odd ones) of the lanes begin..stop-1 that have just ended after `steps` steps.

    They are counted or, if `placed`, their delays are kept; odd ones are only marked.
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
    """Makes odd ones of the lanes that are left and of those that have ended, whose tags are indices."""
    delays, live, ended = tile.delays, tile.live, tile.ended
    for j in range(alive):
        delays[live[j]] = ODD_ONE
    for j in range(over):
        delays[ended[j]] = ODD_ONE


@njit(nogil=True, cache=True)
def give_up(alive: int, tile: Tile) -> bool:
    """Make odd ones of the lanes that are left; tell whether there are any."""
    delays, live = tile.delays, tile.live
    for j in range(alive):
        delays[live[j] & _INDEX] = ODD_ONE
    return alive > 0


@njit(nogil=True, cache=True)
def settle(start: np.uint64, packed, first, lookup: Lookup, walked: bool, tile: Tile, notes: Notes) -> int:
    """Walks the odd ones of a tile and notes the delay records, in the order of the least residues."""
    delays, record = tile.delays, record_of(notes)
    for i in range(len(packed)):
        # asked here as well, since a call that takes tuples of arrays costs more than all else
        if np.int64(delays[i]) > record:
            failure = _settle_one(start + np.uint64(first[i]), delays[i], packed[i], lookup, walked, notes)
            record = record_of(notes)
            if failure:
                return failure
    delays[: len(packed)] = 0
    return 0


@njit(nogil=True, cache=True)
def record_of(notes: Notes) -> np.int64:
    """The greatest delay so far."""
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
    """A class by its first number, in two limbs."""
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
