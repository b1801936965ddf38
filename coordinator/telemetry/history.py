"""History of the last hour in Redis, with one sample per second. Every coordinator returns the same history.

The leader appends samples to `ct:history:now`, and folds each minute of samples into one compressed block of
`ct:history`. A sample contains values by name. Unknown values are omitted.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jobs import errors
from jobs.store import Store, unreadable_entries
from threads_protocol.answers import telemetry as answers
from threads_protocol.numbers import short

#: Number of samples per block.
#: Maximum number of blocks, which contain one hour in total and the current incomplete minute.
BLOCK, MOST_BLOCKS = 60, 61
MAX_SECONDS, MAX_POINTS = 3600, 1000
#: Maximum number of metric names per request.
#: Maximum number of stars in a metric name.
MAX_NAMES, MAX_STARS = 64, 8

Sample = Mapping[str, float]


def append(store: Store, moment: int, sample: Sample) -> None:
    """Append a sample with its Unix time in seconds. Compress the samples into a block if there are enough."""
    if store.telemetry.append_sample(json.dumps([moment, sample], separators=(",", ":"))) >= BLOCK:
        fold(store)


def fold(store: Store) -> bool:
    """Compress the oldest samples into a block. Return False if there are too few, or none are left."""
    return store.telemetry.fold_samples(BLOCK, MOST_BLOCKS, lambda rows: pack(_samples(rows)))


def pack(samples: Sequence[tuple[int, Sample]]) -> bytes:
    """Return samples as compressed columns."""
    names = dict.fromkeys(name for _, sample in samples for name in sample)
    columns = {name: [sample.get(name) for _, sample in samples] for name in names}
    text = json.dumps({"t": [moment for moment, _ in samples], "s": columns}, separators=(",", ":"))
    return zlib.compress(text.encode(), 6)


@dataclass(frozen=True)
class Block:
    times: list[int]
    columns: dict[str, list[float | None]]


def _check_number(value: object) -> float:
    if isinstance(value, int | float) and math.isfinite(value):
        return value
    raise ValueError("a value is not a finite number")


def _sample(row: bytes) -> tuple[int, Sample]:
    moment, sample = json.loads(row)
    return int(moment), {name: _check_number(value) for name, value in sample.items()}


def _samples(rows: Iterable[bytes]) -> list[tuple[int, Sample]]:
    """Parse samples. Invalid samples are skipped."""
    return unreadable_entries.readable("sample", enumerate(rows), lambda _, row: _sample(row))


def unpack(stored: bytes) -> Block:
    """Return the block that `pack` has compressed. Raise ValueError if the data is invalid."""
    try:
        stored_block = json.loads(zlib.decompress(stored))
        times, rows = list(map(int, stored_block["t"])), dict(stored_block["s"])
        columns = {
            name: [None if one is None else _check_number(one) for one in column] for name, column in rows.items()
        }
        if any(len(column) != len(times) for column in columns.values()):
            raise ValueError("the columns differ in length")
    except (zlib.error, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise ValueError(f"not a block of samples: {error!r}") from error
    return Block(times=times, columns=columns)


def _unfolded_block(rows: Iterable[bytes]) -> Block:
    """Return the newest samples, which are not compressed yet, as a block."""
    samples = _samples(rows)
    names = dict.fromkeys(name for _, sample in samples for name in sample)
    columns = {name: [sample.get(name) for _, sample in samples] for name in names}
    return Block(times=[moment for moment, _ in samples], columns=columns)


def read(store: Store, seconds: int) -> tuple[int, list[Block]]:
    """Return Redis time in seconds and the blocks of the last `seconds`. Both are read in one step."""
    now, stored, rows = store.telemetry.history(-(-seconds // BLOCK) + 1)
    blocks = unreadable_entries.readable("sample", enumerate(stored), lambda _, block: unpack(block))
    return now, [*blocks, _unfolded_block(rows)]


@dataclass(frozen=True)
class Pattern:
    """Name in which * matches any characters. `parts` are the literal parts between the stars."""

    parts: tuple[str, ...]

    def matches(self, name: str) -> bool:
        """Return True if the name matches the pattern.

        The first occurrence of each part is sufficient, so no backtracking is needed.
        """
        first, *middle = self.parts
        if not middle:
            return name == first
        last = middle.pop()
        end = len(name) - len(last)
        at = len(first)
        if at > end or not (name.startswith(first) and name.endswith(last)):
            return False
        for part in middle:
            start = name.find(part, at, end)
            if start < 0:
                return False
            at = start + len(part)
        return True


def patterns(names: str) -> list[Pattern]:
    """Parse comma-separated names with stars. Raise InvalidRequest if there are too many names or stars."""
    wanted = [name for name in names.split(",") if name]
    if len(wanted) > MAX_NAMES:
        raise errors.InvalidRequest(f"names: must have at most {MAX_NAMES} names; got {len(wanted)}", field="names")
    for name in wanted:
        if name.count("*") > MAX_STARS:
            raise errors.InvalidRequest(
                f"names: a name must have at most {MAX_STARS} stars; got {short(name)}", field="names"
            )
    return [Pattern(tuple(name.split("*"))) for name in wanted]


class _Bins:
    """Minimum, sum, maximum and count of the values in each bin."""

    def __init__(self, count: int) -> None:
        self.low: list[float | None] = [None] * count
        self.high: list[float | None] = [None] * count
        self.sum = [0.0] * count
        self.count = [0] * count

    def add(self, place: int, values: list[float | None]) -> None:
        known = [value for value in values if value is not None]
        if not known:
            return
        low, high, known_low, known_high = min(known), max(known), self.low[place], self.high[place]
        self.low[place] = low if known_low is None else min(low, known_low)
        self.high[place] = high if known_high is None else max(high, known_high)
        self.sum[place] += sum(known)
        self.count[place] += len(known)

    def serialize(self) -> answers.Bins:
        means = [
            round_digits(total / count) if count else None for total, count in zip(self.sum, self.count, strict=True)
        ]
        return {"min": self.low, "mean": means, "max": self.high}


def round_digits(value: float) -> float:
    """Round to six significant digits. Return whole numbers as integers."""
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() else short


def fill_bins(
    now: int, blocks: Sequence[Block], wanted: Sequence[Pattern], seconds: int, points: int
) -> answers.History:
    """Return the history response. Bins start at multiples of their length, so repeated calls have equal bins."""
    step = max(1, -(-seconds // points))
    first = (now - seconds) // step + 1
    count = now // step - first + 1
    known = {name for block in blocks for name in block.columns}
    names = {name for name in known if any(pattern.matches(name) for pattern in wanted)}
    bins: dict[str, _Bins] = {}
    for block in blocks:
        runs = _runs(block.times, first, count, step)
        for name in names & block.columns.keys() if runs else ():
            mine = bins.get(name) or bins.setdefault(name, _Bins(count))
            for place, low, high in runs:
                mine.add(place, block.columns[name][low:high])
    return {
        "from": first * step,
        "to": now,
        "step_seconds": step,
        "times": [(first + n) * step for n in range(count)],
        "series": {name: bins[name].serialize() for name in sorted(bins)},
        "names": sorted(known),
    }


def _runs(times: Sequence[int], first: int, count: int, step: int) -> list[tuple[int, int, int]]:
    """Return tuples (bin, low, high), in which the samples low to high-1 of a block fall into the bin."""
    runs: list[tuple[int, int, int]] = []
    for number, moment in enumerate(times):
        place = moment // step - first
        if not 0 <= place < count:
            continue
        if runs and runs[-1][0] == place and runs[-1][2] == number:
            runs[-1] = (place, runs[-1][1], number + 1)
        else:
            runs.append((place, number, number + 1))
    return runs
