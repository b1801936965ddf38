"""Locations as users type them, such as HOST:disk. The host can also be in a separate option."""

from __future__ import annotations


def on(host: str | None, place: str, *, store: bool = False) -> str:
    """Add a host to a location without a host. If `store` is true, `disk` remains the cluster's store."""
    bare = host is None or ":" in place or (store and place == "disk")
    return place if bare else f"{host}:{place}"
