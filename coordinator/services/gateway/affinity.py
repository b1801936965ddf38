"""Requests that begin alike, brought to one replica: engines keep what they computed of a prompt's beginning. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engines import calls

#: Bytes of a prompt by which a replica is chosen.
MOST_BYTES = 2048
#: Times the mean of all replicas that one of them gets for the sake of its prompts.
BOUND = 1.25
_DIGEST = 8


def prefix(tenant: str, path: str, body: Mapping[str, Any]) -> bytes:
    """Return what requests have in common whose prompts begin alike; empty where there is nothing to keep."""
    said = _read_prompt(path, body)
    if not said:
        return b""
    text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    beginning = text[:MOST_BYTES].encode(errors="replace")[:MOST_BYTES]
    return hashlib.blake2b(tenant.encode() + b"\0" + beginning, digest_size=16).digest()


def _read_prompt(path: str, body: Mapping[str, Any]) -> Any:
    """Return the beginning of the prompt in a request's body; empty for a call without a prompt."""
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
    """Yield the messages of a conversation through the first of its user: later turns have the same."""
    for message in messages if isinstance(messages, list) else ():
        known = message if isinstance(message, dict) else {}
        text = known.get("content")
        yield {**known, "content": text[:MOST_BYTES]} if isinstance(text, str) else message
        if known.get("role", "user") == "user":
            return


def chosen(prefix: bytes, loads: Sequence[tuple[str, int]]) -> str | None:
    """Return the replica for a prefix among those there are, each with its requests; None where it has its part.

    By rendezvous hashing: where a replica goes, the prefixes of the others stay where they are.
    """
    name, load = max(loads, key=lambda one: _weight(prefix, one[0]))
    total = sum(each for _, each in loads) + 1
    return name if load + 1 <= max(1.0, BOUND * total / len(loads)) else None


def _weight(prefix: bytes, name: str) -> bytes:
    return hashlib.blake2b(name.encode(), key=prefix, digest_size=_DIGEST).digest()
