"""Results of actions for references: results of jobs, and of actions that the coordinator runs itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator import decoding
from coordinator.server.bodies import MAX_BODY
from coordinator.workflows.documents import references, substitution
from coordinator.workflows.documents.document import Document
from coordinator.workflows.documents.references import INDEX, ITEM, Reference, Unfilled
from coordinator.workflows.ended_jobs import EndedJobs, Source
from coordinator.workflows.planning import Known, item_key
from jobs.kinds import program_arguments, registry
from jobs.store.server.connection import Unreadable
from jobs.store.workflows import JobOutput

#: Result fields of a program that contain values of its units.
_OF_UNITS = frozenset({"value", "values", "artifact", "artifacts"})
#: Maximum stored size in bytes of the results that one pass keeps as parsed values.
MAX_KEPT = 8 << 20


class Results:
    """Results of one workflow's actions during one pass. Methods raise Unfilled and ReadInterrupted."""

    def __init__(self, document: Document, known: Known, run: str, jobs: EndedJobs) -> None:
        self._document = document
        self._known = known
        #: Unique name of this run of the workflow. An ID alone can be reused.
        self._run = run
        self._jobs = jobs
        self.kept_results: dict[Source | str, Any] = {}
        self._bytes = 0

    def part(self, reference: Reference) -> Any:
        """Return the value of a reference."""
        key = reference.action
        record = self._known.records.get(key)
        if job := self._known.jobs.get(key):
            with_units = self._is_program(key) and reference.path[0] in _OF_UNITS
            return self._part_of_job(Source(key, job.id, with_units), reference)
        if record is None:
            raise Unfilled(f"{key} has no result")
        if record.state == "expanded":
            return self._part_of_items(reference, len(record.items))
        return references.part({"state": record.state, **(record.result or {})}, reference)

    def _is_program(self, key: str) -> bool:
        return registry.program_kind(self._document.actions[key].type) is not None

    # -- one job -------------------------------------------------------------------------------------------------------

    def _part_of_job(self, source: Source, reference: Reference) -> Any:
        given, name = self._read_result(source), reference.path[0]
        if source.with_units and name not in given:
            raise Unfilled(f"{source.key} has {len(given[f'{name}s'])} units; refer to the list {name}s")
        return references.part(given, reference)

    def _read_result(self, source: Source) -> dict[str, Any]:
        """Return the result fields of a job, including values and artifacts of a program's units if needed."""
        if source not in self.kept_results:
            [job] = self._jobs.read_jobs(self._run, [source])
            self._keep(source, self._read_given(source, job), job.bytes)
        given: dict[str, Any] = self.kept_results[source]
        return given

    def _read_given(self, source: Source, job: JobOutput) -> dict[str, Any]:
        try:
            result = decoding.parse_json(job.result) if job.result else {}
            fields = result if isinstance(result, dict) else {"result": result}
            of_units = self._of_units(source, job) if source.with_units else {}
        except Unreadable:
            raise Unfilled(f"{source.key}: the stored data of job {source.job} is corrupt") from None
        return {**fields, "job_id": source.job, "state": job.state, **of_units}

    def _of_units(self, source: Source, job: JobOutput) -> dict[str, Any]:
        """Return the units' values and artifacts as lists. A job with one unit also has `value` and `artifact`."""
        running = registry.program_kind(self._document.actions[source.key.partition("/")[0]].type)
        values: list[Any] = [None] * job.units
        if running and job.accumulator:
            for unit in running.finished_units(decoding.parse_json(job.accumulator), 0, job.units):
                values[unit.unit] = unit.value
        artifacts = [each.decode() if each else None for each in job.artifacts]
        given: dict[str, Any] = {"values": values, "artifacts": artifacts}
        return {**given, "value": values[0], "artifact": artifacts[0]} if job.units == 1 else given

    def _keep(self, name: Source | str, value: Any, size: int) -> None:
        if self._bytes + size > MAX_KEPT:
            self.kept_results, self._bytes = {}, 0
        self.kept_results[name] = value
        self._bytes += size

    # -- items of a foreach --------------------------------------------------------------------------------------------

    def _part_of_items(self, reference: Reference, count: int) -> Any:
        key, path = reference.action, reference.path
        if path[0] != "results":
            return references.part({"state": "done", "count": count, "results": []}, reference)
        if len(path) == 1:
            return self._read_items(key, count)
        index = references.find_index(path[1], count)
        if index is None:
            return references.part({"results": [None] * count}, reference)
        return references.part(self._read_result(self._item(key, index)), reference, 2)

    def _item(self, key: str, index: int) -> Source:
        name = item_key(key, index)
        if name not in self._known.jobs:
            raise Unfilled(f"{name} has no result")
        return Source(name, self._known.jobs[name].id, self._is_program(key))

    def _read_items(self, key: str, count: int) -> list[Any]:
        if key not in self.kept_results:
            sources = [self._item(key, index) for index in range(count)]
            jobs = self._jobs.read_jobs(self._run, sources)
            given = [self._read_given(source, job) for source, job in zip(sources, jobs, strict=True)]
            self._keep(key, given, sum(job.bytes for job in jobs))
        given_by_all: list[Any] = self.kept_results[key]
        return given_by_all


def filled_parameters(
    action_type: str, parameters: Mapping[str, Any], results: Results, item: Any, index: int, *, is_item: bool
) -> dict[str, Any]:
    """Return the parameters with all references replaced. Raises Unfilled."""

    def look_up(reference: Reference) -> Any:
        if is_item and reference.action == ITEM:
            return references.part(item, reference)
        if is_item and reference.action == INDEX:
            return index
        return results.part(reference)

    filled = substitution.fill_parameters(action_type, parameters, references.limit_look_up(look_up, MAX_BODY))
    return _convert_arguments(filled) if registry.program_kind(action_type) else filled


def _convert_arguments(parameters: dict[str, Any]) -> dict[str, Any]:
    """Convert the values in a program's command and environment to text."""
    words = dict(parameters)
    if isinstance(command := parameters.get("command"), list):
        words["command"] = [
            word if program_arguments.is_literal(word) else references.as_word(word) for word in command
        ]
    if isinstance(env := parameters.get("env"), dict):
        words["env"] = {name: references.as_word(value) for name, value in env.items()}
    return words
