"""Titles of command jobs: the command line and the number of units."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from jobs.kinds.program_arguments import text_of

#: Characters that need no shell quoting in a title. Braces are included, because titles are never run by a shell.
_PLAIN = re.compile(r"[\w@%+=:,./{}~^-]+", re.ASCII)


def title(parameters: Mapping[str, Any]) -> str:
    """Return the command line as a user would type it, followed by the number of units if there are several."""
    command = parameters["command"]
    line = command if isinstance(command, str) else " ".join(_word(text_of(each)) for each in command)
    units = parameters.get("count") or len(parameters.get("items") or ())
    return f"{line} × {units}" if int(units) > 1 else line


def _word(word: str) -> str:
    return word if _PLAIN.fullmatch(word) else shlex.quote(word)
