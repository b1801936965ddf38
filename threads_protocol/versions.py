"""Rule for the versions of coordinators, workers, runners and clients that work together. See docs/upgrades.md."""

from __future__ import annotations

import re

#: Largest difference of the minor versions.
MAX_DIFFERENCE = 1
_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})(?!\d)")


class NoVersion(ValueError):
    """The text does not start with a version such as 1.2."""


def parse(version: str) -> tuple[int, int]:
    """Return the major and the minor version. Raises NoVersion."""
    found = _VERSION.match(version)
    if not found:
        raise NoVersion(f"{version[:40]!r} is not a version such as 1.2.0")
    return int(found[1]), int(found[2])


def are_compatible(one: str, other: str) -> bool:
    """Return True if programs of these two versions work together. Raises NoVersion."""
    (major, minor), (other_major, other_minor) = parse(one), parse(other)
    return major == other_major and abs(minor - other_minor) <= MAX_DIFFERENCE


def describe_accepted(version: str) -> str:
    """Return the versions that work together with `version`, as text such as `1.1 to 1.3`. Raises NoVersion."""
    major, minor = parse(version)
    return f"{major}.{max(0, minor - MAX_DIFFERENCE)} to {major}.{minor + MAX_DIFFERENCE}"
