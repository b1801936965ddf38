"""Samples of a cluster under load, and what they say."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.cluster import LocalCluster
from tests.soak.slopes import LEAST, Bound, Growth, growth

#: A third of a run, at most ten minutes, is left out: caches fill and kernels are loaded.
_WARM_UP_SHARE, _WARM_UP_SECONDS = 3, 600.0
#: On a busy machine that takes longer, and is waited for so long.
_LATE_SECONDS = 240.0
#: Growth that fails a run, in MB and in open files.
MEMORY = Bound(per_hour=5.0, whole=4.0)
HANDLES = Bound(per_hour=12.0, whole=4.0)
#: Memory of Redis as it counts it itself; its resident memory depends on what it once needed.
REDIS = "redis, used_memory"


@dataclass
class Series:
    """One figure over time."""

    seconds: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, second: float, value: float) -> None:
        self.seconds.append(second)
        self.values.append(value)

    def growth(self, after: float) -> Growth | None:
        """Return the growth of what came later than `after` seconds."""
        first = next((place for place, second in enumerate(self.seconds) if second >= after), len(self.seconds))
        return growth(self.seconds[first:], self.values[first:])


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table."""

    what: str
    unit: str
    growth: Growth
    #: None where growth does not fail a run.
    bound: Bound | None

    @property
    def failed(self) -> bool:
        return self.bound is not None and self.growth.exceeds(self.bound)

    def __str__(self) -> str:
        one = self.growth
        figures = f"{one.begin:10.1f}{one.end:10.1f}{one.per_hour:12.2f}{one.error:10.2f}"
        figures += f"{one.last_half:12.2f}{one.typical:10.2f}"
        return f"{self.what:34}{self.unit:6}{figures}  {'GROWS' if self.failed else ''}".rstrip()


HEADING = f"{'what':34}{'unit':6}{'begin':>10}{'end':>10}{'per hour':>12}{'error':>10}{'last half':>12}{'typical':>10}"


class Watch:
    """Notes each process' memory and handles, and Redis' memory; writes them to a file as they come."""

    def __init__(self, cluster: LocalCluster, file: Path) -> None:
        self._cluster, self._file = cluster, file
        self._series: dict[tuple[str, str], Series] = defaultdict(Series)
        self._began = time.monotonic()
        #: Seconds from which on samples are judged; infinite until then.
        self._judged = float("inf")

    def run(self, seconds: float, every: float, warm: Callable[[], bool] = lambda: True) -> None:
        """Note a sample every `every` seconds, for `seconds`, or as much longer as it takes until `warm`."""
        early, samples = min(seconds / _WARM_UP_SHARE, _WARM_UP_SECONDS), 0
        with self._file.open("w") as file:
            file.write("seconds,what,unit,value\n")
            while (passed := time.monotonic() - self._began) < self._judged + seconds - early or samples < LEAST:
                if passed >= early and (warm() or passed >= early + _LATE_SECONDS):
                    self._judged = min(self._judged, passed)
                samples += passed >= self._judged
                for what, unit, value in self._figures():
                    self._series[what, unit].add(passed, value)
                    file.write(f"{passed:.1f},{what},{unit},{value:.3f}\n")
                file.flush()
                time.sleep(max(0.0, every - (time.monotonic() - self._began - passed)))

    def _figures(self) -> Iterator[tuple[str, str, float]]:
        for sample in self._cluster.samples():
            what = f"{sample.name} {sample.pid}"
            yield what, "MB", sample.memory / 1e6
            yield what, "files", sample.handles
        yield REDIS, "MB", self._cluster.redis_memory() / 1e6

    def rows(self) -> list[Row]:
        """Return the table of the run; processes that lived too briefly for a slope are left out."""
        rows = []
        for (what, unit), series in sorted(self._series.items()):
            fitted = series.growth(self._judged)
            judged = not (what.startswith("redis ") and unit == "MB")
            bound = (MEMORY if unit == "MB" else HANDLES) if judged else None
            if fitted is not None:
                rows.append(Row(what=what, unit=unit, growth=fitted, bound=bound))
        return rows
