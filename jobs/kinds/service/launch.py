"""Builds the command line of a replica from its spec. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.kinds import program_arguments
from jobs.models import Spec


def arguments(spec: Spec, filled: Mapping[str, str]) -> list[str]:
    """Return the arguments of the replica's program. `filled` contains `port`, `address` and `python`; each is inserted
    once.
    """
    values = {f"{{{name}}}": filled[name] for name in ("port", "address", "python")}
    return [program_arguments.fill(word, values) for word in spec["command"]]
