"""Replace references in action parameters by their values.

A program replaces placeholders such as {unit} in its arguments. Workflow values may contain the same characters, so
they are inserted into commands as literals, which the program does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from coordinator.workflows.documents import references
from coordinator.workflows.documents.references import Reference
from jobs.kinds import program_arguments, programs, registry
from jobs.kinds.program_arguments import LITERAL, literal

LookUp: TypeAlias = Callable[[Reference], Any]


def fill_parameters(action_type: str, parameters: Mapping[str, Any], look_up: LookUp) -> dict[str, Any]:
    """Return the parameters with each reference replaced by its value from `look_up`, which can raise Unfilled."""
    is_program = action_type in registry.names() and registry.program_kind(action_type) is not None
    return {
        name: _command(value, look_up)
        if is_program and name == "command"
        else references.fill_references(value, look_up)
        for name, value in parameters.items()
    }


def _command(value: Any, look_up: LookUp) -> Any:
    if isinstance(value, list):
        return [_argument(each, look_up) for each in value]
    whole = references.fill_references(value, look_up)
    if isinstance(whole, str) and references.is_changed(value):
        return whole if literal(whole) == whole else [*programs.SHELL, literal(whole)]
    if isinstance(whole, list) and references.is_changed(value):
        return [literal(references.as_word(each)) for each in whole]
    return whole


def _argument(value: Any, look_up: LookUp) -> Any:
    """Return an argument with its references replaced, as a literal. An argument without references stays unchanged."""
    if not references.is_changed(value):
        return value
    if program_arguments.is_literal(value):
        return {LITERAL: references.as_word(references.fill_references(value[LITERAL], look_up))}
    return literal(references.as_word(references.fill_references(value, look_up)))
