"""Reads of a replica's spec by the runner that starts it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.kinds import program_arguments
from jobs.models import Spec


def arguments(spec: Spec, filled: Mapping[str, str]) -> list[str]:
    """Return the words of the program; `filled` has port, address and python, each put in once wherever it stands."""
    values = {f"{{{name}}}": filled[name] for name in ("port", "address", "python")}
    return [program_arguments.filled(word, values) for word in spec["command"]]
