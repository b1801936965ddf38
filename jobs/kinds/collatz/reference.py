"""Reference implementation of the Collatz map in Python integers, with which the kernels are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import reduce

from jobs.kinds.collatz import frontier_plan, frontier_rules
from jobs.kinds.collatz.statistics_columns import layout
from jobs.kinds.collatz.trajectory_curve import leading, log2
from jobs.models import Partial, Spec


def values(n: int) -> Iterator[int]:
    """Yield n and all following values, up to and including the first 1."""
    while n != 1:
        yield n
        n = 3 * n + 1 if n % 2 else n // 2
    yield 1


def run(spec: Spec, lo: int, hi: int) -> Partial:
    """Return the partial result of units lo..hi-1."""
    if spec["mode"] == "trajectory":
        return trajectory(spec)
    if spec["mode"] == "frontier":
        return frontier(spec["bits"], lo, hi)
    start, count = int(spec["start"]) + lo, hi - lo
    if spec["mode"] == "records":
        return records(spec, start, count)
    if spec["mode"] == "verify":
        return verified(start, count)
    return statistics(start, count) | (drawn(spec, start, count) if spec.get("columns") else {})


def statistics(start: int, count: int) -> Partial:
    histogram: Counter[int] = Counter()
    delays: list[list[int]] = []
    paths: list[list[int]] = []
    for n in range(start, start + count):
        path = list(values(n))
        delay, peak = len(path) - 1, max(path)
        histogram[delay] += 1
        if not delays or delay > delays[-1][1]:
            delays.append([n, delay])
        if not paths or peak > paths[-1][1]:
            paths.append([n, peak])
    return {"histogram": [list(pair) for pair in sorted(histogram.items())], "delay": delays, "path": paths}


def records(spec: Spec, start: int, count: int) -> Partial:
    """Return the numbers whose delay or peak exceeds the known maximum and all smaller numbers of the range."""
    every = statistics(start, count)
    known = {name: int(spec["known"][name]) for name in ("delay", "path")}
    kept = {name: [row for row in every[name] if row[1] > known[name]] for name in ("delay", "path")}
    return {"count": count} | kept


def drawn(spec: Spec, start: int, count: int) -> Partial:
    """Return the columns of a range for plots, with a histogram for each column if the job requests histograms."""
    cut = layout(int(spec["start"]), spec["count"], spec["columns"])
    rows, density = [], []
    for column in sorted({(n - cut.base) // cut.width for n in range(start, start + count)}):
        low = max(start, cut.base + column * cut.width)
        high = min(start + count, cut.base + (column + 1) * cut.width)
        delays = [len(list(values(n))) - 1 for n in range(low, high)]
        most = max(delays)
        rows.append([column, len(delays), sum(delays), min(delays), most, low + delays.index(most)])
        density.append([column, [[delay, delays.count(delay)] for delay in sorted(set(delays))]])
    return {"columns": rows} | ({"density": density} if spec.get("density") else {})


def step(x: int) -> int:
    """Return (3x+1)/2 for an odd x, and x/2 for an even x."""
    return (3 * x + 1) // 2 if x % 2 else x // 2


def falls(n: int, bits: range) -> bool:
    """Return True if j steps lead the residue r of n to r or below, and 3^c < 2^j, for some j in `bits`.

    r is n modulo 2^bits[-1], and c is the number of odd steps among the first j.
    """
    r = x = n % 2 ** bits[-1]
    odd = 0
    for j in range(1, bits[-1] + 1):
        odd += x % 2
        x = step(x)
        if j in bits and 3**odd < 2**j and x <= r:
            return True
    return False


def joins(r: int, steps: int) -> bool:
    """Return True if a smaller residue reaches the same value in the same number of steps, with as many odd steps."""
    odd, x = 0, r
    for _ in range(steps):
        odd += x % 2
        x = step(x)
    before = {(x, odd)}
    for _ in range(steps):
        doubled = {(2 * x, odd) for x, odd in before}
        before = doubled | {((2 * x - 1) // 3, odd - 1) for x, odd in before if x % 3 == 2 and odd}
    return any(x < r and not odd for x, odd in before)


def candidate(n: int) -> bool:
    """Return True if verification must check n, because the sieve does not exclude n."""
    if n % 3 == 2 or n % 9 == 4 or n % 81 == 10:
        return False
    return not falls(n, range(1, 25)) and not falls(n, range(25, 33)) and not joins(n % 2**24, 24)


def verified(start: int, count: int) -> Partial:
    """Verify a range: perform steps on each candidate until its value is below a floor.

    The floor is the start of the candidate's block of 2^32 numbers, or in block 0 a power of two. After the first 24
    steps, 16 steps are performed at a time.
    """
    seen: Partial = {"count": count, "candidates": 0, "blocks": 0, "checksum": 0, "bits": 0, "unresolved": []}
    for n in filter(candidate, range(start, start + count)):
        floor = n - n % 2**32 or 2 ** (n.bit_length() - 1)
        x, steps = n, 0
        while steps <= 24 or x >= floor:
            for _ in range(16 if steps else 24):
                x = step(x)
            if steps:
                seen["bits"] = max(seen["bits"], x.bit_length())
                seen["blocks"] += 1
            steps += 16 if steps else 24
        seen["candidates"] += 1
        seen["checksum"] += x
    return seen


def trajectory(spec: Spec) -> Partial:
    """Compute the trajectory of a small number, with all values in memory."""
    path: list[int] = []
    halvings = 0
    for value in values(int(spec["n"])):
        path.append(value)
        if halvings == spec["step_limit"]:
            break
        halvings += value % 2 == 0
    parities = [after % 2 for after in shortcut(path)]
    peak = max(path)
    return {
        "ended": "one" if path[-1] == 1 else "step limit",
        "delay": len(path) - 1,
        "odd_steps": sum(parities),
        "peak": str(peak),
        "peak_step": path.index(peak),
        "shortcut_steps": len(parities),
        "parity": sum(bit << at for at, bit in enumerate(parities)).to_bytes((len(parities) + 7) // 8, "little").hex(),
        "curve": curve(path, spec["max_points"]),
    }


def shortcut(path: list[int]) -> list[int]:
    """Return the values at which a shortcut step starts: all except the last, and values that follow an odd value."""
    return [value for at, value in enumerate(path[:-1]) if at == 0 or path[at - 1] % 2 == 0]


def curve(path: list[int], max_points: int) -> list[list[int]]:
    """Return the points [step, log2] of a trajectory's curve.

    These are all values, or the minimum and maximum of each of at most max_points/2 equal buckets.
    """
    leads = [leading(value) for value in path]
    width = 1
    while len(path) > max_points and -(-len(path) // width) > max_points // 2:
        width *= 2
    kept: set[int] = set()
    for low in range(0, len(path), width):
        steps = range(low, min(low + width, len(path)))
        kept |= {min(steps, key=leads.__getitem__), max(steps, key=leads.__getitem__)}
    return [[step, log2(leads[step])] for step in sorted(kept)]


def frontier(bits: int, lo: int, hi: int) -> Partial:
    """Return the partial result of units lo..hi-1 of a search of all numbers below 2^bits."""
    cut = frontier_plan.division(bits)
    roots = frontier_rules.nodes(cut.root)
    parts = [frontier_unit(cut, roots[cut.node(unit)].b, unit) for unit in range(lo, hi)]
    return reduce(frontier_plan.merge, parts) if parts else {}


def frontier_unit(cut: frontier_plan.Division, lowest: int, unit: int) -> Partial:
    """Follow all surviving numbers of a unit. `lowest` contains the bits of the unit's node."""
    depth = cut.root + cut.more
    inner = int(format(unit % 2**cut.more, f"0{cut.more}b")[::-1], 2) if cut.more else 0
    sums, largest = [0, 0, 0], 0
    for n in range(lowest + (inner << cut.root), 2**cut.bits, 2**depth):
        if frontier_rules.survives(n, cut.bits):
            passes, x, every = frontier_rules.follow(n, cut.bits)
            sums, largest = [sums[0] + 1, sums[1] + passes, sums[2] + x], max(largest, every.bit_length())
    return {"units": 1, "blocks": [[cut.block(unit), *sums[:2], sums[2] % 2**64]], "largest_bits": largest}
