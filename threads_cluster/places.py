"""Places as people type them: HOST:disk, or disk with the host in an option of its own."""

from __future__ import annotations


def on(host: str | None, place: str, *, store: bool = False) -> str:
    """Return a place with its host, where it has none and one is given; `store`: disk stays the cluster's store."""
    bare = host is None or ":" in place or (store and place == "disk")
    return place if bare else f"{host}:{place}"
