"""Results of actions as references see them: what their jobs gave, what the cluster's own actions gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator import decoding
from coordinator.jobs.queries import JobQueries
from coordinator.workflows import references
from coordinator.workflows.document import Document
from coordinator.workflows.planning import Known, item_key
from coordinator.workflows.references import INDEX, ITEM, Reference, Unfilled
from jobs import errors
from jobs.kinds import registry

#: Units of a program whose values and artifacts one action may be given.
_MAX_UNITS = 10_000
_PAGE = 1000
#: Fields that are read of a program's units, by the field of a unit's row.
_OF_UNITS = {"value": "value", "values": "value", "artifact": "artifact", "artifacts": "artifact"}


class Results:
    """Results of one workflow's actions, each read once. Raises Unfilled for one that there is not."""

    def __init__(self, document: Document, known: Known, jobs: JobQueries) -> None:
        self._document = document
        self._known = known
        self._jobs = jobs
        self._read: dict[str, dict[str, Any]] = {}

    def part(self, reference: Reference) -> Any:
        """Return what a reference stands for."""
        return references.part(self._given(reference.action, reference.path), reference)

    def _given(self, key: str, path: tuple[str, ...]) -> dict[str, Any]:
        given = self._read.get(key)
        if given is None:
            given = self._read[key] = self._of(key, path)
        if (job := self._known.jobs.get(key)) and path and path[0] in _OF_UNITS and path[0] not in given:
            given |= self._units(key, job.id, path[0])
        return given

    def _of(self, key: str, path: tuple[str, ...]) -> dict[str, Any]:
        if job := self._known.jobs.get(key):
            return self._job(key, job.id)
        record = self._known.records.get(key)
        if record is None:
            raise Unfilled(f"{key} has given nothing")
        if record.state != "expanded":
            return {"state": record.state, **(record.result or {})}
        results = [self._item(item_key(key, index)) for index in range(len(record.items))]
        return {"state": "done", "count": len(results), "results": results}

    def _item(self, key: str) -> dict[str, Any]:
        """Return what one item of a foreach gave; of a program of one unit its value and its artifact, too."""
        given = self._given(key, ())
        if registry.running(self._document.actions[key.partition("/")[0]].type):
            self._given(key, ("values",))
            self._given(key, ("artifacts",))
        return given

    def _job(self, key: str, job_id: str) -> dict[str, Any]:
        try:
            _, state, stored = self._jobs.result(job_id)
        except errors.ClusterError as error:
            raise Unfilled(f"{key}: {error.detail}") from None
        result = decoding.parsed(stored) if stored else {}
        return {**(result if isinstance(result, dict) else {"result": result}), "job_id": job_id, "state": state}

    def _units(self, key: str, job_id: str, name: str) -> Mapping[str, Any]:
        """Return a field of a program's units in their order; in the singular, that of its only unit."""
        if registry.running(self._document.actions[key.partition("/")[0]].type) is None:
            return {}
        units: list[Any] = []
        try:
            page = self._jobs.units_page(job_id, 0, _PAGE, None)
            if page["total"] > _MAX_UNITS:
                raise Unfilled(f"{key} has {page['total']} units; references reach those of at most {_MAX_UNITS}")
            while page["units"]:
                units += [unit[_OF_UNITS[name]] for unit in page["units"]]  # type: ignore[literal-required]
                page = self._jobs.units_page(job_id, len(units), _PAGE, None)
        except errors.ClusterError as error:
            raise Unfilled(f"{key}: {error.detail}") from None
        if name.endswith("s"):
            return {name: units, **({name[:-1]: units[0]} if len(units) == 1 else {})}
        if len(units) != 1:
            raise Unfilled(f"{key} has {len(units)} units; refer to {name}s, one for each")
        return {name: units[0]}


def body(
    action_type: str, parameters: Mapping[str, Any], results: Results, item: Any, index: int, *, is_item: bool
) -> dict[str, Any]:
    """Return the parameters with all references filled in. Raises Unfilled."""

    def look_up(reference: Reference) -> Any:
        if is_item and reference.action == ITEM:
            return references.part(item, reference)
        if is_item and reference.action == INDEX:
            return index
        return results.part(reference)

    filled: dict[str, Any] = references.filled(dict(parameters), look_up)
    return _with_words(filled) if registry.running(action_type) else filled


def _with_words(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a program with texts for what was filled into its command and environment."""
    words = dict(parameters)
    if isinstance(command := parameters.get("command"), list):
        words["command"] = [references.as_word(word) for word in command]
    if isinstance(env := parameters.get("env"), dict):
        words["env"] = {name: references.as_word(value) for name, value in env.items()}
    return words
