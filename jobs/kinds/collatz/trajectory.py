"""Computes the trajectory of one number with Python integers.

Only the parities and the curve are kept in memory.
"""

from __future__ import annotations

from time import monotonic

from jobs.kinds.collatz.trajectory_curve import leading, log2
from jobs.kinds.contract import Tick
from jobs.models import Partial, Spec
from threads_protocol import numbers  # noqa: F401 - lifts Python's limit of 4,300 digits

#: Number of shortcut steps between two checks of the clock.
CHUNK = 2048
TICK_SECONDS = 0.1


class Curve:
    """Points of a trajectory's plot: the minimum and the maximum of a bounded number of buckets of steps.

    Values are compared by their leading bits. Up to max_points values, each value is a bucket. After that, buckets
    double in width whenever there are more than max_points/2. The width is a power of two and depends only on the
    number of values. Among equal values, the first counts.
    """

    def __init__(self, max_points: int) -> None:
        self.max_points = max_points
        self.width = 1
        self.count = 0
        #: Minimum and maximum value of each bucket as (leading bits, step).
        self.least: list[tuple[int, int]] = []
        self.greatest: list[tuple[int, int]] = []

    def add(self, value: int) -> None:
        lead, step = leading(value), self.count
        self.count += 1
        if step % self.width == 0:
            self.least.append((lead, step))
            self.greatest.append((lead, step))
            limit = self.max_points if self.width == 1 else self.max_points // 2
            if len(self.least) > limit:
                self._halve()
        elif lead < self.least[-1][0]:
            self.least[-1] = lead, step
        elif lead > self.greatest[-1][0]:
            self.greatest[-1] = lead, step

    def _halve(self) -> None:
        while len(self.least) > self.max_points // 2:
            self.width *= 2
            self.least = [min(self.least[at : at + 2]) for at in range(0, len(self.least), 2)]
            pairs = (self.greatest[at : at + 2] for at in range(0, len(self.greatest), 2))
            self.greatest = [max(pair, key=lambda point: point[0]) for pair in pairs]

    def points(self) -> list[list[int]]:
        """Return the points as [step, log2 in units of 2^-16], in ascending order."""
        steps = {step: lead for lead, step in self.least + self.greatest}
        return [[step, log2(steps[step])] for step in sorted(steps)]


class Walk:
    """State of the computation of a trajectory."""

    def __init__(self, n: int, max_points: int) -> None:
        self.value = self.peak = n
        self.peak_step = 0
        self.odd_steps = 0
        self.parities = bytearray()
        self.curve = Curve(max_points)
        self.curve.add(n)

    def advance(self, steps: int) -> None:
        """Perform up to `steps` shortcut steps, n/2 or (3n+1)/2; stop at 1."""
        value, add, parities = self.value, self.curve.add, self.parities
        for _ in range(steps):
            if value == 1:
                break
            odd = value & 1
            parities.append(odd)
            if odd:
                value += (value << 1) + 1
                self.odd_steps += 1
                if value > self.peak:
                    self.peak, self.peak_step = value, self.curve.count
                add(value)
            value >>= 1
            add(value)
        self.value = value

    def partial(self) -> Partial:
        return {
            "ended": "one" if self.value == 1 else "step limit",
            "delay": self.curve.count - 1,
            "odd_steps": self.odd_steps,
            "peak": str(self.peak),
            "peak_step": self.peak_step,
            "shortcut_steps": len(self.parities),
            "parity": pack_bits(self.parities).hex(),
            "curve": self.curve.points(),
        }


def pack_bits(bits: bytearray) -> bytes:
    """Pack bits into bytes, the first bit into the lowest bit of the first byte."""
    padded = bits + bytes(-len(bits) % 8)
    return bytes(sum(padded[at + place] << place for place in range(8)) for at in range(0, len(padded), 8))


def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
    """Compute the trajectory, and return (hi, partial result), or (lo, {}) if `tick` returned False before the end."""
    walk, left = Walk(int(spec["n"]), spec["max_points"]), int(spec["step_limit"])
    ticked = monotonic()
    while lo < hi and walk.value != 1 and left:
        walk.advance(min(CHUNK, left))
        left -= min(CHUNK, left)
        if monotonic() - ticked >= TICK_SECONDS:
            ticked = monotonic()
            if not tick(lo):
                return lo, {}
    return (hi, walk.partial()) if lo < hi else (lo, {})
