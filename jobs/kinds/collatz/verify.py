"""Verifies a range: divides the range into pieces, checks the candidates of each piece, and adds up the results."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from jobs.kinds.collatz import partials, quads, vectors
from jobs.kinds.collatz import verify_sweep as sweep
from jobs.kinds.collatz import verify_sweep_portable as sweep_portable
from jobs.kinds.collatz.tables import lookup
from jobs.kinds.collatz.verify_sieve import BLOCK_BITS, CELLS, RESIDUE_BITS, THREES, sieve
from jobs.kinds.collatz.wide import LIMB
from jobs.kinds.contract import Tick
from jobs.models import Partial, Spec

#: Number of the first block whose numbers are stored in two words; smaller numbers rarely exceed one word.
NARROW_BLOCKS = 2**10
#: Number of passes of 16 steps after which a number is reported as unresolved.
GIVE_UP = 100_000
#: Interval in seconds between calls of `tick`.
TICK_SECONDS = 0.08

_CELL = 2**RESIDUE_BITS
_WORD = 2**64


class Piece(NamedTuple):
    """Candidates that are checked together: cells s..t-1 of block h, and residues with the indexes first..end-1."""

    h: int
    s: int
    t: int
    first: int
    end: int
    #: Value below which the verification of a number stops.
    floor: int

    def halves(self) -> tuple[Piece, Piece]:
        """Divide the piece into two pieces. A piece with a single number cannot be divided."""
        if self.t - self.s > 1:
            middle = (self.s + self.t) // 2
            return self._replace(t=middle), self._replace(s=middle)
        middle = (self.first + self.end) // 2
        return self._replace(end=middle), self._replace(first=middle)

    def single(self) -> bool:
        return self.t - self.s == 1 and self.end - self.first <= 1

    def number(self) -> int:
        return (self.h << BLOCK_BITS) + (self.s << RESIDUE_BITS) + int(sieve().residues[self.first])

    def task(self) -> sweep.Task:
        cells = (1 << self.t) - (1 << self.s)
        return sweep.Task(
            h=np.uint64(self.h),
            floor_high=np.uint64(self.floor // _WORD),
            floor_low=np.uint64(self.floor % _WORD),
            first=self.first,
            end=self.end,
            cells=np.frombuffer(cells.to_bytes(CELLS // 8, "little"), np.uint64),
            rho=np.uint64(self.h * 2**BLOCK_BITS % THREES),
        )


def floor_of(n: int) -> int:
    """Return the value below which the verification of n stops (the floor of n).

    The floor is the start of the block of n, or in block 0 the greatest power of two up to n.
    """
    return n >> BLOCK_BITS << BLOCK_BITS or 1 << (n.bit_length() - 1)


def ranges(start: int, end: int, most: int) -> Iterator[tuple[int, int]]:
    """Divide a range into parts of one cell (2^24 numbers), and parts of whole cells with the same floor."""
    while start < end:
        floor = floor_of(start)
        stop = min(end, floor + min(max(floor, 1), 2**BLOCK_BITS), start + most)
        cell = start // _CELL * _CELL
        whole = stop // _CELL * _CELL
        stop = min(stop, cell + _CELL) if cell < start or whole <= start else whole
        yield start, stop
        start = stop


def piece(low: int, high: int) -> Piece:
    """Return the piece with the candidates of low..high-1, which is a part from `ranges`."""
    h, rest = divmod(low, 2**BLOCK_BITS)
    s, r = divmod(rest, _CELL)
    first, end, cells = 0, len(sieve().residues), (high - low) // _CELL
    if not cells:
        first, end = np.searchsorted(sieve().residues, [r, r + high - low]).tolist()
    return Piece(h, s, s + max(1, cells), first, end, floor_of(low))


class SweepTotals:
    """Adds up the results of the candidates of a lease."""

    def __init__(self) -> None:
        self.candidates = self.blocks = self.checksum = self.bits = 0
        self.unresolved: list[int] = []

    def add(self, counts: list[int]) -> None:
        def lanes(at: int) -> list[int]:
            return counts[at : at + vectors.WIDTH]

        self.checksum += sum(lanes(sweep.SUM_LOW)) + (sum(lanes(sweep.SUM_HIGH)) << LIMB)
        self.checksum += counts[sweep.SUM] + (counts[sweep.SUM + 1] << 64)
        high = [word << LIMB for word in lanes(sweep.BITS_HIGH)]
        single = [counts[sweep.BITS + limb] << (64 * limb) for limb in range(3)]
        self.bits = max(self.bits, *(word.bit_length() for word in chain(lanes(sweep.BITS_LOW), high, single)))
        self.candidates += counts[sweep.CANDIDATES]
        self.blocks += counts[sweep.BLOCKS]

    def take(self, task: Piece) -> None:
        """Verify a piece. If that fails, divide the piece in two, down to single numbers, which have no limit."""
        counts = np.zeros(sweep.WORDS, np.uint64)
        if _sweep(task, counts):
            self.add(counts.tolist())
        elif task.single():
            self.candidates += 1
            self._alone(task)
        else:
            for half in task.halves():
                self.take(half)

    def _alone(self, task: Piece) -> None:
        """Verify one candidate as a Python integer."""
        n = task.number()
        x = steps(n, 24)
        for count in range(1, GIVE_UP + 1):
            x = steps(x, 16)
            self.bits = max(self.bits, x.bit_length())
            if x < task.floor:
                self.checksum += x
                self.blocks += count
                return
        self.blocks += GIVE_UP
        self.unresolved.append(n)

    def partial(self, count: int) -> Partial:
        return {
            "count": count,
            "candidates": self.candidates,
            "blocks": self.blocks,
            "checksum": self.checksum,
            "bits": self.bits,
            "unresolved": partials.smallest_numbers(self.unresolved),
        }


def steps(x: int, count: int) -> int:
    """Return the value after `count` shortcut steps from x."""
    for _ in range(count):
        x = (3 * x + 1) // 2 if x % 2 else x // 2
    return x


@lru_cache
def room_tables() -> tuple[sweep.Room, sweep.Room]:
    """Return working memory for numbers of one word, and working memory for numbers of two words."""
    table = lookup()

    def room() -> sweep.Room:
        size = sweep.POOL + sweep.ROOM
        places = np.concatenate([np.arange(256, dtype=np.uint8), np.zeros(320, np.uint8)])
        low, high = np.zeros(size, np.uint64), np.zeros(size, np.uint64)
        return sweep.Room(
            low=low,
            high=high,
            places=places,
            steps=table.steps,
            powers=table.powers,
            four=table.four,
            eight=table.eight,
            orders=quads.orders(),
        )

    return room(), room()


def all_sweeps() -> list[Any]:
    """Return the modules that can verify numbers on this CPU, the fastest last."""
    from jobs.kinds.collatz import verify_sweep_quad as sweep_quad
    from jobs.kinds.collatz import verify_sweep_vector as sweep_vector

    return [sweep_portable, *[sweep_quad] * quads.available(), *[sweep_vector] * vectors.available()]


@lru_cache
def sweeps() -> Any:
    """Return the fastest module that can verify numbers on this CPU."""
    return all_sweeps()[-1]


def _sweep(task: Piece, counts: np.ndarray) -> bool:
    narrow, wide = room_tables()
    if task.h < NARROW_BLOCKS:
        return bool(sweeps().narrow(task.task(), sieve(), narrow, counts))
    module = sweeps() if task.h < sweeps().END >> BLOCK_BITS else sweep_portable
    return bool(module.wide(task.task(), sieve(), wide, counts))


def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
    """Verify units lo..hi-1 and return (upto, partial result of units lo..upto-1).

    Stops between two pieces if `tick` returns False.
    """
    start, seen, ticked = int(spec["start"]), SweepTotals(), monotonic()
    most = spec["batch_size"] or 2**BLOCK_BITS
    for low, high in ranges(start + lo, start + hi, most):
        seen.take(piece(low, high))
        if monotonic() - ticked >= TICK_SECONDS and high < start + hi:
            ticked = monotonic()
            if not tick(high - start):
                return high - start, seen.partial(high - start - lo)
    return hi, seen.partial(hi - lo) if lo < hi else {}


def warm() -> None:
    """Compile the functions for small and for large numbers, and build the tables."""
    for h in {1, NARROW_BLOCKS, min(sweeps().END, 2**95) >> BLOCK_BITS}:
        SweepTotals().take(piece(h << BLOCK_BITS, (h << BLOCK_BITS) + 1000))
