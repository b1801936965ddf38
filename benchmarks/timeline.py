"""`python -m benchmarks.timeline [JOBS]`: where the time of one trivial job goes, step by step, medians over many.

The processes are those of P6, with the steps of `traced`; noting them costs a job some 0.1 ms. Beside it: what a
request takes that does nothing at all, in turns with the jobs.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.load import traced
from tests.integration.live import Live
from threads_cluster.client.api import Cluster

#: Pause between jobs, after which cores have gone idle.
PAUSE_SECONDS = 0.01
_BODY = {"start_number": 1, "number_count": 10}


class Traced(Live):
    """A cluster whose coordinator and worker note their steps."""

    def start_process(self, name: str, command: list[str], **more: str) -> None:
        at = command.index("-m") + 1 if "-m" in command else 0
        if at and command[at] in traced.STEPS:
            command = [*command[:at], "benchmarks.load.traced", *command[at:]]
        super().start_process(name, command, TRACE_FILE=str(self.trace), **more)

    @property
    def trace(self) -> Path:
        """Return the file with the steps of all processes."""
        return self.folder / "trace"


def one_job(cluster: Cluster) -> None:
    """Compute a trivial job, submit to result."""
    assert cluster.run("collatz", _BODY)["count"] == 10


def timed(call: Callable[[], object]) -> tuple[int, int]:
    """Return when the call began and ended, in nanoseconds of the machine's monotonic clock."""
    began = time.monotonic_ns()
    call()
    return began, time.monotonic_ns()


def steps(lines: Sequence[str], spans: Sequence[tuple[int, int]]) -> list[tuple[str, float]]:
    """Return each step and the median milliseconds from submit to its latest time within a job, in their order.

    A worker asks NEXT once more when the job has ended; of that the first counts.
    """
    names = [name for part in traced.STEPS.values() for step in part for name in (step.before, step.after) if name]
    notes = sorted((int(at), name) for at, _, name in (line.partition(" ") for line in lines))
    seen: dict[str, list[float]] = {name: [] for name in names}
    place = 0
    for began, ended in spans:
        latest: dict[str, int] = {}
        while place < len(notes) and notes[place][0] <= ended:
            at, name = notes[place]
            place += 1
            if at >= began and not ("NEXT" in name and name in latest):
                latest[name] = at
        for name, at in latest.items():
            seen[name].append((at - began) / 1e6)
    medians = [(name, statistics.median(times)) for name, times in seen.items() if times]
    return sorted(medians, key=lambda one: one[1])


def _show(rows: Sequence[tuple[str, float]], jobs: Sequence[float], nothing: Sequence[float]) -> None:
    print("| ms | step takes | what |\n| --- | --- | --- |")
    before = 0.0
    for name, at in [*rows, ("the client has the result", statistics.median(jobs))]:
        print(f"| {at:.2f} | {at - before:.2f} | {name} |")
        before = at
    for what, times in (("job", jobs), ("request that does nothing", nothing)):
        cut = statistics.quantiles(times, n=100)
        print(f"{what}: p50 {cut[49]:.2f} ms, p99 {cut[98]:.2f} ms")
    print(f"ratio of the medians: {statistics.median(jobs) / statistics.median(nothing):.2f}")


def main(jobs: int) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
        live = Traced(Path(folder), lanes=2)
        ending.callback(live.stop)
        live.start()
        cluster = ending.enter_context(Cluster(live.url(), token=""))
        for _ in range(50):
            one_job(cluster)
        live.trace.write_bytes(b"")
        spans, nothing = [], []
        for _ in range(jobs):
            spans.append(timed(lambda: one_job(cluster)))
            time.sleep(PAUSE_SECONDS)
            began, ended = timed(lambda: cluster.connection.ask("GET", "/health", patience=0))
            nothing.append((ended - began) / 1e6)
            time.sleep(PAUSE_SECONDS)
        time.sleep(0.5)
        rows = steps(live.trace.read_text().splitlines(), spans)
    _show(rows, [(ended - began) / 1e6 for began, ended in spans], nothing)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
