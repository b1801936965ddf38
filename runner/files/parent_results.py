"""Results of other jobs that a unit needs. A program receives them together with the unit."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.files.inputs import Files, Inputs, MissingItem, close_all
from threads_protocol.manifest import Entry

#: Maximum number of output files of the units on which a unit depends. A program can have 1024 descriptors.
MOST_FILES = 500
#: Maximum total size in bytes of the values that the program receives as JSON.
MOST_VALUES = 64 << 20


@dataclass
class ParentResults:
    """Results of units in the order in which an item names the units."""

    #: Value of each unit, with the names of its output files.
    listed: list[dict[str, Any]] = field(default_factory=list)
    #: Open output files of all units.
    descriptors: list[int] = field(default_factory=list)
    _bytes: int = 0

    def read(self, item: Any, inputs: Inputs, files: Files) -> None:
        """Read the results of the units that an item names in its field `units`, as pairs of a job and a number.

        Raises MissingItem, OSError and the errors of `files`. The caller must close the descriptors.
        """
        units = _units(item)
        for (job, unit), result in zip(units, files.results(units) if units else (), strict=True):
            entries = [Entry(kind="f", path=path, size=size, sha=sha) for path, size, sha in result["files"]]
            self._add(f"{job}:{unit}", result["value"], entries, inputs, files)

    def _add(self, unit: str, value: Any, entries: Sequence[Entry], inputs: Inputs, files: Files) -> None:
        if len(self.descriptors) + len(entries) > MOST_FILES:
            raise MissingItem(f"the results on which the unit depends have more than {MOST_FILES} files")
        opened = inputs.open(entries, files, unit)
        if value == {"artifact": True} and entries and entries[-1].path.startswith("values/"):
            value = self._load(opened[-1])
            close_all([opened.pop()])
        self.descriptors += opened
        names = [entry.path.split("/", 2)[2] for entry in entries[: len(opened)]]
        self.listed.append({"value": value, "files": names})

    def _load(self, descriptor: int) -> Any:
        with os.fdopen(os.dup(descriptor), "rb") as file:
            text = file.read()
        self._bytes += len(text)
        if self._bytes > MOST_VALUES:
            raise MissingItem(f"the values on which the unit depends have more than {MOST_VALUES} bytes")
        return json.loads(text)


def _units(item: Any) -> list[tuple[str, int]]:
    units = item.get("units", []) if isinstance(item, dict) else []
    try:
        return [(str(job), int(number)) for job, number in units]
    except (TypeError, ValueError):
        raise MissingItem("the item's units must be a list of pairs of a job and a number") from None
