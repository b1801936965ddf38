"""Units of a program: the state, attempts and result of each unit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any, TypeAlias, cast

from coordinator import decoding
from jobs import errors
from jobs.kinds import registry
from jobs.kinds.contract import FinishedUnit
from jobs.kinds.program_kind import ProgramKind
from jobs.store.work.unit_reads import Piece, StoredUnits, UnitReads
from threads_protocol.answers import jobs as answers
from threads_protocol.states import JobState

#: Unit states in the order of their codes.
STATES = ("waiting", "running", "done", "retrying", "dead")
WAITING, RUNNING, DONE, RETRYING, DEAD = range(len(STATES))
#: Record of a unit's last failed attempt, as its runner wrote it.
Failure: TypeAlias = Mapping[str, Any]


class Units:
    """Units of one job at one point in time."""

    def __init__(self, stored: StoredUnits, programs: ProgramKind) -> None:
        self.total = stored.total
        partials = [decoding.parse_json(text) for text in (stored.accumulator, *stored.parts) if text]
        self._finished = {
            unit.unit: unit for each in partials for unit in programs.finished_units(each, 0, stored.total)
        }
        self._pieces = {piece.lo: piece for piece in (*stored.retry, *stored.dead, *stored.free)}
        self._leases = {piece.lo: piece for piece in stored.leases}
        done = [one for each in partials for one in programs.finished_ranges(each)]
        self.states = self._paint_states(stored, done)

    @staticmethod
    def _paint_states(stored: StoredUnits, done: list[tuple[int, int]]) -> bytearray:
        """Return the state of each unit as one byte."""
        if stored.state == JobState.DONE.value:
            done = [(0, stored.total)]
        states = bytearray(stored.total)
        layers: list[tuple[int, Iterable[tuple[int, int]]]] = [
            (RETRYING, [(piece.lo, piece.lo + 1) for piece in stored.free if piece.errors]),
            (RETRYING, _ranges(stored.retry)),
            (DEAD, _ranges(stored.dead)),
            (RUNNING, _ranges(stored.leases)),
            (DONE, done),
        ]
        for state, ranges in layers:
            for lo, hi in ranges:
                first, until = max(0, lo), min(hi, stored.total)
                states[first:until] = bytes([state]) * max(0, until - first)
        return states

    def runs(self) -> answers.UnitStates:
        """Return the states as runs [lo, hi, state] of equal units."""
        runs: list[tuple[int, int, str]] = []
        lo = 0
        for state, group in groupby(self.states):
            hi = lo + sum(1 for _ in group)
            runs.append((lo, hi, STATES[state]))
            lo = hi
        return {"total": self.total, "runs": runs}

    def numbers(self, first: int, most: int, state: str | None) -> list[int]:
        """Return up to `most` unit numbers from `first` on, in one state or in all states."""
        if state is None:
            return list(range(first, min(first + most, self.total)))
        return list(islice(self._of_state(STATES.index(state), first), most))

    def _of_state(self, code: int, first: int) -> Iterator[int]:
        unit = self.states.find(code, first)
        while unit >= 0:
            yield unit
            unit = self.states.find(code, unit + 1)

    def page(self, reads: UnitReads, job_id: str, units: Sequence[int], now: float) -> answers.Units:
        """Return the responses about these units. `now` is Redis' time in seconds."""
        failures = {unit: _failure(text) for unit, text in reads.failures(job_id, units).items()}
        given_up = reads.dead_errors(job_id, [unit for unit in units if self.states[unit] == DEAD])
        files = reads.files(job_id, units)
        rows = [
            self._describe_unit(unit, failures.get(unit, {}), given_up.get(unit), now)
            | {"artifact": files[unit].decode() if unit in files else None}
            for unit in units
        ]
        counts = {name: self.states.count(code) for code, name in enumerate(STATES)}
        return {"total": self.total, "counts": counts, "units": cast(list[answers.Unit], rows)}

    def _describe_unit(self, unit: int, failure: Failure, given_up: bytes | None, now: float) -> dict[str, Any]:
        state = self.states[unit]
        row: dict[str, Any] = {
            "unit": unit,
            "state": STATES[state],
            "exit": None,
            "reason": "",
            "seconds": None,
            "attempts": 0,
            "worker": None,
            "value": None,
            "error": None,
        }
        if state == DONE:
            done = self._finished.get(unit)
            return row | _done_fields(done) if done else row | {"exit": 0}
        piece = self._pieces.get(unit)
        row |= _failure_fields(failure, piece)
        if given_up and not failure:
            row |= {"error": given_up.decode(errors="replace"), "reason": "lost"}
        if state == RUNNING:
            row |= self._describe_running(unit, row["attempts"], now)
        return row

    def _describe_running(self, unit: int, failed: int, now: float) -> dict[str, Any]:
        """Return the worker of a running unit, with the running time if known.

        Of units that were leased together, only the first has a known start.
        """
        lease = self._leases.get(unit)
        if lease is None:
            owner = next((each for each in self._leases.values() if each.lo <= unit < each.hi), None)
            return {"worker": _worker(owner) if owner else None}
        seconds = round(max(0.0, now - lease.granted / 1000), 3)
        return {"worker": _worker(lease), "seconds": seconds, "attempts": max(failed, lease.errors) + 1}


def _ranges(pieces: Sequence[Piece]) -> list[tuple[int, int]]:
    return [(piece.lo, piece.hi) for piece in pieces]


def _worker(lease: Piece) -> str:
    return lease.lane.partition("/")[0]


def _done_fields(unit: FinishedUnit) -> dict[str, Any]:
    return {
        "exit": 0,
        "seconds": unit.seconds,
        "attempts": unit.attempts,
        "worker": unit.worker,
        "value": unit.value,
    }


def _failure_fields(failure: Failure, piece: Piece | None) -> dict[str, Any]:
    """Return the known fields of the last failed attempt."""
    names = ("exit", "reason", "seconds", "worker", "error", "value")
    known = {name: failure[name] for name in names if name in failure}
    return {**known, "attempts": max(int(failure.get("attempt", 0)), piece.errors if piece else 0)}


def _failure(text: bytes) -> Failure:
    row: Failure = decoding.parse_json(text)
    return row if isinstance(row, dict) else {}


def read_units(job_id: str, stored: StoredUnits) -> Units:
    """Return the units of a job. Raises NotFound if its kind runs no programs, and Unreadable for corrupt data."""
    running = registry.program_kind(stored.kind) if stored.kind in registry.names() else None
    if running is None:
        detail = f"job {job_id} is of kind {stored.kind}, which runs no programs, so its units are not listed"
        raise errors.NotFound(detail, field="job_id")
    return Units(stored, running)
