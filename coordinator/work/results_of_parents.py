"""Results of the jobs on which a leased job depends. Its worker can read the value and the output files of each unit.

The worker cannot read their logs, or files of other jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from coordinator.artifacts.trees import Trees
from coordinator.jobs.units import Units
from coordinator.schemas import Answer, required
from jobs import errors
from jobs.store import Store
from jobs.store.work import bounds
from jobs.store.work.outputs import LeasedUnits
from threads_protocol.manifest import Entry

#: Maximum number of units in one request.
MOST_UNITS = 100


class ParentUnit(BaseModel):
    """Unit of a job on which the leased job depends."""

    model_config = ConfigDict(extra="forbid", strict=True)

    job: bounds.JobId
    unit: bounds.Units


class WantedResults(BaseModel):
    """Units whose results are requested. The response has the same order."""

    model_config = ConfigDict(extra="forbid", strict=True)

    units: list[ParentUnit] = Field(min_length=1, max_length=MOST_UNITS)


class UnitResult(Answer):
    value: Any = required('Value of the unit. {"artifact": true} if values/UNIT.json contains it.')
    files: list[list[Any]] = required("Output files of the unit as [path, bytes, SHA-256].")


class UnitResults(Answer):
    results: list[UnitResult]


class ResultsOfParents:
    """Reads the results of units of other jobs for the holder of a lease."""

    def __init__(self, trees: Trees, store: Store, units: Callable[[str], Units]) -> None:
        """`units` returns the units of a job, or raises NotFound."""
        self._trees, self._store, self._units = trees, store, units

    def read(self, lease: LeasedUnits, wanted: Sequence[ParentUnit]) -> list[dict[str, Any]]:
        """Return the results of units in their order.

        Raises Forbidden unless the leased job depends on each of the jobs, NotFound if a job or an output was deleted,
        Conflict if a unit is not done, and InvalidRequest if a unit does not exist.
        """
        return [
            {"value": row["value"], "files": [[each.path, each.size, each.sha] for each in self._files(lease, row)]}
            for row in self._rows(lease, wanted)
        ]

    def hashes(self, lease: LeasedUnits, wanted: ParentUnit) -> set[str]:
        """Return the hashes of a unit's output files. Raises the errors of `read`."""
        return {each.sha for row in self._rows(lease, [wanted]) for each in self._files(lease, row)}

    def _rows(self, lease: LeasedUnits, wanted: Sequence[ParentUnit]) -> Iterator[Any]:
        for job, group in groupby(wanted, lambda each: each.job):
            if job not in lease.parents:
                detail = f"units: job {lease.job_id} does not depend on job {job}, so its results cannot be read"
                raise errors.Forbidden(detail, field="units")
            numbers = [each.unit for each in group]
            yield from map(_require_done, self._page(job, numbers), [job] * len(numbers))

    def _page(self, job: str, numbers: Sequence[int]) -> Sequence[Any]:
        try:
            units = self._units(job)
        except errors.NotFound as error:
            raise errors.NotFound(f"units: job {job} was deleted, with its results", field="units") from error
        if wrong := [number for number in numbers if number >= units.total]:
            raise errors.InvalidRequest(f"units: job {job} has no unit {wrong[0]}", field="units")
        return units.page(self._store.unit_reads, job, numbers, self._store.clock.now())["units"]

    def _files(self, lease: LeasedUnits, row: Any) -> list[Entry]:
        if row["artifact"] is None:
            return []
        [found] = self._store.artifacts.read(lease.tenant, [row["artifact"]])
        if found is None:
            raise errors.NotFound(f"units: the output of unit {row['unit']} was deleted", field="units")
        folder, value = f"outputs/{row['unit']}/", f"values/{row['unit']}.json"
        entries = self._trees.entries(lease.tenant, found)
        return [each for each in entries if each.is_file and (each.path.startswith(folder) or each.path == value)]


def _require_done(row: Any, job: str) -> Any:
    if row["state"] != "done":
        raise errors.Conflict(f"units: unit {row['unit']} of job {job} is {row['state']}, not done", field="units")
    return row
