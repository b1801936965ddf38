"""`python -m tests.soak`: a local cluster under a steady mixed load, whose processes must not grow."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.soak import cluster, load
from tests.soak.watch import HEADING, Row, Watch

SAMPLES = Path("soak.csv")


def soak(minutes: float, every: float, file: Path, **environment: str) -> tuple[list[Row], load.Load]:
    """Run a cluster under load; return the table and what the load met."""
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as folder,
        cluster.running(Path(folder), **environment) as running,
        load.on(running.url) as users,
    ):
        watch = Watch(running, file)
        watch.run(minutes * 60, every, users.warm)
        return watch.rows(), users


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="length of the run")
    parser.add_argument(
        "--every", type=float, help="seconds between samples; 10, or less in a run of under a quarter hour"
    )
    parser.add_argument("--samples", type=Path, default=SAMPLES, help=f"file for the samples; {SAMPLES}")
    asked = parser.parse_args(given)
    asked.every = asked.every or min(10.0, asked.minutes * 60 / 90)
    return asked


def main(given: Sequence[str]) -> int:
    asked = arguments(given)
    for number in (signal.SIGTERM, signal.SIGHUP):  # so that the cluster is stopped
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    rows, users = soak(asked.minutes, asked.every, asked.samples)
    print(HEADING, *rows, "", sep="\n")
    print("done under load:", ", ".join(f"{what} {count}" for what, count in sorted(users.counts.items())))
    grown = [row.what for row in rows if row.failed]
    problems = [f"{what} grows" for what in grown] + users.failures
    problems += [] if rows else ["the run was too short for a slope"]
    print(f"samples: {asked.samples}", *problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
