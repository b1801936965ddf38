"""Analysis of profiles. The measurements of all hosts and GPUs are put on a common time axis.

A recording consists of JSON lines: a header, then one sample per line, which omits unchanged values. Counters (`cpu` in
core-seconds, `rx` and `tx` of the network and `rd` and `wr` of disks in bytes, `j` in joules) only grow within one
recording. Other values are instantaneous. docs/profiles.md describes the format.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from threads_cluster.errors import BadArgument

Json: TypeAlias = dict[str, Any]
#: Values of a metric at each time of the axis. A value is None if there was no sample.
Line: TypeAlias = list[float | None]

#: Maximum number of times on the time axis.
#: Minimum step of the time axis in seconds. Kernel counters change every 10 ms.
_MOMENTS, _SHORTEST = 2000, 0.5
#: Utilization below which a device counts as idle.
IDLE_RATIO = 0.05
#: Gap between two samples, in sampling intervals and in seconds, above which samples are missing.
_GAP_PERIODS, _GAP_SECONDS = 5, 1.5
_COUNTERS = frozenset({"cpu", "rx", "tx", "rd", "wr"})


class Track:
    """Values of one metric of one device in one recording. Only changes are stored."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.values: list[float] = []

    def add(self, time: float, value: float) -> None:
        self.times.append(time)
        self.values.append(value)

    def at(self, time: float) -> float | None:
        """Return the value at a time, or None if the time is before the first sample."""
        place = bisect_right(self.times, time) - 1
        return self.values[place] if place >= 0 else None


@dataclass
class Piece:
    """Samples of one device in one recording. Times are seconds since 1970, by the cluster's clock."""

    device: str
    host: str
    title: str
    hz: float
    cores: int = 1
    memory_total: float | None = None
    ticks: list[float] = field(default_factory=list)
    tracks: dict[str, Track] = field(default_factory=dict)
    #: CPU time in seconds of the process that took the samples, or None if it was killed.
    cpu_seconds: float | None = None
    missed: int = 0
    #: Number of lines that are not valid samples, for example because a kill cut off a line.
    torn: int = 0

    def add(self, time: float, figures: Mapping[str, Any]) -> None:
        for name, value in figures.items():
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
                self.tracks.setdefault(name, Track()).add(time, float(value))

    @property
    def begin(self) -> float:
        return self.ticks[0]

    @property
    def end(self) -> float:
        return self.ticks[-1]

    def covers(self, begin: float, end: float) -> bool:
        """Return True if samples were taken during the complete interval."""
        if begin < self.begin - 1e-6 or end > self.end + 1e-6:
            return False
        first, last = bisect_right(self.ticks, begin) - 1, bisect_right(self.ticks, end)
        seen = self.ticks[max(first, 0) : last + 1]
        longest = max(_GAP_PERIODS / self.hz, _GAP_SECONDS)
        return all(after - before <= longest for before, after in pairwise(seen))


@dataclass(frozen=True)
class Recorded:
    """All recordings of a profile, grouped by device."""

    name: str
    pieces: Mapping[str, Sequence[Piece]]

    @property
    def begin(self) -> float:
        return min(piece.begin for pieces in self.pieces.values() for piece in pieces)

    @property
    def end(self) -> float:
        return max(piece.end for pieces in self.pieces.values() for piece in pieces)


# -- reading ----------------------------------------------------------------------------------------------------------


def read(place: Path) -> Recorded:
    """Read one recording, or all recordings in a folder. Raises BadArgument if there is none."""
    files = sorted(one for one in place.iterdir() if _is_recording(one)) if place.is_dir() else [place]
    pieces: dict[str, list[Piece]] = {}
    name = ""
    for file in files:
        name = _add(file, pieces) or name
    if not pieces:
        raise BadArgument(
            f"{place} contains no samples; download a profile with: cluster artifact fetch profile-NAME DIR"
        )
    for several in pieces.values():
        several.sort(key=lambda piece: piece.begin)
    about = place / "profile.json" if place.is_dir() else None
    return Recorded(_profile_name(about) or name or place.name, dict(sorted(pieces.items())))


def _is_recording(file: Path) -> bool:
    return file.name.endswith((".jsonl", ".jsonl.gz"))


def _profile_name(about: Path | None) -> str:
    try:
        return str(json.loads(about.read_text())["name"]) if about else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _add(file: Path, pieces: dict[str, list[Piece]]) -> str:
    """Read one recording, add its samples to `pieces`, and return the ID of its profile."""
    lines = _lines(file)
    head = next(lines, None)
    if not isinstance(head, dict) or head.get("profile") != 1:
        raise BadArgument(f"{file} is not a recording of a profile")
    found = _Reading(head)
    for line in lines:
        found.take(line)
    for piece in found.all():
        if piece.ticks:
            pieces.setdefault(piece.device, []).append(piece)
    return str(head.get("id", ""))


class _Reading:
    """Parser of a recording."""

    def __init__(self, head: Json) -> None:
        self._offset = float(head.get("wall", 0.0)) + float(head.get("offset", 0.0))
        hz, host = max(float(head.get("hz", 1)), 1e-3), str(head.get("host", ""))
        gpus = {str(gpu.get("uuid")): gpu for gpu in head.get("gpus", ()) if isinstance(gpu, dict)}
        self._host = None
        if f"host:{host}" in head.get("devices", (f"host:{host}",)):
            self._host = Piece(
                f"host:{host}", host, host, hz, int(head.get("cores", 1)), head.get("memory_total_bytes")
            )
        self._gpus = {
            uuid: Piece(f"gpu:{uuid}", host, f"{host} GPU {gpu.get('index', '?')}, {gpu.get('name', uuid)}", hz)
            for uuid, gpu in gpus.items()
        }

    def all(self) -> list[Piece]:
        return [*([self._host] if self._host else []), *self._gpus.values()]

    def take(self, line: Any) -> None:
        if not isinstance(line, dict) or not ("t" in line or "end" in line):
            for piece in self.all():
                piece.torn += 1
        elif "end" in line:
            for piece in self.all():
                piece.cpu_seconds, piece.missed = line.get("cpu_seconds"), int(line.get("missed", 0))
        else:
            self._sample(self._offset + float(line["t"]), line)

    def _sample(self, time: float, line: Json) -> None:
        for piece in self.all():
            if not piece.ticks or time > piece.ticks[-1]:
                piece.ticks.append(time)
        if self._host:
            self._host.add(time, {name: value for name, value in line.items() if name not in ("t", "gpus")})
        for uuid, figures in line.get("gpus", {}).items():
            if uuid in self._gpus:
                self._gpus[uuid].add(time, figures)


def _lines(file: Path) -> Iterator[Any]:
    """Yield the parsed lines of a recording, or None for an invalid line. Raises BadArgument for an unreadable file."""
    try:
        with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as opened:
            for text in opened:
                if text.strip():
                    yield _parse(text)
    except (OSError, EOFError, zlib.error) as error:
        raise BadArgument(f"{file} cannot be read: {error}") from None


def _parse(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# -- time series -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Axis:
    """Time axis of a profile. A value at a time covers the step that ends at this time."""

    begin: float
    step: float
    count: int

    @classmethod
    def of(cls, recorded: Recorded) -> Axis:
        length = recorded.end - recorded.begin
        step = max(_SHORTEST, length / _MOMENTS)
        return cls(recorded.begin, step, max(1, math.ceil(length / step - 1e-9)))

    @property
    def seconds(self) -> list[float]:
        return [(number + 1) * self.step for number in range(self.count)]

    def spans(self, end: float) -> Iterator[tuple[float, float]]:
        """Yield the start and the end of each step. The last step ends with the last sample."""
        for number in range(self.count):
            begin = self.begin + number * self.step
            yield begin, min(begin + self.step, end)


Value: TypeAlias = Callable[[Piece, float, float], float | None]


def line(pieces: Sequence[Piece], axis: Axis, end: float, value: Value) -> Line:
    """Compute a value for each step from the recording that covers the step. Without a recording, the value is None."""
    found: Line = []
    for begin, until in axis.spans(end):
        covering = next((piece for piece in pieces if piece.covers(begin, until)), None)
        found.append(value(covering, begin, until) if covering and until > begin else None)
    return found


def rate(name: str) -> Value:
    """Return a function that computes how fast a counter grows per second."""

    def value(piece: Piece, begin: float, end: float) -> float | None:
        track = piece.tracks.get(name)
        before, after = (track.at(begin), track.at(end)) if track else (None, None)
        if before is None or after is None:
            return None
        return max(0.0, after - before) / (end - begin)

    return value


def mean(name: str) -> Value:
    """Return a function that computes the mean of a metric, weighted by time."""

    def value(piece: Piece, begin: float, end: float) -> float | None:
        track = piece.tracks.get(name)
        known = track.at(begin) if track else None
        if track is None or known is None:
            return None
        total, since = 0.0, begin
        for place in range(bisect_right(track.times, begin), bisect_right(track.times, end)):
            total += known * (track.times[place] - since)
            known, since = track.values[place], track.times[place]
        return (total + known * (end - since)) / (end - begin)

    return value


def utilization(piece: Piece, begin: float, end: float) -> float | None:
    """Return the utilization of a device from 0 to 1.

    For GPUs, prefer the multiprocessors' activity if it was recorded.
    """
    if piece.device.startswith("host:"):
        busy = rate("cpu")(piece, begin, end)
        return None if busy is None else min(1.0, busy / piece.cores)
    name = "s" if "s" in piece.tracks else "u"
    return mean(name)(piece, begin, end)


def power(piece: Piece, begin: float, end: float) -> float | None:
    """Return the power of a device in watts. If it was not recorded, derive it from the energy counter."""
    return mean("w")(piece, begin, end) if "w" in piece.tracks else rate("j")(piece, begin, end)


#: Functions that compute metrics over time, keyed by the name of the metric.
LINES: Mapping[str, Value] = {
    "utilization": utilization,
    "memory": mean("m"),
    "power": power,
    "receive": rate("rx"),
    "transmit": rate("tx"),
    "read": rate("rd"),
    "write": rate("wr"),
}


def lines(recorded: Recorded, axis: Axis, figure: str) -> dict[str, Line]:
    """Return a metric over time for each device. Devices without data are omitted."""
    value = LINES[figure] if figure not in ("receive", "transmit") else _link(figure)
    found = {name: line(pieces, axis, recorded.end, value) for name, pieces in recorded.pieces.items()}
    return {name: each for name, each in found.items() if any(one is not None for one in each)}


def _link(figure: str) -> Value:
    """Return a function that computes bytes per second, of a host's network or of a GPU's bus."""
    short = {"receive": "rx", "transmit": "tx"}[figure]
    return lambda piece, begin, end: (rate if piece.device.startswith("host:") else mean)(short)(piece, begin, end)


# -- summary ----------------------------------------------------------------------------------------------------------


def summary(recorded: Recorded) -> Json:
    """Return a summary of a profile as `{name, begin, seconds, energy_joules, devices}`. Unknown values are None.

    A device has: device, host, title, samples, missed, seconds (covered by samples), utilization and memory_bytes
    (mean, p95, max), idle_ratio, power_watts (mean, max), energy_joules, receive, transmit, read and write (total
    bytes; mean and max per second), profiler_ratio (the share of its host's cores that sampling used).
    """
    axis = Axis.of(recorded)
    figures = {name: lines(recorded, axis, name) for name in LINES}
    devices = [
        _device(pieces, axis, recorded.end, {name: by_device.get(device, []) for name, by_device in figures.items()})
        for device, pieces in recorded.pieces.items()
    ]
    energies = [row["energy_joules"] for row in devices if row["energy_joules"] is not None]
    return {
        "name": recorded.name,
        "begin": recorded.begin,
        "seconds": recorded.end - recorded.begin,
        "energy_joules": sum(energies) if energies else None,
        "devices": devices,
    }


def _device(pieces: Sequence[Piece], axis: Axis, end: float, figures: Mapping[str, Line]) -> Json:
    first = pieces[0]
    length = [min(begin + axis.step, until) - begin for begin, until in axis.spans(end)]
    at_work = _known(figures["utilization"])
    watts = [(value, seconds) for value, seconds in zip(figures["power"], length, strict=False) if value is not None]
    row: Json = {
        "device": first.device,
        "host": first.host,
        "title": first.title,
        "samples": sum(len(piece.ticks) for piece in pieces),
        "missed": sum(piece.missed for piece in pieces),
        "torn": sum(piece.torn for piece in pieces),
        "seconds": sum(piece.end - piece.begin for piece in pieces),
        "utilization": _spread(at_work),
        "idle_ratio": sum(value < IDLE_RATIO for value in at_work) / len(at_work) if at_work else None,
        "memory_bytes": _spread(_known(figures["memory"])),
        "memory_total_bytes": first.memory_total,
        "power_watts": _spread([value for value, _ in watts]),
        "energy_joules": sum(value * seconds for value, seconds in watts) if watts else None,
        "profiler_ratio": _profiler_ratio(pieces),
    }
    for name in ("receive", "transmit", "read", "write"):
        row[name] = _flow(figures[name], length)
    return row


def _known(figure: Line) -> list[float]:
    return [value for value in figure if value is not None]


def _spread(values: Sequence[float]) -> Json | None:
    if not values:
        return None
    ordered = sorted(values)
    high = ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]
    return {"mean": math.fsum(ordered) / len(ordered), "p95": high, "max": ordered[-1]}


def _flow(figure: Line, length: Iterable[float]) -> Json | None:
    known = [(value, seconds) for value, seconds in zip(figure, length, strict=False) if value is not None]
    if not known:
        return None
    total, seconds = math.fsum(value * span for value, span in known), math.fsum(span for _, span in known)
    return {"bytes": total, "mean": total / seconds if seconds else 0.0, "max": max(value for value, _ in known)}


def _profiler_ratio(pieces: Sequence[Piece]) -> float | None:
    known = [piece for piece in pieces if piece.cpu_seconds is not None and piece.end > piece.begin]
    if not known or not known[0].device.startswith("host:"):
        return None
    seconds = math.fsum((piece.end - piece.begin) * piece.cores for piece in known)
    return math.fsum(piece.cpu_seconds or 0.0 for piece in known) / seconds
