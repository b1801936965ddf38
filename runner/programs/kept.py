"""Persistent programs that wait in their slots for further units."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.store.work.slots import JobFacts
from runner.programs.persistent import PersistentProgram
from runner.programs.slot import GuardDied

log = logging.getLogger(__name__)

#: Fields of a job's specification on which its key depends.
_OF_KEY = ("command", "env", "secrets", "files", "python", "requirements")
#: Interval in seconds at which the growth of a program is checked.
LOOK_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits after which a program is ended or replaced."""

    #: Seconds after which a program without units is ended.
    idle_seconds: float = 60.0
    #: Number of units after which a program is replaced.
    units: int = 10_000
    #: Growth in bytes after which a program is replaced, so that a slow leak does not fill the memory. 0 means never.
    growth_bytes: int = 512 << 20


@dataclass(frozen=True, kw_only=True)
class Key:
    """Settings that two jobs must have in common to share a program."""

    tenant: str
    #: ID of the API token that submitted the job, or an empty string.
    user: str = ""
    argv: Sequence[str]
    #: Environment variables, without those that describe a unit.
    environment: Mapping[str, str]
    #: ID of the artifact with the job's files, or an empty string.
    files: str = ""
    #: Path of the requirements file among the files, or an empty string.
    python: str = ""
    memory_bytes: int = 0


def likeness(facts: JobFacts) -> tuple[Any, ...]:
    """Return the fields of a job that usually determine its key, without reading secrets."""
    return facts.tenant, facts.user, *(facts.spec.get(name) for name in _OF_KEY)


@dataclass(kw_only=True)
class Kept:
    """Program that can run further units of jobs with the same key."""

    key: Key
    #: Likeness of the job that started the program.
    origin: tuple[Any, ...] = ()
    program: PersistentProgram
    #: Releases what the program uses: its working directory and its Python environment.
    release: Callable[[], None]
    limits: Limits = field(default_factory=Limits)
    units: int = 0
    #: ID of the job whose unit the program ran last.
    job: str = ""
    #: Memory in bytes when the growth was first checked, or 0 before.
    _first_bytes: int = 0
    #: Monotonic time of the next check of the growth.
    _look_at: float = field(default_factory=lambda: time.monotonic() + LOOK_SECONDS)
    #: Memory in bytes while the program waits, or 0 if it is not measured.
    _waiting_bytes: int = 0

    def waiting_bytes(self) -> int:
        """Return the memory of the waiting program. It is measured once, because a waiting program rarely changes."""
        self._waiting_bytes = self._waiting_bytes or self.program.memory_bytes()
        return self._waiting_bytes

    def rest(self) -> None:
        """Let the program wait for units."""
        self.program.rest()
        self._waiting_bytes = 0

    def end(self) -> None:
        """Kill the program, and release what it uses."""
        try:
            with contextlib.suppress(GuardDied):
                self.program.close()
        finally:
            self.release()

    @property
    def usable(self) -> bool:
        """Return True if the program can run another unit and has not reached a limit."""
        return self.program.alive and self.units < self.limits.units and not self._has_grown()

    def _has_grown(self) -> bool:
        now = time.monotonic()
        if not self.limits.growth_bytes or now < self._look_at:
            return False
        found, self._look_at = self.program.memory_bytes(), now + LOOK_SECONDS
        self._first_bytes = self._first_bytes or found
        return found - self._first_bytes > self.limits.growth_bytes


@dataclass
class _Place:
    """A slot's waiting program. The lock is held while the program is ended."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    kept: Kept | None = None
    #: Monotonic time at which the program is ended.
    until: float = math.inf


class KeptPrograms:
    """Waiting programs of all slots, at most one per slot. Thread-safe."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._places: dict[str, _Place] = {}
        self._changing = threading.Lock()
        self._thread: threading.Thread | None = None

    def is_warm(self, slot: str, facts: JobFacts) -> bool:
        """Return True if the slot's waiting program can probably run the units of a job."""
        place = self._places.get(slot)
        kept = place.kept if place else None
        return kept is not None and kept.origin == likeness(facts)

    def take(self, slot: str, key: Key | None = None) -> Kept | None:
        """Return the slot's waiting program if it has this key, and end it otherwise."""
        with self._opened(slot) as place:
            kept, place.kept = place.kept, None
            if kept is None or (kept.key == key and kept.usable):
                return kept
            kept.end()
            return None

    def put(self, slot: str, kept: Kept) -> None:
        """Let a program wait for further units. Ends it after the idle time."""
        with self._opened(slot) as place:
            kept.rest()
            place.kept, place.until = kept, time.monotonic() + self.limits.idle_seconds
        with self._changing:
            if self._thread is None:
                self._thread = threading.Thread(target=self._end_idle, name="idle-programs", daemon=True)
                self._thread.start()

    def end_of_others(self, tenant: str) -> None:
        """End the waiting programs of all tenants but this one."""
        for slot in list(self._places):
            with self._opened(slot) as place:
                if place.kept is not None and place.kept.key.tenant != tenant:
                    place.kept.end()
                    place.kept = None

    def end_until(self, fits: Callable[[int], bool], excluded: str = "") -> None:
        """End waiting programs until `fits` returns True for the bytes of memory that the remaining ones use.

        The program of the slot `excluded` is ignored.
        """
        for slot, place in list(self._places.items()):
            if place.kept is None or slot == excluded:
                continue
            if fits(self._used_bytes(excluded)):
                return
            with self._opened(slot):
                if place.kept is not None:
                    place.kept.end()
                    place.kept = None

    def _used_bytes(self, excluded: str) -> int:
        waiting = [kept for slot, place in self._places.items() if slot != excluded and (kept := place.kept)]
        return sum(kept.waiting_bytes() for kept in waiting)

    def _end_idle(self) -> None:
        """End programs after their idle time, until none is left."""
        while (until := self._next_end()) is not None:
            time.sleep(max(0.0, until - time.monotonic()))
            for slot in list(self._places):
                with self._opened(slot) as place:
                    if place.kept is not None and time.monotonic() >= place.until:
                        place.kept.end()
                        place.kept = None

    def _next_end(self) -> float | None:
        """Return the time at which a program ends next. If none is waiting, forget the thread and return None."""
        with self._changing:
            ends = [place.until for place in self._places.values() if place.kept is not None]
            if not ends:
                self._thread = None
            return min(ends, default=None)

    @contextlib.contextmanager
    def _opened(self, slot: str) -> Iterator[_Place]:
        with self._changing:
            place = self._places.setdefault(slot, _Place())
        with place.lock:
            yield place
