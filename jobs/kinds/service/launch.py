"""Reads of a replica's spec by the runner that starts it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from jobs.models import Spec

_PLACES = re.compile(r"\{(?:port|address|python)\}")


def arguments(spec: Spec, filled: Mapping[str, str]) -> list[str]:
    """Return the words of the program; `filled` has port, address and python, each put in once wherever it stands."""
    return [_PLACES.sub(lambda place: filled[place[0][1:-1]], word) for word in spec["command"]]
