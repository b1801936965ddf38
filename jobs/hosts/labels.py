"""Labels of hosts, such as trusted: how they are spelled, written and read. Pure.

An operator gives them to a host; a tenant may require some, and only hosts that have all of them compute for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: One label; no sign of it separates labels where several are written.
PATTERN = r"^[A-Za-z0-9._:/-]{1,64}$"
#: Most labels of a host, and most that a tenant requires.
MOST = 16


def joined(labels: Iterable[str]) -> str:
    """Return labels as one text, sorted, each once, with commas between."""
    return ",".join(sorted(set(labels)))


def as_argument(labels: Iterable[str] | None) -> str:
    """Return labels as functions take them from a caller; None: those in the worker's row count."""
    return "" if labels is None else f"={joined(labels)}"


def parted(text: str) -> tuple[str, ...]:
    """Return the labels of a text that `joined` made."""
    return tuple(label for label in text.split(",") if label)


def required(text: str) -> dict[str, frozenset[str]]:
    """Return the labels that each tenant requires, of the tenants that require some, from what functions keep."""
    rows = (row.partition("=") for row in text.split(",") if row)
    return {tenant: frozenset(labels.split("+")) for tenant, _, labels in rows if labels}


def required_in(shares: Mapping[bytes, bytes]) -> dict[str, frozenset[str]]:
    """Return the same from the hash of the tenants' shares."""
    return required(shares.get(REQUIRED.encode(), b"").decode(errors="replace"))


#: Field of that hash.
REQUIRED = "|requires"
