"""Run chaos campaigns with `python -m tests.chaos`: play seeds for some minutes, and print statistics and findings."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence

from tests.chaos import campaign, plan
from tests.chaos.campaign import Tally


def again(seed: int, families: Sequence[str], rounds: int) -> str:
    """Return the command that plays a seed again."""
    chosen = f" FAULTS={','.join(families)}" if families else ""
    return f"make chaos SEED={seed}{chosen}" + (f" ROUNDS={rounds}" if rounds != ROUNDS else "")


ROUNDS = 3


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="play this seed alone; else seed after seed from --first on")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--minutes", type=float, default=60.0, help="no seed begins later")
    parser.add_argument(
        "--faults", default="", help=f"families, comma-separated: {', '.join(plan.FAMILIES)}; default all"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds a seed")
    parser.add_argument("--plan", action="store_true", help="print the seed's plan and play nothing")
    chosen = parser.parse_args(given)
    chosen.families = [name for name in chosen.faults.split(",") if name]
    unknown = [name for name in chosen.families if name not in plan.FAMILIES]
    if unknown:
        parser.error(f"--faults: no family {', '.join(unknown)}; there are {', '.join(plan.FAMILIES)}")
    return chosen


def play(chosen: argparse.Namespace) -> tuple[Tally, list[str]]:
    """Play seeds, print statistics and findings, and print commands that repeat the seeds with findings."""
    failed: list[str] = []
    tally, seed = Tally(), chosen.first if chosen.seed is None else chosen.seed
    deadline = time.monotonic() + chosen.minutes * 60
    while time.monotonic() < deadline:
        one = plan.make(seed, chosen.families, chosen.rounds)
        print(*one.lines(jobs=False), sep="\n", flush=True)
        found = list(campaign.run(one, tally))
        if found:
            failed.append(again(seed, chosen.families, chosen.rounds))
            print("found:", *found, f"play it again: {failed[-1]}", sep="\n  ", flush=True)
        seed += 1
        if chosen.seed is not None:
            break
    return tally, failed


def main() -> int:
    chosen = arguments(sys.argv[1:])
    if chosen.plan:
        print(*plan.make(chosen.seed or chosen.first, chosen.families, chosen.rounds).lines(), sep="\n")
        return 0
    for how in (signal.SIGTERM, signal.SIGHUP):  # Exit normally, so that the cluster is stopped.
        signal.signal(how, lambda number, _: sys.exit(128 + number))
    tally, failed = play(chosen)
    print("", *tally.lines(), *failed, sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
