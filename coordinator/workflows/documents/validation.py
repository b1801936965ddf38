"""Validation of workflows: all complaints at once, each with its place. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from coordinator.workflows.documents import action_types, document, expansions, filling, references
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

#: Ids that stand for something else in references.
_RESERVED = (ITEM, INDEX)
#: Actions of a cycle that a message names.
_SHOWN_CYCLE = 20


@dataclass(frozen=True, kw_only=True)
class Valid:
    """Workflow without a complaint."""

    #: Its actions in an order in which each comes after those that it waits for; references are dependencies.
    #: Those about models and data stand as their steps.
    document: Document


def validate(source: bytes) -> Valid:
    """Return the workflow that a text describes. Raises InvalidWorkflow with what is wrong with it."""
    reading, actions = document.parse(source)
    checked = [(number, _Checker(reading, number, action).check()) for number, action in actions]
    by_id = {action.id: action for _, action in checked}
    edges = sum(len(action.dependencies) + len(action.after_any) for action in by_id.values())
    if edges > MAX_EDGES:
        reading.complain(
            yaml_texts.START, f"the actions have {edges} dependencies; at most {MAX_EDGES}", field="actions"
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
    """Complain where the lists of all foreach, as far as they are known, have too many items."""
    total = len(by_id)
    for action in by_id.values():
        total += len(action.foreach) if isinstance(action.foreach, list) else 0
        if total > MAX_ACTIONS:
            words = f"with it the workflow has {total} actions and items; at most {MAX_ACTIONS}"
            reading.complain(action.place, words, action=action.id, field="foreach")
            return


def _check_steps(reading: Reading, whole: Document, twice: list[Action]) -> None:
    """Complain about too many actions with their steps, and about those whose id a step of another one has."""
    if len(whole.actions) > MAX_ACTIONS:
        words = f"with the steps of those about models and data there are {len(whole.actions)}; at most {MAX_ACTIONS}"
        reading.complain(yaml_texts.START, words, field="actions")
    for action in twice:
        words = f"{action.id} is the id of a step of another action; choose another one"
        reading.complain(action.place, words, action=action.id, field="action_id")


class _Checker:
    """Checks one action by its type."""

    def __init__(self, reading: Reading, number: int, action: Action) -> None:
        self._reading = reading
        self._node = reading.node(number)
        self._action = action
        self._nested = isinstance(self._node.get("parameters"), dict)

    def check(self) -> Action:
        """Return the action with its parameters, and with its references among its dependencies."""
        action = self._action
        if action.id in _RESERVED:
            self._complain(("action_id",), f"{action.id} has a meaning of its own in references; choose another id")
        of = action_types.TYPES.get(action.type)
        if of is None:
            known = ", ".join(sorted(name for name, each in action_types.TYPES.items() if not each.inner))
            self._complain(("action_type",), f"there is no type {action.type}; there are {known}")
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
        """Return parameters and options; a name beside action_id that is both is a parameter."""
        beside = {name: value for name, value in self._node.items() if name not in STRUCTURE}
        parameters = dict(self._node["parameters"]) if self._nested else {}
        options: dict[str, Any] = {}
        for name, value in beside.items():
            if name in OPTIONS and (self._nested or name not in of.parameters):
                options[name] = value
            elif self._nested:
                self._complain((name,), f"goes under parameters, or is none of {', '.join(OPTIONS)}")
            else:
                parameters[name] = value
        for name in [name for name in parameters if name not in of.parameters][: action_types.MAX_PARAMETERS]:
            there = ", ".join(sorted(of.parameters)) or "none"
            self._complain(self._path(name), f"{of.name} has no such parameter; there are {there}")
        return {name: value for name, value in parameters.items() if name in of.parameters}, options

    def _path(self, *path: str | int) -> Path:
        return ("parameters", *path) if self._nested else path

    def _check_options(self, of: ActionType, options: dict[str, Any]) -> None:
        if options and not of.is_job:
            for name in options:
                self._complain((name,), f"is for jobs; {of.name} is none")
        elif options:
            for path, words in action_types.wrong_options(yaml_texts.plain(options)):
                self._complain(path, words)

    def _check_foreach(self, of: ActionType) -> None:
        foreach = self._action.foreach
        if foreach is None:
            return
        if not of.is_job:
            self._complain(("foreach",), f"is for jobs; {of.name} is none")
        if not isinstance(foreach, list) and not references.reference(foreach):
            self._complain(("foreach",), f"must be a list, or a reference to one; got {short(foreach)}")

    def _check_parameters(self, of: ActionType, parameters: dict[str, Any]) -> None:
        open_names = frozenset(str(path[0]) for path, _ in references.find_references(parameters))
        known = {name: yaml_texts.plain(value) for name, value in parameters.items() if name not in open_names}
        filled = filling.fill_parameters(of.name, known, lambda _: None)
        for path, words in of.check(filled, open_names):
            self._complain(self._path(*path), words)

    def _list_referred(self, parameters: dict[str, Any]) -> list[str]:
        """Return the actions that the action refers to."""
        of_items = [(self._path(*path), one) for path, one in references.find_references(parameters)]
        of_list = [(("foreach", *path), one) for path, one in references.find_references(self._action.foreach)]
        for path, one in of_items:
            if one.action in _RESERVED and self._action.foreach is None:
                self._complain(path, f"{one} is for actions with foreach")
        for path, one in of_list:
            if one.action in _RESERVED:
                self._complain(path, f"{one} is for parameters")
        return [one.action for _, one in (*of_items, *of_list) if one.action not in _RESERVED]

    def _complain(self, path: Path, words: str) -> None:
        place = yaml_texts.find_position(self._node, path, self._node.at)
        field = short_name(".".join(map(str, path)))
        self._reading.complain(place, words, action=self._action.id, field=field)


def _check_targets(reading: Reading, number: int, action: Action, by_id: dict[str, Action]) -> None:
    """Complain about actions that are waited for or referred to, and that there are not."""
    node = reading.node(number)
    for field in ("dependencies", "after_any"):
        given = node.get(field)
        names: list[Any] = given if isinstance(given, list) else []
        for at, name in enumerate(names):
            if isinstance(name, str) and (name not in by_id or name == action.id):
                words = "an action cannot wait for itself" if name == action.id else f"there is no action {short(name)}"
                place = yaml_texts.find_position(node, (field, at), node.at)
                reading.complain(place, words, action=action.id, field=field)
    if "$" in str(node):
        _check_references(reading, number, action, by_id)


def _check_references(reading: Reading, number: int, action: Action, by_id: dict[str, Action]) -> None:
    node = reading.node(number)
    given = {name: value for name, value in node.items() if name not in ("action_id", "action_type")}
    for path, one in references.find_references(given):
        if one.action not in _RESERVED and (words := _wrong_reference(one, action, by_id)):
            _complain(reading, number, action, path, words)
    for path, name, whole in references.within_texts(given):
        if name in by_id or name in _RESERVED:
            shown = short_name(whole)
            words = f"{shown} stands within a longer text, where nothing is filled in; let it be a value of its own"
            _complain(reading, number, action, path, words)


def _complain(reading: Reading, number: int, action: Action, path: Path, words: str) -> None:
    node = reading.node(number)
    field = short_name(".".join(map(str, path)))
    reading.complain(yaml_texts.find_position(node, path, node.at), words, action=action.id, field=field)


def _wrong_reference(one: Reference, action: Action, by_id: dict[str, Action]) -> str:
    if one.action == action.id:
        return f"{one}: an action cannot refer to itself"
    if one.action not in by_id:
        return f"{one}: there is no action {short(one.action)}"
    target = by_id[one.action]
    of = action_types.TYPES.get(target.type)
    if of is None:
        return ""
    gives = frozenset({"state", "count", "results"}) if target.foreach is not None else of.gives
    if gives is None or one.path[0] in gives:
        return ""
    there = ", ".join(sorted(gives))
    what = f"{one.action}, which has foreach," if target.foreach is not None else f"{target.type}"
    return f"{one}: {what} gives no {short_name(one.path[0])}; it gives {there}"


def _sort_topologically(reading: Reading, by_id: dict[str, Action]) -> list[str]:
    """Return the ids so that each comes after those that it waits for; complain about a cycle, naming it."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for action in by_id.values():
        known = (name for name in (*action.dependencies, *action.after_any) if name in by_id and name != action.id)
        sorter.add(action.id, *known)
    try:
        return list(sorter.static_order())
    except CycleError as error:
        names = error.args[1][::-1]
        more = f" -> ... ({len(names) - 1} actions)" if len(names) > _SHOWN_CYCLE else ""
        words = f"these wait for each other: {' -> '.join(names[:_SHOWN_CYCLE])}{more}"
        first = min(map(by_id.__getitem__, names), key=lambda action: action.place)
        reading.complain(first.place, words, action=first.id, field="dependencies")
        return []


def approvals(whole: Document) -> list[str]:
    """Return the actions that wait for a person."""
    return [action.id for action in whole.actions.values() if action.type == APPROVE]
