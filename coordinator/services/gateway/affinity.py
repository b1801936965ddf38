"""Route requests with equal prompt prefixes to the same replica, because engines cache the prefix. Pure functions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engines import calls

#: Length in bytes of the prompt prefix that determines the replica.
MOST_BYTES = 2048
#: Maximum load of one replica by prefix routing, relative to the mean load of all replicas.
BOUND = 1.25
_DIGEST = 8


def prefix(tenant: str, path: str, body: Mapping[str, Any]) -> bytes:
    """Return a digest of the prompt's first bytes, or an empty result for a call without a prompt."""
    said = _read_prompt(path, body)
    if not said:
        return b""
    text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    beginning = text[:MOST_BYTES].encode(errors="replace")[:MOST_BYTES]
    return hashlib.blake2b(tenant.encode() + b"\0" + beginning, digest_size=16).digest()


def _read_prompt(path: str, body: Mapping[str, Any]) -> Any:
    """Return the first part of the prompt in a request's body, or an empty value for a call without a prompt."""
    if path == calls.COMPLETIONS:
        return _beginning(body.get("prompt"))
    if path == calls.RESPONSES:
        asked = body.get("input")
        first = [asked[:MOST_BYTES]] if isinstance(asked, str) and asked else [*_first_messages(asked)]
        return first and [_beginning(body.get("instructions")), *first]
    if path in (calls.CHAT, calls.MESSAGES):
        first = [*_first_messages(body.get("messages"))]
        return [_beginning(body["system"]), *first] if first and "system" in body else first
    return None


def _beginning(prompt: Any) -> Any:
    return prompt[:MOST_BYTES] if isinstance(prompt, str | list) else prompt


def _first_messages(messages: Any) -> Iterator[Any]:
    """Yield the messages of a conversation through the first user message, which later turns repeat."""
    for message in messages if isinstance(messages, list) else ():
        known = message if isinstance(message, dict) else {}
        text = known.get("content")
        yield {**known, "content": text[:MOST_BYTES]} if isinstance(text, str) else message
        if known.get("role", "user") == "user":
            return


def chosen(prefix: bytes, loads: Sequence[tuple[str, int]]) -> str | None:
    """Return the preferred replica for a prompt prefix, or None if that replica is overloaded.

    `loads` lists each replica with its number of requests. Uses rendezvous hashing: when a replica is removed, prefixes
    of other replicas do not move.
    """
    name, load = max(loads, key=lambda one: _weight(prefix, one[0]))
    total = sum(each for _, each in loads) + 1
    return name if load + 1 <= max(1.0, BOUND * total / len(loads)) else None


def _weight(prefix: bytes, name: str) -> bytes:
    return hashlib.blake2b(name.encode(), key=prefix, digest_size=_DIGEST).digest()
