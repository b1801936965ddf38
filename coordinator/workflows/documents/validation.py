"""Validate a workflow text and report all errors at once, each with its line and column. Functions here are pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from coordinator.workflows.documents import action_types, document, expansions, references, substitution
from coordinator.workflows.documents.action_types import APPROVE, ActionType
from coordinator.workflows.documents.document import (
    MAX_ACTIONS,
    MAX_EDGES,
    OPTIONS,
    STRUCTURE,
    Action,
    Document,
    InvalidWorkflow,
    Reading,
)
from coordinator.workflows.documents.references import INDEX, ITEM, Path, Reference
from threads_protocol import yaml_texts
from threads_protocol.numbers import short
from threads_protocol.yaml_texts import short_name

#: Reserved names of references, which cannot be action IDs.
_RESERVED = (ITEM, INDEX)
#: Maximum number of actions of a cycle that an error message names.
_SHOWN_CYCLE = 20


@dataclass(frozen=True, kw_only=True)
class Valid:
    """Result of a successful validation: a workflow without errors."""

    #: Actions in topological order. References are dependencies, and model and data actions are expanded into steps.
    document: Document


def validate(source: bytes) -> Valid:
    """Return the workflow that a text describes. Raises InvalidWorkflow with all errors."""
    reading, actions = document.parse(source)
    checked = [(number, _Checker(reading, number, action).check()) for number, action in actions]
    by_id = {action.id: action for _, action in checked}
    edges = sum(len(action.dependencies) + len(action.after_any) for action in by_id.values())
    if edges > MAX_EDGES:
        reading.complain(
            yaml_texts.START, f"the actions have {edges} dependencies; the maximum is {MAX_EDGES}", field="actions"
        )
        raise InvalidWorkflow(reading.complaints)
    for number, action in checked:
        _check_targets(reading, number, action, by_id)
    _check_items(reading, by_id)
    order = _sort_topologically(reading, by_id)
    if reading.complaints.total:
        raise InvalidWorkflow(reading.complaints)
    whole, twice = expansions.expand(document.document(reading, [(0, by_id[name]) for name in order]))
    _check_steps(reading, whole, [by_id[name] for name in twice if name in by_id])
    if reading.complaints.total:
        raise InvalidWorkflow(reading.complaints)
    return Valid(document=whole)


def _check_items(reading: Reading, by_id: dict[str, Action]) -> None:
    """Add an error if the literal foreach lists have too many items in total."""
    total = len(by_id)
    for action in by_id.values():
        total += len(action.foreach) if isinstance(action.foreach, list) else 0
        if total > MAX_ACTIONS:
            words = f"the workflow has {total} or more actions and items; the maximum is {MAX_ACTIONS}"
            reading.complain(action.place, words, action=action.id, field="foreach")
            return


def _check_steps(reading: Reading, whole: Document, twice: list[Action]) -> None:
    """Add errors if there are too many actions after expansion, or if an action and a step have the same ID."""
    if len(whole.actions) > MAX_ACTIONS:
        words = f"with the steps of model and data actions there are {len(whole.actions)}; the maximum is {MAX_ACTIONS}"
        reading.complain(yaml_texts.START, words, field="actions")
    for action in twice:
        words = f"{action.id} is already the ID of a step of another action; choose another ID"
        reading.complain(action.place, words, action=action.id, field="action_id")


class _Checker:
    """Checks one action against the definition of its type."""

    def __init__(self, reading: Reading, number: int, action: Action) -> None:
        self._reading = reading
        self._node = reading.node(number)
        self._action = action
        self._nested = isinstance(self._node.get("parameters"), dict)

    def check(self) -> Action:
        """Return the action with its parameters, and with the actions that it refers to as dependencies."""
        action = self._action
        if action.id in _RESERVED:
            self._complain(("action_id",), f"{action.id} is reserved for references; choose another ID")
        of = action_types.TYPES.get(action.type)
        if of is None:
            known = ", ".join(sorted(name for name, each in action_types.TYPES.items() if not each.inner))
            self._complain(("action_type",), f"action type {action.type} does not exist; the types are {known}")
            return action
        parameters, options = self._divide(of)
        self._check_options(of, options)
        self._check_foreach(of)
        self._check_parameters(of, parameters)
        referred = self._list_referred(parameters)
        before = tuple(dict.fromkeys((*action.dependencies, *referred)))
        return replace(
            action,
            parameters=yaml_texts.plain(parameters),
            options=yaml_texts.plain(options),
            dependencies=before,
            after_any=tuple(name for name in action.after_any if name not in before),
            late=bool(referred) or action.foreach is not None,
        )

    def _divide(self, of: ActionType) -> tuple[dict[str, Any], dict[str, Any]]:
        """Split an action's fields into parameters and job options. A top-level name that is both is a parameter."""
        beside = {name: value for name, value in self._node.items() if name not in STRUCTURE}
        parameters = dict(self._node["parameters"]) if self._nested else {}
        options: dict[str, Any] = {}
        for name, value in beside.items():
            if name in OPTIONS and (self._nested or name not in of.parameters):
                options[name] = value
            elif self._nested:
                self._complain((name,), f"must be under parameters; only {', '.join(OPTIONS)} can be outside")
            else:
                parameters[name] = value
        for name in [name for name in parameters if name not in of.parameters][: action_types.MAX_PARAMETERS]:
            there = ", ".join(sorted(of.parameters)) or "none"
            self._complain(self._path(name), f"is not a parameter of {of.name}; its parameters are {there}")
        return {name: value for name, value in parameters.items() if name in of.parameters}, options

    def _path(self, *path: str | int) -> Path:
        return ("parameters", *path) if self._nested else path

    def _check_options(self, of: ActionType, options: dict[str, Any]) -> None:
        if options and not of.is_job:
            for name in options:
                self._complain((name,), f"applies to jobs only; {of.name} is not a job")
        elif options:
            for path, words in action_types.find_invalid_options(yaml_texts.plain(options)):
                self._complain(path, words)

    def _check_foreach(self, of: ActionType) -> None:
        foreach = self._action.foreach
        if foreach is None:
            return
        if not of.is_job:
            self._complain(("foreach",), f"applies to jobs only; {of.name} is not a job")
        if not isinstance(foreach, list) and not references.reference(foreach):
            self._complain(("foreach",), f"must be a list, or a reference to one; got {short(foreach)}")

    def _check_parameters(self, of: ActionType, parameters: dict[str, Any]) -> None:
        open_names = frozenset(str(path[0]) for path, _ in references.find_references(parameters))
        known = {name: yaml_texts.plain(value) for name, value in parameters.items() if name not in open_names}
        filled = substitution.fill_parameters(of.name, known, lambda _: None)
        for path, words in of.check(filled, open_names):
            self._complain(self._path(*path), words)

    def _list_referred(self, parameters: dict[str, Any]) -> list[str]:
        """Return the IDs of the actions that this action refers to."""
        of_items = [(self._path(*path), one) for path, one in references.find_references(parameters)]
        of_list = [(("foreach", *path), one) for path, one in references.find_references(self._action.foreach)]
        for path, one in of_items:
            if one.action in _RESERVED and self._action.foreach is None:
                self._complain(path, f"{one} requires an action with foreach")
        for path, one in of_list:
            if one.action in _RESERVED:
                self._complain(path, f"{one} is allowed in parameters only")
        return [one.action for _, one in (*of_items, *of_list) if one.action not in _RESERVED]

    def _complain(self, path: Path, words: str) -> None:
        place = yaml_texts.find_position(self._node, path, self._node.at)
        field = short_name(".".join(map(str, path)))
        self._reading.complain(place, words, action=self._action.id, field=field)


def _check_targets(reading: Reading, number: int, action: Action, by_id: dict[str, Action]) -> None:
    """Add an error for each dependency or reference to an action that does not exist."""
    node = reading.node(number)
    for field in ("dependencies", "after_any"):
        given = node.get(field)
        names: list[Any] = given if isinstance(given, list) else []
        for at, name in enumerate(names):
            if isinstance(name, str) and (name not in by_id or name == action.id):
                words = (
                    "an action cannot wait for itself" if name == action.id else f"action {short(name)} does not exist"
                )
                place = yaml_texts.find_position(node, (field, at), node.at)
                reading.complain(place, words, action=action.id, field=field)
    if "$" in str(node):
        _check_references(reading, number, action, by_id)


def _check_references(reading: Reading, number: int, action: Action, by_id: dict[str, Action]) -> None:
    node = reading.node(number)
    given = {name: value for name, value in node.items() if name not in ("action_id", "action_type")}
    for path, one in references.find_references(given):
        if one.action not in _RESERVED and (words := _explain_invalid_reference(one, action, by_id)):
            _complain(reading, number, action, path, words)
    for path, name, whole in references.within_texts(given):
        if name in by_id or name in _RESERVED:
            shown = short_name(whole)
            words = f"{shown} is inside a longer text, where references are not replaced; make it the whole value"
            _complain(reading, number, action, path, words)


def _complain(reading: Reading, number: int, action: Action, path: Path, words: str) -> None:
    node = reading.node(number)
    field = short_name(".".join(map(str, path)))
    reading.complain(yaml_texts.find_position(node, path, node.at), words, action=action.id, field=field)


def _explain_invalid_reference(one: Reference, action: Action, by_id: dict[str, Action]) -> str:
    if one.action == action.id:
        return f"{one}: an action cannot refer to itself"
    if one.action not in by_id:
        return f"{one}: action {short(one.action)} does not exist"
    target = by_id[one.action]
    of = action_types.TYPES.get(target.type)
    if of is None:
        return ""
    gives = frozenset({"state", "count", "results"}) if target.foreach is not None else of.gives
    if gives is None or one.path[0] in gives:
        return ""
    there = ", ".join(sorted(gives))
    what = f"{one.action}, which has foreach," if target.foreach is not None else f"{target.type}"
    return f"{one}: {what} has no result field {short_name(one.path[0])}; its result fields are {there}"


def _sort_topologically(reading: Reading, by_id: dict[str, Action]) -> list[str]:
    """Return the IDs in topological order. If there is a cycle, add an error that names its actions."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for action in by_id.values():
        known = (name for name in (*action.dependencies, *action.after_any) if name in by_id and name != action.id)
        sorter.add(action.id, *known)
    try:
        return list(sorter.static_order())
    except CycleError as error:
        names = error.args[1][::-1]
        more = f" -> ... ({len(names) - 1} actions)" if len(names) > _SHOWN_CYCLE else ""
        words = f"these actions wait for each other: {' -> '.join(names[:_SHOWN_CYCLE])}{more}"
        first = min(map(by_id.__getitem__, names), key=lambda action: action.place)
        reading.complain(first.place, words, action=first.id, field="dependencies")
        return []


def approvals(whole: Document) -> list[str]:
    """Return the IDs of the actions that wait for a person's approval."""
    return [action.id for action in whole.actions.values() if action.type == APPROVE]
