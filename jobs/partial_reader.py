"""All partials of a job, read together before the worker merges them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GatheredPartials:
    """A job's accumulator and its other partials, read in one transaction."""

    accumulator: bytes | None
    parts: tuple[bytes, ...]
    #: Number of units that the partials cover.
    done: int
    #: Frozen spec as JSON, or None if the job does not exist.
    spec: bytes | None

    @property
    def digest(self) -> str:
        """Return the SHA-1 of the partials' SHA-1s, as the Redis functions compute it."""
        return sha1("".join(sha1(text) for text in (self.accumulator or b"", *self.parts)).encode())


def sha1(text: bytes) -> str:
    """Return the SHA-1 digest that the Redis functions also compute."""
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()
