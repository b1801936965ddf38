"""Partials of a job as they are read together, before they are folded."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """A job's accumulator and the parts beside it, read at one moment."""

    accumulator: bytes | None
    parts: tuple[bytes, ...]
    #: Units that they cover.
    done: int
    #: The frozen spec as JSON; None when there is no such job.
    spec: bytes | None

    @property
    def digest(self) -> str:
        """SHA-1 over the SHA-1s of accumulator and parts, as the functions compute it."""
        return sha1("".join(sha1(text) for text in (self.accumulator or b"", *self.parts)).encode())


def sha1(text: bytes) -> str:
    """Return the digest that Redis' functions compute, too."""
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()
