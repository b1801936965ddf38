"""Names of jobs of programs for people: the command line, and how often. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from jobs.kinds.program_arguments import text_of

#: Words that stand as they are, with the braces of {unit} and {item}, which no shell of ours reads.
_PLAIN = re.compile(r"[\w@%+=:,./{}~^-]+", re.ASCII)


def title(parameters: Mapping[str, Any]) -> str:
    """Return the command line as somebody types it, with the number of units where there are several."""
    command = parameters["command"]
    line = command if isinstance(command, str) else " ".join(_word(text_of(each)) for each in command)
    units = parameters.get("count") or len(parameters.get("items") or ())
    return f"{line} × {units}" if int(units) > 1 else line


def _word(word: str) -> str:
    return word if _PLAIN.fullmatch(word) else shlex.quote(word)
