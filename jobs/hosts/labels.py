"""Syntax and encoding of host labels, such as `trusted`.

An operator sets the labels of a host. A tenant can require labels; then only hosts with all of them compute for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: Regular expression for labels. It excludes characters that separate labels in a list.
PATTERN = r"^[A-Za-z0-9._:/-]{1,64}$"
#: Maximum number of labels of a host. A tenant can require the same number of labels.
MAX_LABELS = 16


def join_labels(labels: Iterable[str]) -> str:
    """Join distinct labels into a sorted text, separated by commas."""
    return ",".join(sorted(set(labels)))


def as_argument(labels: Iterable[str] | None) -> str:
    """Encode labels as an argument of a Redis function. For None, the function uses the labels of the worker's
    record.
    """
    return "" if labels is None else f"={join_labels(labels)}"


def split_labels(text: str) -> tuple[str, ...]:
    """Split a text of labels that are separated by commas."""
    return tuple(label for label in text.split(",") if label)


def parse_required_labels(text: str) -> dict[str, frozenset[str]]:
    """Parse the labels that each tenant requires, as stored in Redis. Omit tenants without requirements."""
    rows = (row.partition("=") for row in text.split(",") if row)
    return {tenant: frozenset(labels.split("+")) for tenant, _, labels in rows if labels}


def required_labels_by_tenant(shares: Mapping[bytes, bytes]) -> dict[str, frozenset[str]]:
    """Return the labels that each tenant requires, from the Redis hash of tenant shares."""
    return parse_required_labels(shares.get(REQUIRED.encode(), b"").decode(errors="replace"))


#: Suffix of the fields with required labels in the Redis hash of tenant shares.
REQUIRED = "|requires"
