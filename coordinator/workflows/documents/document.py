"""Parse a workflow text into its actions.

This module checks the shape only; `validation.py` checks the parameters of each action.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from coordinator import destinations
from jobs import errors
from threads_protocol import yaml_texts
from threads_protocol.yaml_texts import (
    START,
    Complaint,
    Complaints,
    Mapping,
    Position,
    Sequence,
    Unreadable,
    short_name,
)

#: Maximum total size in bytes of the workflow texts in memory.
#: Size in bytes above which workflow texts are validated one by one.
MAX_MEMORY, LARGE = 16 << 20, 64 << 10
#: Maximum number of actions in a workflow.
#: Maximum total number of the actions' dependencies.
MAX_ACTIONS, MAX_EDGES = 10_000, 100_000
#: Maximum length of a name and of a description in characters.
MAX_NAME, MAX_DESCRIPTION = 200, 10_000
#: Pattern of action IDs, which are part of job IDs.
ACTION_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")
_TYPE = re.compile(r"[A-Za-z0-9_-]{1,64}")

#: Action fields that every type has.
STRUCTURE = ("action_id", "action_type", "dependencies", "after_any", "foreach", "parameters")
#: Job fields that an action can set; names as in POST /api/submit.
OPTIONS = ("priority", "device", "gpu_preferred", "max_running", "timeout_seconds")
_FIELDS = ("name", "description", "notify", "actions")


@dataclass(frozen=True, kw_only=True)
class Action:
    """An action of a workflow document."""

    id: str
    type: str
    #: IDs of actions that must be done before this action starts.
    dependencies: tuple[str, ...] = ()
    #: IDs of actions that must have finished, with any result, before this action starts.
    after_any: tuple[str, ...] = ()
    #: List, or reference to a list, whose items the action processes, one run per item. None if the action runs once.
    foreach: Any = None
    parameters: dict[str, Any] = field(default_factory=dict)
    #: Job options that the document sets, by name (see OPTIONS).
    options: dict[str, Any] = field(default_factory=dict)
    #: Whether the parameters depend on results of other actions.
    late: bool = False
    place: Position = START


@dataclass(frozen=True, kw_only=True)
class Document:
    """A parsed workflow document."""

    name: str
    description: str = ""
    #: URL to notify when the workflow ends; empty for none.
    notify: str = ""
    #: Actions by ID. After validation, each action follows the actions that it waits for.
    actions: dict[str, Action] = field(default_factory=dict)


def pack(whole: Document) -> list[dict[str, Any]]:
    """Return the actions of a document as JSON values."""
    names = ("id", "type", "dependencies", "after_any", "foreach", "parameters", "options", "late")
    rows = ({name: getattr(action, name) for name in names} for action in whole.actions.values())
    return [{name: value for name, value in row.items() if value not in (None, (), {}, False)} for row in rows]


def unpack(name: str, description: str, rows: list[dict[str, Any]]) -> Document:
    """Rebuild a document from the values that `pack` returned."""
    actions = (
        Action(**{**row, **{name: tuple(row.get(name, ())) for name in ("dependencies", "after_any")}}) for row in rows
    )
    return Document(name=name, description=description, actions={action.id: action for action in actions})


class InvalidWorkflow(errors.InvalidRequest):
    """The workflow text is invalid."""

    def __init__(self, complaints: Complaints) -> None:
        self.complaints = complaints.first
        #: Number of errors that are not in `complaints`.
        self.more = complaints.more
        first = self.complaints[0]
        more = f" (and {complaints.total - 1} more)" if complaints.total > 1 else ""
        super().__init__(f"{format_complaint(first)}{more}", field=first.field or "body")
        self.extra = {"problems": [complaint_fields(one) for one in self.complaints], "more": self.more}


def complaint_fields(complaint: Complaint) -> dict[str, Any]:
    """Return an error of a workflow text as the API serializes it."""
    place = complaint.place
    return {
        "line": place.line,
        "column": place.column,
        "action": complaint.action,
        "field": complaint.field,
        "detail": complaint.text,
    }


def format_complaint(complaint: Complaint) -> str:
    """Format an error as one line: `LINE:COLUMN: ACTION: FIELD: MESSAGE`."""
    of = f"{complaint.action}: " if complaint.action else ""
    what = f"{complaint.field}: " if complaint.field else ""
    return f"{complaint.place.line}:{complaint.place.column}: {of}{what}{complaint.text}"


@dataclass
class Reading:
    """A workflow text during parsing: its nodes and the errors found so far."""

    root: Any
    complaints: Complaints

    def complain(self, place: Position, words: str, *, action: str = "", field: str = "") -> None:
        """Add an error."""
        self.complaints.add(Complaint(place=place, action=action, field=field, text=words))

    def node(self, number: int) -> Mapping:
        """Return the parsed node of an action by its index."""
        node: Mapping = self.root["actions"][number]
        return node


def parse(source: bytes) -> tuple[Reading, list[tuple[int, Action]]]:
    """Parse a workflow text; return its nodes with all errors, and each well-formed action with its index in the list.

    Raises InvalidWorkflow if the text is not YAML or not a mapping.
    """
    try:
        root, complaints = yaml_texts.parse(source)
    except Unreadable as error:
        raise InvalidWorkflow(Complaints([error.complaint])) from None
    if not isinstance(root, Mapping):
        what = "a workflow must be a mapping with name and actions"
        raise InvalidWorkflow(
            Complaints([Complaint(place=START, text=f"{what}; got {yaml_texts.describe_value(root)}")])
        )
    reading = Reading(root, complaints)
    _check_head(reading)
    return reading, list(_actions(reading))


def document(reading: Reading, actions: list[tuple[int, Action]]) -> Document:
    """Build the document from the parsed nodes and actions."""
    root = reading.root
    return Document(
        name=root["name"],
        description=root.get("description") or "",
        notify=root.get("notify") or "",
        actions={action.id: action for _, action in actions},
    )


def _check_head(reading: Reading) -> None:
    root = reading.root
    for key, place in root.keys_at.items():
        if key not in _FIELDS:
            reading.complain(place, f"is not a known field; the fields are {', '.join(_FIELDS)}", field=short_name(key))
    for key, most, needed in (
        ("name", MAX_NAME, True),
        ("description", MAX_DESCRIPTION, False),
    ):
        _check_text(reading, key, most, needed=needed)
    _check_receiver(reading)


def _check_receiver(reading: Reading) -> None:
    value, place = reading.root.get("notify"), reading.root.keys_at.get("notify", reading.root.at)
    if value is None:
        return
    try:
        destinations.normalize_url(value if isinstance(value, str) else "")
    except ValueError as error:
        reading.complain(place, str(error), field="notify")


def _check_text(reading: Reading, key: str, most: int, *, needed: bool) -> None:
    value, place = reading.root.get(key), reading.root.keys_at.get(key, reading.root.at)
    if value is None and not needed:
        return
    if not isinstance(value, str) or not 1 <= len(value) <= most or not (key == "description" or value.isprintable()):
        given = "" if value is None else f"; got {yaml_texts.describe_value(value)}"
        reading.complain(place, f"must be a text of 1..{most} characters{given}", field=key)


def _actions(reading: Reading) -> Iterator[tuple[int, Action]]:
    nodes, seen = reading.root.get("actions"), dict[str, Position]()
    if not isinstance(nodes, Sequence) or not 1 <= len(nodes) <= MAX_ACTIONS:
        got = f"{len(nodes)} actions" if isinstance(nodes, Sequence) else yaml_texts.describe_value(nodes)
        place = reading.root.keys_at.get("actions", reading.root.at)
        reading.complain(place, f"must be a list of 1..{MAX_ACTIONS} actions; got {got}", field="actions")
        return
    for number, node in enumerate(nodes):
        action = _action(reading, node, nodes.place(number))
        if action is None:
            continue
        if action.id in seen:
            where = f"line {seen[action.id].line}"
            reading.complain(
                action.place, f"another action in {where} has the same ID", action=action.id, field="action_id"
            )
            continue
        seen[action.id] = action.place
        yield number, action


def _action(reading: Reading, node: Any, place: Position) -> Action | None:
    """Return the action of a node, or None after adding an error if the node is malformed."""
    if not isinstance(node, Mapping):
        reading.complain(
            place, f"an action must be a mapping with action_id and action_type; got {yaml_texts.describe_value(node)}"
        )
        return None
    name, kind = node.get("action_id"), node.get("action_type")
    if not isinstance(name, str) or not ACTION_ID.fullmatch(name):
        where, got = node.keys_at.get("action_id", node.at), yaml_texts.describe_value(name)
        reading.complain(where, f"must be 1 to 32 letters, digits, - or _; got {got}", field="action_id")
        return None
    if not isinstance(kind, str) or not _TYPE.fullmatch(kind):
        where, got = node.keys_at.get("action_type", node.at), yaml_texts.describe_value(kind)
        reading.complain(where, f"must name a type of action; got {got}", action=name, field="action_type")
        return None
    given = node.get("parameters")
    if given is not None and not isinstance(given, Mapping):
        where = node.keys_at["parameters"]
        reading.complain(
            where, f"must be a mapping; got {yaml_texts.describe_value(given)}", action=name, field="parameters"
        )
    return Action(
        id=name,
        type=kind,
        foreach=yaml_texts.plain(node.get("foreach")),
        place=node.at,
        dependencies=_ids(reading, node, name, "dependencies"),
        after_any=_ids(reading, node, name, "after_any"),
    )


def _ids(reading: Reading, node: Mapping, name: str, field: str) -> tuple[str, ...]:
    ids = node.get(field)
    if ids is None:
        return ()
    if not isinstance(ids, Sequence) or not all(isinstance(one, str) for one in ids):
        where = node.keys_at[field]
        reading.complain(
            where, f"must be a list of action IDs; got {yaml_texts.describe_value(ids)}", action=name, field=field
        )
        return ()
    return tuple(dict.fromkeys(ids))
