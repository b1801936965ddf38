"""Kinds whose units are programs, which runners execute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobs.kinds import program_checks, program_partials, program_result
from jobs.kinds.contract import FinishedUnit, Kind
from jobs.models import Partial, Spec


class ProgramKind(Kind):
    """A kind whose units are programs. Runners execute them: it has neither kernels nor a reference."""

    result_schema = program_result.SCHEMA

    def merge(self, left: Partial, right: Partial) -> Partial:
        return program_partials.merge(left, right)

    def result(self, spec: Spec, partial: Partial) -> dict[str, Any]:
        """Return counts and times; rows of the units are asked for by their numbers."""
        return program_partials.result(partial)

    def artifacts(self, parameters: Any) -> Mapping[str, str]:
        """Return the artifacts that the parameters name, each by its id or name: by the parameter that names it."""
        return {}

    def secrets(self, parameters: Any) -> Sequence[str]:
        """Return the names of the secrets that its programs are given."""
        return ()

    def complaint(self, partial: Partial, lo: int, hi: int, worker: str) -> str:
        """Return why a partial is not that of the units lo..hi-1, all run by this worker; empty when it is."""
        return program_checks.complaint(partial, lo, hi, worker)

    def finished_ranges(self, partial: Partial) -> Iterable[tuple[int, int]]:
        """Return the ranges lo, hi of the units lo..hi-1 that the partial covers, in their order."""
        return program_partials.finished_ranges(partial)

    def finished_units(self, partial: Partial, lo: int, hi: int) -> Iterable[FinishedUnit]:
        """Return those of the units lo..hi-1 that the partial covers, in their order."""
        return program_partials.finished_units(partial, lo, hi)
