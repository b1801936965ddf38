"""Computes statistics on a GPU. Each launch processes many blocks of 2^22 numbers.

The CPU processes the remaining numbers. A launch counts delays and lists the classes that can contain a record: classes
whose delay exceeds the maximum so far, and classes whose values can lead above the maximum peak. Their smallest numbers
are then walked one by one.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from jobs.kinds import gpu
from jobs.kinds.collatz import statistics, tables
from jobs.kinds.collatz import statistics_blocks as blocks
from jobs.kinds.collatz.gpu_tables import descent_on
from jobs.kinds.collatz.statistics import LEAST_BLOCK, TICK_SECONDS, Counts
from jobs.kinds.collatz.wide import LIMB
from jobs.kinds.contract import Tick
from jobs.models import Partial, Spec

#: Bit that marks a listed residue class whose numbers are not counted in the histogram yet.
UNCOUNTED_BIT = 31
SOURCE = gpu.Source(
    Path(__file__).with_name("statistics_gpu.cu"),
    (
        ("LOW_BITS", tables.LOW_BITS),
        ("D_SHIFT", tables.D_SHIFT),
        ("WEIGHT_SHIFT", tables.WEIGHT_SHIFT),
        ("DELAYS", blocks.DELAYS),
        ("UNCOUNTED_BIT", UNCOUNTED_BIT),
        ("ROOMY_BITS", LIMB),
    ),
)
#: Sizes of blocks processed on the GPU, as powers of two.
LEVELS = (22,)
#: Maximum number of residue classes that a launch can list; a single block has fewer classes.
ROOM = 2**20
#: Maximum growth in 8 steps as a power of two: after x, values stay below 2 * 1.5^8 * (x + 1) < 2^6 (x + 1).
GROWTH_BITS = 6
#: Number of integers per launch that computes trajectories step by step.
WALKED = 2**15
#: Maximum ratio of a launch's numbers to all earlier numbers, so that few classes can contain a record.
GROWTH = 16
#: Maximum number of integers that one launch processes.
MOST_NUMBERS = 2**32
THREADS, BLOCKS_A_PROCESSOR = 512, 4

_UNCOUNTED, _NO_DELAY, _WORD = 1 << UNCOUNTED_BIT, 2**64 - 1, 2**64
batch = gpu.Batch(first=4, most=(MOST_NUMBERS >> max(LEVELS)) - 1)


def new_maxima(high: np.ndarray, low: np.ndarray) -> list[int]:
    """Return the indexes at which the pair (high, low) exceeds all earlier pairs."""
    order = np.lexsort((low, high))
    sorted_high, sorted_low = high[order], low[order]
    rank = np.empty(len(order), np.int64)
    changes = (sorted_high[1:] != sorted_high[:-1]) | (sorted_low[1:] != sorted_low[:-1])
    rank[order] = np.concatenate([np.ones(1, np.int64), 1 + np.cumsum(changes)])
    before = np.concatenate([np.zeros(1, np.int64), np.maximum.accumulate(rank)[:-1]])
    return np.flatnonzero(rank > before).tolist()


class GpuCounts(Counts):
    """Collects the histogram and the records of a lease whose blocks are processed on a GPU.

    Numbers must be added in ascending order.
    """

    def take_blocks(self, start: int, bits: int, count: int) -> int:
        """Process up to `count` blocks of 2^bits numbers from `start` on, and return the number of processed blocks."""
        walked = self._climb(start, start + (1 << bits), (start >> bits) + count, bits)
        while not self._launch(start, bits, 1 if walked else count, walked):
            count //= 2
        return 1 if walked else count

    def _climb(self, start: int, end: int, last: int, bits: int) -> bool:
        """Compute numbers one by one until the peaks of the blocks before `last` can be found faster.

        Return True if all numbers up to `end` were computed.
        """
        bound = max(tables.LOW_PEAK, 2 * 3**bits * last)
        while self._greatest()[1] < bound:
            if start >= end:
                return True
            chunk = range(start, min(end, start + WALKED))
            self._note(np.arange(len(chunk), dtype=np.uint64) + np.uint64(start - self.origin), [0] * len(chunk))
            start = chunk.stop
        return False

    def _greatest(self) -> tuple[int, int]:
        """Return the maximum delay and the maximum peak so far; -1 if there are none."""
        delays, paths = self.notes.sizes[:2].tolist()
        delay = int(self.notes.by_delay[delays - 1, 1]) if delays else -1
        if not paths:
            return delay, -1
        high, low = self.notes.by_path[paths - 1, 1:].tolist()
        return delay, (high << 64) + low

    def _launch(self, start: int, bits: int, count: int, walked: bool) -> bool:
        """Process blocks in one GPU launch. Return False if too many classes were listed; retry with fewer blocks."""
        device, classes = gpu.current_device(), tables.groups(bits)
        room = min(ROOM, count * len(classes.packed))
        descent = descent_on(device, bits)
        if not self.notes.sizes[0]:
            self._note(np.array([start - self.origin], np.uint64), [0])
        record, peak = self._greatest()
        reach = _WORD**2 - 1 if walked else (peak >> GROWTH_BITS) - 1
        histogram, listed = device.zeros(blocks.DELAYS, np.uint64), device.zeros(1 + room, np.uint64)
        gpu.kernels(SOURCE)(
            "statistics_tails",
            BLOCKS_A_PROCESSOR * device.processors,
            THREADS,
            *divmod(start >> bits, _WORD),
            count,
            bits,
            len(classes.packed),
            descent.packed,
            descent.powers,
            descent.delays,
            record,
            *divmod(reach, _WORD),
            histogram,
            listed,
            room,
        )
        length = int(device.get(listed[:1])[0])
        if length > room:
            return False
        self.notes.histogram[:] += device.get(histogram)
        self._take_listed(device.get(listed[1 : 1 + length]), start, bits, classes)
        return True

    def _take_listed(self, rows: np.ndarray, start: int, bits: int, classes: tables.Groups) -> None:
        """Process the residue classes that a launch has listed in no particular order."""
        number = (rows & np.uint64(_UNCOUNTED - 1)).astype(np.int64)
        places = np.uint64(start - self.origin) + (rows >> np.uint64(32) << np.uint64(bits)) + classes.first[number]
        counted = rows & np.uint64(_UNCOUNTED) == 0
        weights = np.where(counted, 0, classes.packed[number] >> np.uint64(tables.WEIGHT_SHIFT))
        ascending = np.argsort(places)
        self._note(places[ascending], weights[ascending].tolist())

    def _note(self, places: np.ndarray, weights: list[int]) -> None:
        """Compute numbers at ascending places, append new records, and count numbers that are not yet counted."""
        if not len(places):
            return
        delays, high, low = self.walk_places(places)
        for at in np.flatnonzero(np.array(weights)).tolist():
            if delays[at] < blocks.DELAYS:
                self.notes.histogram[delays[at]] += np.uint64(weights[at])
            elif delays[at] != _NO_DELAY:
                self.check(blocks.TOO_LONG, self.origin + int(places[at]), self.origin + int(places[at]) + 1)
        for at in np.flatnonzero(delays == np.uint64(_NO_DELAY)).tolist():
            self._note_wide(int(places[at]), weights[at])
            delays[at] = high[at] = low[at] = 0
        for at in new_maxima(np.zeros_like(delays), delays):
            if int(delays[at]) > self._greatest()[0]:
                self._append(self.notes.by_delay, 0, (places[at], delays[at]))
        for at in new_maxima(high, low):
            if (int(high[at]) << 64) + int(low[at]) > self._greatest()[1]:
                self._append(self.notes.by_path, 1, (places[at], high[at], low[at]))

    def _append(self, rows: Any, which: int, row: tuple[Any, ...]) -> None:
        size = self.notes.sizes[which]
        if size == blocks.DELAYS:
            self.check(blocks.TOO_MANY_RECORDS, self.origin, self.origin + int(row[0]) + 1)
        rows[size] = row
        self.notes.sizes[which] = size + 1

    def _note_wide(self, place: int, weight: int) -> None:
        """Process a number whose trajectory exceeds two 64-bit words as a Python integer."""
        n = self.origin + place
        delay, peak = statistics.walk(n)
        self.wide_peaks.append([n, peak])
        self.wide_delays.append([n, delay])
        if weight:
            self.wide_histogram[delay] += weight

    def walk_places(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Compute trajectories on the GPU, and return the delays and the high and low words of the peaks."""
        device, (high, low) = gpu.current_device(), divmod(self.origin, _WORD)
        lows = places + np.uint64(low)
        numbers = np.stack((np.uint64(high) + (lows < places), lows), axis=1).ravel()
        walks = device.zeros(3 * len(places), np.uint64)
        gpu.kernels(SOURCE)("statistics_walk", -(-len(places) // 128), 128, device.put(numbers), len(places), walks)
        delays, peaks_high, peaks_low = device.get(walks).reshape(-1, 3).T
        return delays.copy(), peaks_high.copy(), peaks_low.copy()


def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
    """Compute statistics of units lo..hi-1 and return (upto, partial result of units lo..upto-1).

    Stops between two launches if `tick` returns False.
    """
    start, ticked = int(spec["start"]), monotonic()
    counts, at, end = GpuCounts(start + lo), start + lo, start + hi
    most = spec["batch_size"] or hi - lo
    while at < end:
        at = _step(counts, at, end, most)
        if monotonic() - ticked >= TICK_SECONDS and at < end:
            ticked = monotonic()
            if not tick(at - start):
                break
    counts.close(None)
    return at - start, counts.partial() if lo < hi else {}


def _step(counts: GpuCounts, at: int, end: int, most: int) -> int:
    """Process the next blocks or single numbers, and return the first number that is not processed yet."""
    for bits in LEVELS:
        whole = min(end - at, most) >> bits
        if at % (1 << bits) == 0 and at >= LEAST_BLOCK << bits and whole:
            most_now = min(whole, max(1, GROWTH * (at - counts.origin) >> bits))
            return at + (batch.take(most_now, partial(counts.take_blocks, at, bits)) << bits)
    low, high, bits = next(statistics.pieces(at, end, most))
    counts.take(low, high, bits)
    return high


def warm() -> None:
    """Compile all functions and copy the tables to the GPU."""
    statistics.warm()
    for bits in LEVELS:
        GpuCounts(LEAST_BLOCK << bits).take_blocks(LEAST_BLOCK << bits, bits, 1)
