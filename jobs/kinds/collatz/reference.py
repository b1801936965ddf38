"""The Collatz map, slow and obvious, in integers of any size: the truth that kernels are compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from jobs.kinds.collatz.curve import leading, log2
from jobs.models import Partial, Spec


def values(n: int) -> Iterator[int]:
    """n and all that follows, up to and with the first 1."""
    while n != 1:
        yield n
        n = 3 * n + 1 if n % 2 else n // 2
    yield 1


def run(spec: Spec, lo: int, hi: int) -> Partial:
    """The partial of units lo..hi-1."""
    return trajectory(spec) if spec["mode"] == "trajectory" else statistics(int(spec["start"]) + lo, hi - lo)


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


def trajectory(spec: Spec) -> Partial:
    """Keeps every value in memory, so it is for small n."""
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
    """The values at which a shortcut step, n/2 or (3n+1)/2, begins: all but the last and those that follow an odd."""
    return [value for at, value in enumerate(path[:-1]) if at == 0 or path[at - 1] % 2 == 0]


def curve(path: list[int], max_points: int) -> list[list[int]]:
    """[step, log2] of every value, or of the least and greatest of each of at most max_points/2 equal buckets."""
    leads = [leading(value) for value in path]
    width = 1
    while len(path) > max_points and -(-len(path) // width) > max_points // 2:
        width *= 2
    kept: set[int] = set()
    for low in range(0, len(path), width):
        steps = range(low, min(low + width, len(path)))
        kept |= {min(steps, key=leads.__getitem__), max(steps, key=leads.__getitem__)}
    return [[step, log2(leads[step])] for step in sorted(kept)]
