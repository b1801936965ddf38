"""Verifies ranges on a GPU. Each launch processes many blocks of 2^32 numbers."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import numpy as np

from jobs.kinds import gpu
from jobs.kinds.collatz import verify
from jobs.kinds.collatz.gpu_tables import sieve_on
from jobs.kinds.collatz.verify import Piece, SweepTotals
from jobs.kinds.collatz.verify_sieve import BLOCK_BITS, C_SHIFT, CELLS, RHO_SHIFT, THREES, sieve
from jobs.kinds.collatz.verify_sweep import PASSES
from jobs.kinds.collatz.wide import LIMB
from jobs.kinds.contract import Tick
from jobs.models import Partial, Spec

#: Indexes of the sums of a launch: a checksum in four chunks, a bitwise OR of all values in three words, two counts.
SUM, BITS, CANDIDATES, BLOCKS, WORDS = 0, 4, 7, 8, 9
#: Number of threads per block of a launch, and number of blocks per multiprocessor.
THREADS, BLOCKS_A_PROCESSOR = 256, 3
SOURCE = gpu.Source(
    Path(__file__).with_name("verify_gpu.cu"),
    (
        ("SUM", SUM),
        ("BITS", BITS),
        ("CANDIDATES", CANDIDATES),
        ("BLOCKS", BLOCKS),
        ("WORDS", WORDS),
        ("C_SHIFT", C_SHIFT),
        ("RHO_SHIFT", RHO_SHIFT),
        ("THREES", THREES),
        ("BLOCK_RHO", 2**BLOCK_BITS % THREES),
        ("CELLS", CELLS),
        ("THREADS", THREADS),
        ("BLOCKS_A_PROCESSOR", BLOCKS_A_PROCESSOR),
        ("PASSES", PASSES),
        ("ROOMY_BITS", LIMB),
    ),
)
#: Maximum number of candidates that a launch can leave to the CPU.
ROOM = 2**16

_BLOCK = 2**BLOCK_BITS
batch = gpu.Batch(first=1, most=2**16)


class GpuTotals(SweepTotals):
    """Adds up the results of the GPU launches of a lease."""

    def take_blocks(self, task: Piece, count: int) -> int:
        """Verify the same part of `count` consecutive blocks on the GPU, and return `count`."""
        device, (tally, left) = gpu.current_device(), _launch(task, count)
        waiting = int(device.get(left[:1])[0])
        if waiting > ROOM:
            self._halve(task, count)
            return count
        parts = device.get(tally).tolist()
        self.checksum += sum(chunk << 32 * place for place, chunk in enumerate(parts[SUM:BITS]))
        every = sum(word << 64 * limb for limb, word in enumerate(parts[BITS:CANDIDATES]))
        self.bits = max(self.bits, every.bit_length())
        self.candidates += parts[CANDIDATES]
        self.blocks += parts[BLOCKS]
        for entry in device.get(left[1 : 1 + waiting]).tolist():
            self._alone(_single_piece(task, entry))
        return count

    def _halve(self, task: Piece, count: int) -> None:
        if count > 1:
            half, rest = count // 2, task.h + count // 2
            self.take_blocks(task, half)
            self.take_blocks(task._replace(h=rest, floor=rest << BLOCK_BITS), count - half)
        else:
            for part in task.halves():
                self.take_blocks(part, 1)


def _single_piece(task: Piece, entry: int) -> Piece:
    """Return a candidate that a launch left to the CPU, as a piece (part of a block) with a single number."""
    item, cell = divmod(entry, CELLS)
    block, at = divmod(item, task.end - task.first)
    h, first = task.h + block, task.first + at
    return Piece(h, cell, cell + 1, first, first + 1, (h << BLOCK_BITS) or task.floor)


def _launch(task: Piece, count: int) -> tuple[gpu.Array, gpu.Array]:
    """Start a GPU launch. Return its sums, and the number and list of candidates that it left to the CPU."""
    device, tables = gpu.current_device(), sieve_on(gpu.current_device())
    tally, left = device.zeros(WORDS, np.uint64), device.zeros(1 + ROOM, np.uint64)
    cells = device.put(task.task().cells)
    own = 0 if task.h else task.floor
    name = "verify_narrow" if task.h + count <= verify.NARROW_BLOCKS else "verify_wide"
    launch = gpu.kernels(SOURCE)
    launch(
        name,
        BLOCKS_A_PROCESSOR * device.processors,
        THREADS,
        task.h,
        count,
        task.first,
        task.end,
        task.h * _BLOCK % THREES,
        own,
        cells,
        tables.packed,
        tables.masks,
        tables.threes,
        tables.powers,
        tally,
        left,
        ROOM,
    )
    return tally, left


def _step(seen: GpuTotals, start: int, end: int, most: int) -> int:
    """Verify several whole blocks, or a part of a block. Return the first number that is not verified yet."""
    whole = min(end - start, most) // _BLOCK
    if not start or start % _BLOCK or not whole:
        low, high = next(verify.ranges(start, end, most))
        seen.take_blocks(verify.piece(low, high), 1)
        return high
    task = Piece(start >> BLOCK_BITS, 0, CELLS, 0, len(sieve().residues), start)
    return start + batch.take(whole, lambda count: seen.take_blocks(task, count)) * _BLOCK


def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
    """Verify units lo..hi-1 and return (upto, partial result of units lo..upto-1).

    Stops between two launches if `tick` returns False.
    """
    start, seen, ticked = int(spec["start"]), GpuTotals(), monotonic()
    at, end, most = start + lo, start + hi, spec["batch_size"] or 2**63
    while at < end:
        at = _step(seen, at, end, most)
        if monotonic() - ticked >= verify.TICK_SECONDS and at < end:
            ticked = monotonic()
            if not tick(at - start):
                break
    return at - start, seen.partial(at - start - lo) if lo < hi else {}


def warm() -> None:
    """Compile the kernels and copy the tables to the GPU."""
    for h in (1, verify.NARROW_BLOCKS):
        GpuTotals().take_blocks(verify.piece(h << BLOCK_BITS, (h << BLOCK_BITS) + 1000), 1)
