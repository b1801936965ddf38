"""Base class of kinds whose units are programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobs.kinds import program_checks, program_partials, program_result
from jobs.kinds.contract import FinishedUnit, Kind
from jobs.models import Partial, Spec


class ProgramKind(Kind):
    """Kind whose units are programs. Runners execute them, so the kind has neither kernels nor a reference."""

    result_schema = program_result.SCHEMA

    def merge(self, left: Partial, right: Partial) -> Partial:
        return program_partials.merge(left, right)

    def result(self, spec: Spec, partial: Partial) -> dict[str, Any]:
        """Return counts and durations. Clients read the records of single units through the API."""
        return program_partials.result(partial)

    def artifacts(self, parameters: Any) -> Mapping[str, str]:
        """Return the artifacts that the parameters refer to by ID or name, keyed by parameter name."""
        return {}

    def secrets(self, parameters: Any) -> Sequence[str]:
        """Return the names of the secrets that are passed to the kind's programs."""
        return ()

    def complaint(self, partial: Partial, lo: int, hi: int, worker: str) -> str:
        """Return why a partial result does not cover the units lo..hi-1 on this worker, or an empty string."""
        return program_checks.complaint(partial, lo, hi, worker)

    def finished_ranges(self, partial: Partial) -> Iterable[tuple[int, int]]:
        """Return the units of a partial result as ranges (lo, hi), which contain the units lo..hi-1, in order."""
        return program_partials.finished_ranges(partial)

    def finished_units(self, partial: Partial, lo: int, hi: int) -> Iterable[FinishedUnit]:
        """Return the finished units among lo..hi-1 of a partial result, in order."""
        return program_partials.finished_units(partial, lo, hi)
