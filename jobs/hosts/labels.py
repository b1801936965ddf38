"""Syntax and encoding of host labels, such as `trusted`.

An operator sets the labels of a host. A tenant can require labels; then only hosts with all of them compute for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: Pattern of a label, which cannot contain a character that separates labels in a list.
PATTERN = r"^[A-Za-z0-9._:/-]{1,64}$"
#: Maximum number of labels of a host, and of labels that a tenant requires.
MAX_LABELS = 16


def join_labels(labels: Iterable[str]) -> str:
    """Join distinct labels with commas, sorted."""
    return ",".join(sorted(set(labels)))


def as_argument(labels: Iterable[str] | None) -> str:
    """Return labels as an argument of the Redis functions. None means that the function uses the labels in the worker's
    hash.
    """
    return "" if labels is None else f"={join_labels(labels)}"


def split_labels(text: str) -> tuple[str, ...]:
    """Split a text from `join_labels` into labels."""
    return tuple(label for label in text.split(",") if label)


def parse_required_labels(text: str) -> dict[str, frozenset[str]]:
    """Parse the required labels by tenant, as the Redis functions store them. Omit tenants without requirements."""
    rows = (row.partition("=") for row in text.split(",") if row)
    return {tenant: frozenset(labels.split("+")) for tenant, _, labels in rows if labels}


def required_labels_by_tenant(shares: Mapping[bytes, bytes]) -> dict[str, frozenset[str]]:
    """Return the required labels by tenant from the hash of tenants' shares."""
    return parse_required_labels(shares.get(REQUIRED.encode(), b"").decode(errors="replace"))


#: Field with the required labels in the hash of tenants' shares.
REQUIRED = "|requires"
