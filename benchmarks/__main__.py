"""`python -m benchmarks [--only ID ...]`: runs benchmarks, prints the table, writes benchmarks/results.json."""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import pkgutil
import platform
import re
import sys
from pathlib import Path

import benchmarks
from benchmarks.measure import Row

RESULTS = Path(__file__).parent / "results.json"


def machine() -> str:
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    return f"{names[0] if names else platform.machine()}, {len(names)} cores"


def main(wanted: list[str]) -> int:
    """A module p5_... holds the benchmarks of the goal P5, r1_... of R1; its `run()` gives rows."""
    modules = [entry.name for entry in pkgutil.iter_modules(benchmarks.__path__) if re.match(r"[pr]\d+_", entry.name)]
    goals = {name.partition("_")[0].upper(): name for name in sorted(modules)}
    unknown = set(wanted) - set(goals)
    if unknown:
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(goals)}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    for goal in wanted or goals:
        rows += importlib.import_module(f"benchmarks.{goals[goal]}").run()
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    print(f"\n{machine()}, {date}")
    print(f"{'id':<28}{'ours':>14}{'peer':>14}{'ratio':>9}  unit")
    for row in rows:
        print(f"{row.id:<28}{row.ours:>14.4g}{row.peer:>14.4g}{row.ratio:>9.3f}  {row.unit}; peer: {row.peer_name}")
    table = [{**row.table(), "machine": machine(), "date": date} for row in rows]
    RESULTS.write_text(json.dumps(table, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument(
        "--only", type=str.upper, nargs="*", default=[], metavar="ID", help="goals to run, for example P5"
    )
    sys.exit(main(parser.parse_args().only))
