"""All partial results of a job, which a worker reads together before it merges them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GatheredPartials:
    """Partial results of a job, read in one transaction: the merged result and results that wait to be merged."""

    accumulator: bytes | None
    parts: tuple[bytes, ...]
    #: Number of units that the partial results cover.
    done: int
    #: The job's specification as JSON, or None if the job does not exist.
    spec: bytes | None

    @property
    def digest(self) -> str:
        """Return the digest of all partial results. The Redis functions compute the same digest."""
        return sha1("".join(sha1(text) for text in (self.accumulator or b"", *self.parts)).encode())


def sha1(text: bytes) -> str:
    """Return the SHA-1 digest in hex."""
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()
