"""Time windows of a trace in binary form: all slices, or shares of time per pixel if there are too many slices."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from jobs import errors
from jobs.encoding import packed
from jobs.encoding.json_reader import JsonReader
from jobs.kinds.thread.parameters import MAX_CORES
from jobs.models import Binary

#: Maximum average number of slices per pixel and core; denser windows are returned as bins.
DENSE = 4
MAX_PIXELS = 16_384
RUN, BLOCKED, JOIN, STEAL = range(4)
_KINDS = {"blocked": BLOCKED, "join": JOIN, "steal": STEAL}
FIRST, STOLEN = 1, 2
NOBODY = 2**32 - 1
#: Kinds of slices that belong to each share of a core's time in a bin.
SHARES = {"busy": (RUN, JOIN), "steal": (STEAL,), "blocked": (BLOCKED,)}

BINARIES = {
    "trace": Binary(
        question="trace",
        choices=("t0", "t1", "px"),
        summary=(
            "A time window of one replica's trace. Query: t0 and t1 in us (default: the whole trace), px as the width"
            " in pixels (default: 1000), and replica, cell and max_events of the question trace. Facts: level, t0, "
            "t1, cores, scheduler, cell, replica, slices (in the window), until_us, truncated, deadlocked. Level "
            "slices has the columns start f64 us, duration f64 us, core u16, kind u8 (0 runs, 1 blocked, 2 joins, 3 "
            "steals), depth u16, flags u8 (1: first slice of its thread, 2: successful steal or the slice after it), "
            "thread u32, parent u32 (4294967295: none); successful steals: steal_time f64 us, steal_from u16, "
            "steal_to u16, steal_thread u32; path_of u32, paths u8 (the paths as UTF-8 lines). Level bins is used if "
            "a pixel of a core has more than 4 slices on average. Its columns are busy u8, steal u8, blocked u8 (255:"
            " the whole bin) and depth u8 (mean over the busy time), with px bins per core, one core after the other."
        ),
    )
}


def binary(name: str, trace: JsonReader) -> Callable[[Mapping[str, str]], bytes]:
    """Return a function that returns time windows of a recorded trace in binary form.

    `trace` is the answer to the question `trace`. The function raises InvalidRequest, which names the wrong query
    parameter.
    """
    assert name in BINARIES
    timeline = Timeline()
    for member in trace.members():
        if member == "traceEvents":
            timeline.add(trace.items())
        else:
            value = trace.value()
            if member == "otherData":
                timeline.set_facts(value)
    timeline.finish()
    return timeline.window


class _Lane:
    """Slices of one simulated core, sorted by time and without overlap."""

    def __init__(self) -> None:
        self.start, self.end = array("d"), array("d")
        self.kind, self.depth, self.flags = array("B"), array("H"), array("B")
        self.thread, self.parent = array("I"), array("I")
        #: Cumulative time of each share before each slice and at the end; `depth` accumulates depth times busy time.
        self.sums: dict[str, array[float]] = {}

    def add(self, start: float, end: float, kind: int, depth: int, flags: int, thread: int, parent: int) -> None:
        self.start.append(start)
        self.end.append(end)
        self.kind.append(kind)
        self.depth.append(depth)
        self.flags.append(flags)
        self.thread.append(thread)
        self.parent.append(parent)

    def finish(self) -> None:
        for share, kinds in SHARES.items():
            self.sums[share] = self._cumulative([float(kind in kinds) for kind in self.kind])
        busy = SHARES["busy"]
        weights = [float(depth) if kind in busy else 0.0 for kind, depth in zip(self.kind, self.depth, strict=True)]
        self.sums["depth"] = self._cumulative(weights)

    def _cumulative(self, weights: Sequence[float]) -> array[float]:
        total, sums = 0.0, array("d", [0.0])
        for start, end, weight in zip(self.start, self.end, weights, strict=True):
            total += (end - start) * weight
            sums.append(total)
        return sums

    def until(self, share: str, moment: float) -> float:
        """Return the cumulative time of a share of the core's time up to a moment."""
        sums = self.sums[share]
        number = bisect_right(self.start, moment) - 1
        if number < 0:
            return 0.0
        length = self.end[number] - self.start[number]
        part = min(moment - self.start[number], length)
        return sums[number] + ((sums[number + 1] - sums[number]) * part / length if length else 0.0)

    def within(self, t0: float, t1: float) -> tuple[int, int]:
        """Return the index range of the slices that touch the window, including slices without length."""
        return bisect_left(self.end, t0), bisect_right(self.start, t1)


class Timeline:
    """Slices and steals of a trace, by simulated core. Accepts events one by one, to limit memory."""

    def __init__(self) -> None:
        self.about: dict[str, Any] = {}
        self.until = 0.0
        self.lanes: list[_Lane] = []
        self.names: list[str] = []
        self.steals: list[tuple[float, int, int, int]] = []
        self._paths_by_name: dict[str, int] = {}
        self._begun: set[int] = set()
        #: Time and victim of the last successful steal, by core.
        self._stolen: dict[int, tuple[float, int]] = {}

    def set_facts(self, about: Mapping[str, Any]) -> None:
        """Set the facts of the whole run from the trace's `otherData`."""
        names = ("cores", "scheduler", "cell", "replica", "until_us", "truncated", "deadlocked")
        self.about = {name: about[name] for name in names}
        self.until = max(float(about["until_us"]), 1e-3)

    def add(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Add events in recorded order, in which the slices of each core and thread are sorted by time."""
        for event in events:
            if event["ph"] == "X":
                self._add_slice(event)

    def finish(self) -> None:
        """Prepare for window queries after the last event, and free memory that only `add` needs."""
        self._lanes_up_to(self.about["cores"] - 1)
        for lane in self.lanes:
            lane.finish()
        self.steals.sort()
        self.names = list(self._paths_by_name)
        self._paths_by_name, self._begun = {}, set()

    def _add_slice(self, event: Mapping[str, Any]) -> None:
        core, start, end, facts = event["tid"], event["ts"], event["ts"] + event["dur"], event["args"]
        kind, flags, thread, parent = _KINDS.get(event["cat"], RUN), 0, NOBODY, NOBODY
        if kind == STEAL:
            flags = STOLEN if facts["ok"] else 0
            if flags:
                self._stolen[core] = (end, facts["victim"])
        else:
            thread = self._number(facts["path"])
        if kind == RUN:
            parent = NOBODY if facts["parent"] is None else self._number(facts["parent"])
            flags = self._first_flags(core, thread)
        self._lanes_up_to(core).add(start, end, kind, facts.get("depth", 0), flags, thread, parent)

    def _first_flags(self, core: int, thread: int) -> int:
        """Return the flags of a slice in which a thread is running, and record the preceding steal."""
        flags = 0 if thread in self._begun else FIRST
        self._begun.add(thread)
        if core in self._stolen:
            when, victim = self._stolen.pop(core)
            flags |= STOLEN
            self.steals.append((when, victim, core, thread))
        return flags

    def _lanes_up_to(self, core: int) -> _Lane:
        if not 0 <= core < MAX_CORES:
            raise ValueError(f"the trace has a slice of core {core}, which does not exist")
        while len(self.lanes) <= core:
            self.lanes.append(_Lane())
        return self.lanes[core]

    def _number(self, path: str) -> int:
        return self._paths_by_name.setdefault(path, len(self._paths_by_name))

    def window(self, choice: Mapping[str, str]) -> bytes:
        t0 = _number(choice, "t0", 0.0, 0.0, self.until)
        t1 = _number(choice, "t1", self.until, 0.0, math.inf)
        px = int(_number(choice, "px", 1000, 1, MAX_PIXELS))
        if t1 <= t0:
            raise errors.InvalidRequest(f"t1: must be greater than t0, which is {t0:.6g} us; got {t1:.6g}", field="t1")
        inside = [lane.within(t0, t1) for lane in self.lanes]
        slices = sum(max(0, high - low) for low, high in inside)
        dense = slices > DENSE * px * len(self.lanes)
        facts = {"level": "bins" if dense else "slices", "t0": t0, "t1": t1, "slices": slices, **self.about}
        return packed.pack(facts, self._bins(t0, t1, px) if dense else self._slices(inside, t0, t1))

    def _slices(self, inside: Sequence[tuple[int, int]], t0: float, t1: float) -> dict[str, array[Any]]:
        slices: dict[str, array[Any]] = {
            "start": array("d"),
            "duration": array("d"),
            "core": array("H"),
            "kind": array("B"),
            "depth": array("H"),
            "flags": array("B"),
            "thread": array("I"),
            "parent": array("I"),
        }
        for core, (lane, (low, high)) in enumerate(zip(self.lanes, inside, strict=True)):
            slices["core"].extend([core] * max(0, high - low))
            for name in ("start", "kind", "depth", "flags", "thread", "parent"):
                slices[name].extend(getattr(lane, name)[low:high])
            slices["duration"].extend(
                end - start for start, end in zip(lane.start[low:high], lane.end[low:high], strict=True)
            )
        return slices | self._steals(t0, t1) | self._paths(slices)

    def _steals(self, t0: float, t1: float) -> dict[str, array[Any]]:
        rows = [steal for steal in self.steals if t0 <= steal[0] <= t1]
        codes = {"steal_time": "d", "steal_from": "H", "steal_to": "H", "steal_thread": "I"}
        return {name: array(code, [row[at] for row in rows]) for at, (name, code) in enumerate(codes.items())}

    def _paths(self, slices: Mapping[str, array[Any]]) -> dict[str, array[Any]]:
        threads = sorted({*slices["thread"], *slices["parent"]} - {NOBODY})
        text = "\n".join(self.names[thread] for thread in threads)
        return {"path_of": array("I", threads), "paths": array("B", text.encode())}

    def _bins(self, t0: float, t1: float, px: int) -> dict[str, array[Any]]:
        edges = [t0 + (t1 - t0) * number / px for number in range(px + 1)]
        bins: dict[str, array[Any]] = {name: array("B") for name in (*SHARES, "depth")}
        whole = (t1 - t0) / px
        for lane in self.lanes:
            times = {name: _differences([lane.until(name, edge) for edge in edges]) for name in bins}
            for share in SHARES:
                bins[share].extend(min(255, round(255 * time / whole)) for time in times[share])
            bins["depth"].extend(
                min(255, round(weighted / busy)) if busy > 0 else 0
                for weighted, busy in zip(times["depth"], times["busy"], strict=True)
            )
        return bins


def _differences(sums: Sequence[float]) -> list[float]:
    return [max(0.0, after - before) for before, after in pairwise(sums)]


def _number(choice: Mapping[str, str], name: str, default: float, low: float, high: float) -> float:
    """Return a number from the query string. Raise InvalidRequest with the bounds if the number is invalid."""
    try:
        value = float(choice.get(name, default))
    except ValueError:
        value = math.nan
    if low <= value <= high and math.isfinite(value):
        return value
    reach = f"{low:.12g}..{high:.12g}" if math.isfinite(high) else f"{low:.12g} or more"
    raise errors.InvalidRequest(f"{name}: must be a number, {reach}; got {choice[name]!r}", field=name)
