"""Breaks the model in many ways and shows which checks notice: `python -m tests.contract.thread_mutations [NAME ...]`.

Each flaw is a change of the kernel's text in a copy of the kind; the analytic checks of test_thread_theory.py and
the replay of test_thread_replay.py then run on the copy. A flaw that no check notices is an error. Takes some minutes:
every copy is compiled anew.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
KIND = "jobs/kinds/thread"
TESTS = ("thread_bench.py", "thread_replay.py", "test_thread_theory.py", "test_thread_replay.py")
#: Seconds, compiling included; compiled code that runs for ever heeds no other limit.
PATIENCE = 400
ANALYTIC, REPLAY = (f"tests/contract/test_thread_{name}.py" for name in ("theory", "replay"))


@dataclass(frozen=True)
class Flaw:
    name: str
    file: str
    old: str
    new: str


FLAWS = (
    Flaw("children one depth too deep", "cpu_draws.py", "if depth >= max_depth:", "if depth > max_depth:"),
    Flaw(
        "offspring law upside down",
        "cpu_draws.py",
        "np.int64(draw >= thresholds[row, 0])",
        "np.int64(draw < thresholds[row, 0])",
    ),
    Flaw(
        "logarithm without its leading zeros",
        "cpu_draws.py",
        "return zeros * logs[0] + logs[index]",
        "return logs[index]",
    ),
    Flaw(
        "work and children from one random word",
        "cpu_draws.py",
        "word = mix(key + _WORK)",
        "word = mix(key + _OFFSPRING)",
    ),
    Flaw(
        "spawn paid once, not for each child",
        "cpu_threads.py",
        "left = work + children * replica.spawn_ns",
        "left = work + min(children, 1) * replica.spawn_ns",
    ),
    Flaw(
        "dispatch of a preempted thread is free",
        "cpu_threads.py",
        "replica.busy += replica.dispatch_ns + left\n"
        "    schedule(replica, machine, core, replica.now + replica.dispatch_ns + left)",
        "replica.busy += left\n    schedule(replica, machine, core, replica.now + left)",
    ),
    Flaw(
        "join cost left out of the span",
        "cpu_threads.py",
        "span = machine.families[at(family)].latest + replica.join_ns",
        "span = machine.families[at(family)].latest",
    ),
    Flaw(
        "one idle core served an event",
        "cpu_simulation.py",
        "            dispatch(replica, model, machine, measured, core, family, child)\n",
        "            dispatch(replica, model, machine, measured, core, family, child)\n"
        "            if replica.now > 0:\n                break\n",
    ),
    Flaw(
        "fifo takes the newest family",
        "cpu_simulation.py",
        "numbers[layout.POLICY] == layout.LIFO",
        "numbers[layout.POLICY] <= layout.LIFO",
    ),
    Flaw(
        "waits counted from time 0",
        "cpu_threads.py",
        "wait = replica.now - machine.families[at(family)].ready\n",
        "wait = replica.now if replica.mean else replica.now - machine.families[at(family)].ready\n",
    ),
    Flaw("warm-up ignored", "cpu_simulation.py", "layout.WARM if number < model.numbers[layout.WARMUP] else 0", "0"),
    Flaw(
        "arrivals twice as often",
        "cpu_simulation.py",
        "interarrival(replica.key, replica.arrived, replica.mean, model.logs)",
        "interarrival(replica.key, replica.arrived, replica.mean, model.logs) // 2",
    ),
    Flaw(
        "quantum never ends",
        "cpu_threads.py",
        "part = min(left, replica.quantum)\n        machine.cores[at(core)].left",
        "part = left\n        machine.cores[at(core)].left",
    ),
    Flaw(
        "slices one nanosecond long at the end",
        "cpu_simulation.py",
        "machine.cores[at(replica.core)].left > 0:",
        "machine.cores[at(replica.core)].left >= 0:",
    ),
    Flaw(
        "a blocked thread lets go of its core",
        "cpu_threads.py",
        "if replica.joins == SUSPEND:\n        replica.idle |= bit(core)\n    elif",
        "if replica.joins != NONE:\n        replica.idle |= bit(core)\n    if",
    ),
    Flaw(
        "a deadlock one core too early",
        "cpu_simulation.py",
        "(replica.live == 0 and replica.arrived == replica.roots) or replica.blocked == replica.p",
        "(replica.live == 0 and replica.arrived == replica.roots) or replica.blocked == max(1, replica.p - 1)",
    ),
    Flaw(
        "thieves take the youngest of a family",
        "cpu_queues.py",
        """child = machine.families[at(family)].first
    machine.families[at(family)].first = child + 1
    if child + 1 == machine.families[at(family)].end:
        machine.steals""",
        """child = machine.families[at(family)].end - 1
    machine.families[at(family)].end = child
    if child == machine.families[at(family)].first:
        machine.steals""",
    ),
    Flaw(
        "one victim for all",
        "cpu_draws.py",
        "return other + 1 if other >= core else other",
        "return np.int64(0) if core > 0 else np.int64(1)",
    ),
    Flaw(
        "attempts passed over are not counted", "cpu_stealing.py", "machine.steals[at(thief)].tries += missed", "pass"
    ),
    Flaw(
        "thieves wake too late",
        "cpu_stealing.py",
        "schedule(replica, machine, thief, machine.steals[at(thief)].ends)",
        "schedule(replica, machine, thief, machine.steals[at(thief)].ends + 50 * replica.steal_ns)",
    ),
    Flaw(
        "refused children are born",
        "cpu_threads.py",
        "children = allowed\n    if children > 0:",
        "pass\n    if children > 0:",
    ),
)


def broken(flaw: Flaw, folder: Path) -> None:
    """A copy of the kind and of its checks, with the flaw."""
    shutil.copytree(TOP / "jobs", folder / "jobs", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tests/contract").mkdir(parents=True)
    for name in TESTS:
        shutil.copy(TOP / "tests/contract" / name, folder / "tests/contract")
    shutil.copy(TOP / "pyproject.toml", folder)
    file = folder / KIND / flaw.file
    text = file.read_text()
    if text.count(flaw.old) != 1:
        raise SystemExit(f"{flaw.name}: its text is {text.count(flaw.old)} times in {flaw.file}, not once")
    file.write_text(text.replace(flaw.old, flaw.new))


def noticed(folder: Path, tests: str) -> list[str]:
    """Names of the checks that fail."""
    # Check 14 compares the kernel with the reference, which has no flaw; as an analytic check it would notice too much.
    chosen = ["-k", "not test_14", "--tb=no", "--timeout=60"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, tests]
    environment = {**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder / "cache")}
    try:
        found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return ["hangs"]
    if found.returncode not in (0, 1):
        return ["crashed"]
    return sorted(set(re.findall(r"^(?:FAILED|ERROR) \S+::test_(\d+)_", found.stdout, re.MULTILINE)))


def main(names: list[str]) -> int:
    missed = []
    for flaw in FLAWS:
        if names and not any(name in flaw.name for name in names):
            continue
        with tempfile.TemporaryDirectory() as place:
            broken(flaw, Path(place))
            analytic, replay = noticed(Path(place), ANALYTIC), noticed(Path(place), REPLAY)
        if not analytic and not replay:
            missed.append(flaw.name)
        checks = ", ".join(str(int(each)) if each.isdigit() else each for each in analytic) or "none"
        print(f"{flaw.name:<44} analytic checks: {checks:<40} replay: {'yes' if replay else 'no'}", flush=True)
    for name in missed:
        print(f"no check notices: {name}", file=sys.stderr)
    return bool(missed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.contract.thread_mutations", description=__doc__)
    parser.add_argument("names", nargs="*", help="only flaws whose names contain one of these")
    sys.exit(main(parser.parse_args().names))
