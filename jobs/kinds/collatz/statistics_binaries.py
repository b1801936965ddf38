"""Binary data for plots of a finished statistics job: its columns, and a histogram of delays for each column."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Any

from jobs import errors
from jobs.encoding import packed
from jobs.encoding.json_reader import JsonReader
from jobs.models import Binary

_OFFSET = "offset f64 (first number of the column minus facts.start)"
BINARIES = {
    "columns": Binary(
        summary=(
            "The columns of a statistics job. Facts: start (the first number, a decimal string), columns. Columns: "
            f"{_OFFSET}, count f64, min u16, mean f64, max u16 (of the delays), argmax f64 (the smallest number with "
            "the maximum delay, minus facts.start)."
        )
    ),
    "density": Binary(
        summary=(
            "The histograms of delays of all columns, for a statistics job with density. Facts: start, columns. "
            f"Columns: {_OFFSET}, first u32 (one entry more than columns: column j has the entries from first[j] to "
            "first[j + 1] - 1), delay u16, count f64."
        )
    ),
}


def binary(name: str, result: JsonReader) -> Callable[[Mapping[str, str]], bytes]:
    """Return a function that returns the columns or the histograms of a job in packed binary form.

    Raise NotFound if the job has no columns or no histograms.
    """
    columns = _read(result)
    if columns is None or (name == "density" and "density" not in columns):
        needs = "columns" if name == "columns" else "columns and density"
        raise errors.NotFound(f"this job has no {name}; submit a statistics job with {needs}", field="binary")
    data = _columns(columns) if name == "columns" else _density(columns)
    return lambda _choice: data


def _read(result: JsonReader) -> dict[str, Any] | None:
    """Return the columns of a stored result with packed histograms, or None if the result has no columns."""
    columns = None
    for member in result.members():
        if member == "columns":
            columns = {name: _histograms(result) if name == "density" else result.value() for name in result.members()}
        else:
            result.value()
    return columns


def _histograms(result: JsonReader) -> dict[str, array[Any]]:
    first, delays, counts = array("I", [0]), array("H"), array("d")
    for histogram in result.items():
        delays.extend(delay for delay, _ in histogram)
        counts.extend(int(count) for _, count in histogram)
        first.append(len(delays))
    return {"first": first, "delay": delays, "count": counts}


def _start(columns: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, array[Any]]]:
    starts = [int(start) for start in columns["start"]]
    facts = {"start": str(starts[0]), "columns": len(starts)}
    return facts, {"offset": array("d", [start - starts[0] for start in starts])}


def _columns(columns: Mapping[str, Any]) -> bytes:
    facts, arrays = _start(columns)
    start = int(facts["start"])
    arrays["count"] = array("d", [int(count) for count in columns["count"]])
    arrays["min"] = array("H", columns["min"])
    arrays["mean"] = array("d", columns["mean"])
    arrays["max"] = array("H", columns["max"])
    arrays["argmax"] = array("d", [int(n) - start for n in columns["argmax"]])
    return packed.pack(facts, arrays)


def _density(columns: Mapping[str, Any]) -> bytes:
    facts, arrays = _start(columns)
    return packed.pack(facts, arrays | columns["density"])
