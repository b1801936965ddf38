"""Counts of the inputs and responses of the suites, printed at the end of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

#: Maximum number of unexpected responses that are printed.
_TOLD = 5


@dataclass
class Counts:
    """The inputs of one suite and the responses."""

    name: str
    accepted: int = 0
    #: Number of responses by status or error name.
    refused: Counter[str] = field(default_factory=Counter)
    unexpected: list[str] = field(default_factory=list)

    @property
    def inputs(self) -> int:
        return self.accepted + self.refused.total() + len(self.unexpected)

    def accept(self) -> None:
        self.accepted += 1

    def refuse(self, how: object) -> None:
        self.refused[str(how)] += 1

    def wrong(self, what: str) -> None:
        self.unexpected.append(what)

    def check(self) -> None:
        """Raise AssertionError with the first unexpected response, or if nothing was sent."""
        assert self.inputs, f"{self.name}: nothing was sent"
        told = "\n".join(self.unexpected[:_TOLD])
        assert not self.unexpected, f"{self.name}: {len(self.unexpected)} of {self.inputs} unexpected:\n{told}"

    def line(self) -> str:
        refused = ", ".join(f"{count} {how}" for how, count in sorted(self.refused.items())) or "0"
        return (
            f"{self.name:<34} {self.inputs:>7} inputs  {self.accepted:>7} accepted  refused: {refused}  "
            f"unexpected: {len(self.unexpected)}"
        )


_tallies: dict[str, Counts] = {}


def tally(name: str) -> Counts:
    """Return the counts of a suite; each name has one object."""
    return _tallies.setdefault(name, Counts(name))


def packed() -> list[dict[str, Any]]:
    """Return all counts as plain values."""
    return [{**vars(one), "refused": dict(one.refused)} for one in _tallies.values()]


def unpack(values: list[dict[str, Any]]) -> None:
    """Add the counts of another process."""
    for value in values:
        _tallies[value["name"]] = Counts(**{**value, "refused": Counter(value["refused"])})


def lines() -> Iterator[str]:
    """Return one line per suite, and one for all."""
    total = Counts("all")
    for one in _tallies.values():
        yield one.line()
        total.accepted += one.accepted
        total.refused.update(one.refused)
        total.unexpected += one.unexpected
    if _tallies:
        yield total.line()
