"""A row of the table, and measuring two sides in turns: for every benchmark."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass

from jobs.hosts import cpu_level
from jobs.settings import load


def gcc_target() -> str:
    """Return the flag by which gcc compiles a peer for the instructions that our kernels use: the ratio would be worth
    nothing if CPU_LEVEL held for one side alone.
    """
    wanted = load().cpu_level
    return f"-march={cpu_level.processor(wanted)}" if wanted and wanted != cpu_level.of_host() else "-march=native"


@dataclass(frozen=True, kw_only=True)
class Row:
    #: The goal and its point, for example P5@2-lanes.
    id: str
    ours: float
    peer: float
    unit: str
    peer_name: str
    #: As of a time. The ratio is then peer over ours, so that more of it is always better.
    less_is_better: bool = False

    @property
    def ratio(self) -> float:
        """Return ours over peer, or peer over ours if less is better."""
        return self.peer / self.ours if self.less_is_better else self.ours / self.peer

    def table(self) -> dict[str, object]:
        return {"id": self.id, "ours": self.ours, "peer": self.peer, "ratio": round(self.ratio, 4), "unit": self.unit}


class Incomplete(Exception):
    """Part of a benchmark failed; these are the rows of the rest."""

    def __init__(self, missing: str, rows: list[Row]) -> None:
        super().__init__(f"not measured: {missing}")
        self.rows = rows


def in_turns(ours: Callable[[], float], peer: Callable[[], float], rounds: int, what: str) -> tuple[float, float]:
    """Medians of both, measured alternately."""
    mine, theirs = [], []
    for number in range(rounds):
        mine.append(ours())
        theirs.append(peer())
        print(f"{what} round {number + 1}: ours {mine[-1]:.5g}, peer {theirs[-1]:.5g}", file=sys.stderr)
    return statistics.median(mine), statistics.median(theirs)
