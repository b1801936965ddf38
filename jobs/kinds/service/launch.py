"""Builds the command line of a service's replica from the spec of its job, without I/O."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.kinds import program_arguments
from jobs.models import Spec


def arguments(spec: Spec, filled: Mapping[str, str]) -> list[str]:
    """Return the arguments of a replica's program, with {port}, {address} and {python} replaced once.

    `filled` contains the values of `port`, `address` and `python`.
    """
    values = {f"{{{name}}}": filled[name] for name in ("port", "address", "python")}
    return [program_arguments.fill(word, values) for word in spec["command"]]
