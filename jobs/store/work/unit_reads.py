"""Reads of the units of a program: their states, and the records of failures and output files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from jobs.store import keys
from jobs.store.server.connection import ResponseError, wrong_type
from jobs.store.server.functions import Part

#: Maximum number of unmerged partial results that are read. Far fewer wait to be merged.
_PARTS = 10_000


@dataclass(frozen=True)
class UnitMark:
    """Values that change whenever the state of a job's units changes. Equal values mean equal states."""

    #: Values that users can change, such as the job's state.
    decided: tuple[bytes | int | None, ...]
    #: Values that change without user actions, such as the number of leases.
    moves: tuple[bytes | int | None, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Range of unfinished units, from lo to hi-1."""

    lo: int
    hi: int
    #: Number of failed attempts of the first unit.
    errors: int = 0
    #: Name of the lane that has leased the range, or empty.
    lane: str = ""
    granted: int = 0


@dataclass(frozen=True, kw_only=True)
class StoredUnits:
    """State of all units of a job, read in one transaction."""

    kind: str
    state: str
    total: int
    #: First unit that was never leased.
    cursor: int
    accumulator: bytes | None
    parts: Sequence[bytes]
    free: Sequence[Piece]
    retry: Sequence[Piece]
    dead: Sequence[Piece]
    leases: Sequence[Piece]


class UnitReads(Part):
    """Reads the units of programs from Redis."""

    def mark(self, job_id: str) -> UnitMark | None:
        """Return a value that changes whenever the states of a job's units change. Return None if the job does not
        exist.

        Raises like `units`.
        """
        with _readable(job_id):
            head, *sizes, dead = self._functions.read(
                ("HMGET", keys.job(job_id), "kind", "state", "total", "cursor", "done", "leases"),
                ("STRLEN", keys.job_accumulator(job_id)),
                ("LLEN", keys.job_parts(job_id)),
                ("LLEN", keys.job_free(job_id)),
                ("ZCARD", keys.job_retry(job_id)),
                ("HLEN", keys.job_lease(job_id)),
                ("LLEN", keys.job_dead(job_id)),
            )
        kind, state, total, *counts = head
        return UnitMark((kind, state, total, dead), (*counts, *sizes)) if kind is not None else None

    def units(self, job_id: str) -> StoredUnits | None:
        """Return the state of a job's units, or None if the job does not exist.

        Raises an error in Unreadable if the job is broken.
        """
        with _readable(job_id):
            return self._units(job_id)

    def _units(self, job_id: str) -> StoredUnits | None:
        head, accumulator, parts, free, retry, dead, leases = self._functions.read(
            ("HMGET", keys.job(job_id), "kind", "state", "total", "cursor"),
            ("GET", keys.job_accumulator(job_id)),
            ("LRANGE", keys.job_parts(job_id), "0", str(_PARTS - 1)),
            ("LRANGE", keys.job_free(job_id), "0", "-1"),
            ("ZRANGE", keys.job_retry(job_id), "0", "-1"),
            ("LRANGE", keys.job_dead(job_id), "0", "-1"),
            ("HVALS", keys.job_lease(job_id)),
        )
        if head[0] is None:
            return None
        kind, state, total, cursor = (value.decode() for value in head)
        return StoredUnits(
            kind=kind,
            state=state,
            total=int(total),
            cursor=int(cursor),
            accumulator=accumulator,
            parts=parts,
            free=_pieces(free),
            retry=_pieces(retry),
            dead=_pieces(dead),
            leases=[_lease(text) for text in leases],
        )

    def failures(self, job_id: str, units: Sequence[int]) -> Mapping[int, bytes]:
        """Return the JSON records of the last failed attempts. Units without a record are omitted."""
        return self._of_units(keys.job_failures(job_id), units)

    def files(self, job_id: str, units: Sequence[int]) -> Mapping[int, bytes]:
        """Return the artifacts with the log and output files of units. Units without an artifact are omitted."""
        return self._of_units(keys.job_files(job_id), units)

    def dead_errors(self, job_id: str, units: Sequence[int]) -> Mapping[int, bytes]:
        """Return the reasons of permanent failures. Units that have not failed permanently are omitted."""
        return self._of_units(keys.job(job_id), units, "dead|")

    def _of_units(self, key: str, units: Sequence[int], prefix: str = "") -> Mapping[int, bytes]:
        stored = self._client.hmget(key, [f"{prefix}{unit}" for unit in units]) if units else []
        return {unit: value for unit, value in zip(units, stored, strict=True) if value is not None}


@contextmanager
def _readable(job_id: str) -> Iterator[None]:
    try:
        yield
    except ResponseError as error:
        if not wrong_type(error):
            raise
        raise ValueError(f"Redis key of job {job_id} has the wrong type") from error


def _pieces(texts: Sequence[bytes]) -> list[Piece]:
    rows = ([int(number) for number in text.split(b":")] for text in texts)
    return [Piece(lo=lo, hi=hi, errors=errors) for lo, hi, _, errors in rows]


def _lease(text: bytes) -> Piece:
    """Parse a lease from the form lo:hi:upto:expiries:errors:granted:lane. A field `billed` can precede the lane."""
    lo, hi, _, _, errors, granted, lane = text.decode().split(":", 6)
    billed, _, rest = lane.partition(":")
    return Piece(
        lo=int(lo), hi=int(hi), errors=int(errors), granted=int(granted), lane=rest if billed.isdigit() else lane
    )
