"""`python -m benchmarks [--only NAME ...]`: runs benchmarks, prints the table, writes benchmarks/results.json.

A module p5_... measures the goal P5; its `run()` gives rows. Those of a kind lie in a folder named after it.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import pkgutil
import platform
import re
import sys
from collections import defaultdict
from pathlib import Path

import benchmarks
from benchmarks.measure import Incomplete, Row
from jobs.hosts import cpu_level
from jobs.kinds import registry
from jobs.models import Device
from jobs.settings import load, use_cpu_level

RESULTS = Path(__file__).parent / "results.json"
#: A goal's number: P5 of speed, F2 of the Collatz frontier, R1 of recovery, K1 of any kind, C1 of programs, S1 of
#: services, W1 of workflows.
GOAL = re.compile(r"[cfkprsw]\d+(?=_)")


def machine() -> str:
    """Return the CPU's name, its cores, and the level of instructions that kernels and peers in C use."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    return f"{names[0] if names else platform.machine()}, {len(names)} cores, {load().cpu_level or cpu_level.of_host()}"


def modules(folder: str = "") -> list[str]:
    """Modules with benchmarks in this folder or in a kind's folder below it, dotted."""
    path = Path(*benchmarks.__path__) / folder
    dotted = ".".join(["benchmarks", folder] if folder else ["benchmarks"])
    return sorted(f"{dotted}.{entry.name}" for entry in pkgutil.iter_modules([str(path)]) if GOAL.match(entry.name))


def by_goal() -> dict[str, list[str]]:
    """Modules by goal, those that every kind shares first."""
    goals: dict[str, list[str]] = defaultdict(list)
    for folder in ("", *registry.names()):
        for module in modules(folder):
            goals[GOAL.match(module.rpartition(".")[2])[0].upper()].append(module)  # type: ignore[index]
    return dict(sorted(goals.items()))


def measured(name: str) -> list[Row]:
    """Rows of a goal, or of a kind: its kernel over its reference, and the goals in its folder."""
    if name in registry.names():
        from benchmarks import k1_kernels

        return [
            *([k1_kernels.row(name)] if name in registry.kinds_for_device(Device.CPU) else ()),
            *(row for module in modules(name) for row in importlib.import_module(module).run()),
        ]
    return [row for module in by_goal()[name] for row in importlib.import_module(module).run()]


def main(wanted: list[str]) -> int:
    names = [name if name in registry.names() else name.upper() for name in wanted] or list(by_goal())
    known = [*by_goal(), *registry.names()]
    if unknown := set(names) - set(known):
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    missing: list[str] = []
    for name in names:
        try:
            rows += measured(name)
        except Incomplete as error:
            rows += error.rows
            missing.append(f"{name}: {error}")
    if not rows:
        print("error: nothing was measured; the lines above say why", file=sys.stderr)
        return 1
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    print(f"\n{machine()}, {date}")
    print(f"{'id':<28}{'ours':>14}{'peer':>14}{'ratio':>9}  unit")
    for row in rows:
        print(f"{row.id:<28}{row.ours:>14.4g}{row.peer:>14.4g}{row.ratio:>9.3f}  {row.unit}; peer: {row.peer_name}")
    table = [{**row.table(), "machine": machine(), "date": date} for row in rows]
    RESULTS.write_text(json.dumps(table, indent=1) + "\n")
    for text in missing:
        print(f"error: {text}; the lines above say why", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="goals or kinds: P5, collatz")
    try:
        use_cpu_level(load().cpu_level)
        sys.exit(main(parser.parse_args().only))
    except cpu_level.UnsupportedLevel as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
