"""Kind `collatz`: studies the 3n+1 map for a range of numbers or for a single number. See README.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from jobs.encoding.json_reader import JsonReader
from jobs.kinds.collatz import frontier_plan, partials, plans, statistics_binaries, titles
from jobs.kinds.collatz.parameters import Parameters
from jobs.kinds.collatz.result_schema import RESULT
from jobs.kinds.collatz.statistics_columns import layout
from jobs.kinds.collatz.trajectory_curve import FRACTION_BITS
from jobs.kinds.contract import Kind
from jobs.models import Mark, MarkKind, Partial, Plan, Spec
from threads_protocol.numbers import exact


def _statistics_result(spec: Spec, partial: Partial) -> dict[str, Any]:
    shown = partials.result(partial)
    if "columns" in partial:
        start = int(spec["start"])
        shown["columns"] = partials.columns_result(
            layout(start, spec["count"], spec["columns"]), start, partial["columns"]
        )
    if "density" in partial:
        shown["columns"]["density"] = [histogram for _, histogram in partial["density"]]
    return shown


def _verify_result(spec: Spec, partial: Partial) -> dict[str, Any]:
    unresolved, whole = partial["unresolved"], partial["count"] == spec["count"]
    return {
        "count": exact(partial["count"]),
        "verified": whole and not unresolved,
        "statement": _statement(int(spec["start"]), partial["count"], whole, unresolved),
        "checksum": str(partial["checksum"]),
        "candidates": exact(partial["candidates"]),
        "block_steps": exact(partial["blocks"]),
        "largest_bits": partial["bits"],
        "unresolved": [exact(n) for n in unresolved],
    }


def _statement(start: int, count: int, whole: bool, unresolved: list[int]) -> str:
    if unresolved:
        named = ", ".join(map(str, unresolved[:3]))
        named += " …" * (len(unresolved) > 3)
        return f"Nothing is claimed. These numbers reached no smaller number within 1.6 million steps: {named}"
    if not whole:
        return f"Verification is not finished; {count} numbers have been checked so far."
    if start == 1:
        return f"Every number from 1 to {count} reaches 1."
    return (
        f"Every number from {start} to {start + count - 1} reaches a smaller number, or a number that a "
        f"smaller number reaches. So if all numbers below {start} reach 1, all below {start + count} do."
    )


def _trajectory_result(spec: Spec, partial: Partial) -> dict[str, Any]:
    peak = int(partial["peak"])
    return {
        "n": exact(int(spec["n"])),
        "ended": partial["ended"],
        "delay": partial["delay"],
        "odd_steps": partial["odd_steps"],
        "peak": {
            "value": partial["peak"],
            "digits": len(partial["peak"]),
            "bits": peak.bit_length(),
            "step": partial["peak_step"],
        },
        "parity": {"shortcut_steps": partial["shortcut_steps"], "hex": partial["parity"]},
        "curve": [[step, logarithm / 2**FRACTION_BITS] for step, logarithm in partial["curve"]],
    }


class Collatz(Kind):
    """Kind that studies the 3n+1 map of the Collatz conjecture."""

    model_version = 1
    summary = "Exact statistics, records or verification of a range for the 3n+1 map, or the trajectory of one number."
    example: ClassVar[dict[str, Any]] = {"mode": "statistics", "start_number": 1, "number_count": 1000}
    parameters = Parameters
    result_schema = RESULT
    mark_kinds: ClassVar[Mapping[str, MarkKind]] = {
        "verified": MarkKind(summary="Numbers that reach 1 if all numbers below their range do.", origin=1)
    }
    binaries = statistics_binaries.BINARIES

    def plan(self, parameters: Parameters) -> Plan:
        """Plan one unit per number, a single unit for a trajectory, or one unit per class of numbers for a frontier."""
        by_mode = {"trajectory": plans.plan_trajectory, "frontier": plans.plan_frontier}
        return by_mode.get(parameters.mode, plans.plan_range)(parameters)

    def merge(self, left: Partial, right: Partial) -> Partial:
        """Merge two partial results of the same mode exactly. An empty partial result changes nothing."""
        if not left or not right:
            return left or right
        if "parity" in left or "parity" in right:
            raise ValueError("a trajectory is a single unit, so it cannot be merged")
        if "histogram" in left:
            return partials.merge(left, right)
        if "blocks" in left and "units" in left:
            return frontier_plan.merge(left, right)
        return partials.merge_verified(left, right) if "checksum" in left else partials.merge_records(left, right)

    def result(self, spec: Spec, partial: Partial) -> dict[str, Any]:
        """Return the result that users read; README.md describes its fields."""
        if spec["mode"] == "trajectory":
            return _trajectory_result(spec, partial)
        if spec["mode"] == "records":
            return partials.records_result(spec, partial)
        if spec["mode"] == "frontier":
            return frontier_plan.result(spec, partial)
        return _verify_result(spec, partial) if spec["mode"] == "verify" else _statistics_result(spec, partial)

    def marks(self, spec: Spec, result: dict[str, Any]) -> list[Mark]:
        """Return the mark `verified`, which records that all numbers of the job's range were verified."""
        if spec["mode"] not in ("statistics", "verify", "frontier") or not result.get("verified", True):
            return []
        if spec["mode"] == "frontier":
            return [Mark(name="verified", lo=1, hi=2 ** spec["bits"])]
        start = int(spec["start"])
        return [Mark(name="verified", lo=start, hi=start + spec["count"])]

    def title(self, parameters: Mapping[str, Any]) -> str:
        return titles.title(parameters)

    def binary(self, name: str, answer: JsonReader) -> Callable[[Mapping[str, str]], bytes]:
        return statistics_binaries.binary(name, answer)


KIND = Collatz()
