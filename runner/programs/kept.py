"""Persistent programs that wait in their slots for further units."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from runner.programs.persistent import PersistentProgram
from runner.programs.slot import GuardDied

log = logging.getLogger(__name__)

#: Seconds after which a program without units is ended.
IDLE_SECONDS = 60.0
#: Number of units after which a program is replaced, so that a slow leak does not fill the memory.
MOST_UNITS = 10_000


@dataclass(frozen=True, kw_only=True)
class Key:
    """Settings that two jobs must have in common to share a program."""

    tenant: str
    argv: Sequence[str]
    #: Environment variables, without those that describe a unit.
    environment: Mapping[str, str]
    #: ID of the artifact with the job's files, or an empty string.
    files: str = ""
    #: Path of the requirements file among the files, or an empty string.
    python: str = ""
    memory_bytes: int = 0


@dataclass(kw_only=True)
class Kept:
    """Program that can run further units of jobs with the same key."""

    key: Key
    program: PersistentProgram
    #: Releases what the program uses: its working directory and its Python environment.
    release: Callable[[], None]
    units: int = 0
    #: ID of the job whose unit the program ran last.
    job: str = ""

    def end(self) -> None:
        """Kill the program, and release what it uses."""
        try:
            with contextlib.suppress(GuardDied):
                self.program.close()
        finally:
            self.release()

    @property
    def usable(self) -> bool:
        return self.program.alive and self.units < MOST_UNITS


@dataclass
class _Place:
    """A slot's waiting program. The lock is held while the program is ended."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    kept: Kept | None = None
    timer: threading.Timer | None = None


class KeptPrograms:
    """Waiting programs of all slots, at most one per slot. Thread-safe."""

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._places: dict[str, _Place] = {}
        self._changing = threading.Lock()

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
            kept.program.rest()
            place.kept = kept
            place.timer = threading.Timer(self._idle_seconds, self._expire, (slot, kept))
            place.timer.daemon = True
            place.timer.start()

    def end_of_others(self, tenant: str) -> None:
        """End the waiting programs of all tenants but this one."""
        for slot in list(self._places):
            with self._opened(slot) as place:
                if place.kept is not None and place.kept.key.tenant != tenant:
                    place.kept.end()
                    place.kept = None

    def end_until(self, fits: Callable[[int], bool]) -> None:
        """End waiting programs until `fits` returns True for the bytes of memory that the remaining ones use."""
        for slot, place in list(self._places.items()):
            if place.kept is None:
                continue
            if fits(self._used_bytes()):
                return
            with self._opened(slot):
                if place.kept is not None:
                    place.kept.end()
                    place.kept = None

    def _used_bytes(self) -> int:
        waiting = [kept for place in self._places.values() if (kept := place.kept)]
        return sum(kept.program.memory_bytes() for kept in waiting)

    def _expire(self, slot: str, kept: Kept) -> None:
        with self._opened(slot, kept) as place:
            if place.kept is kept:
                place.kept = None
                kept.end()

    @contextlib.contextmanager
    def _opened(self, slot: str, kept: Kept | None = None) -> Iterator[_Place]:
        with self._changing:
            place = self._places.setdefault(slot, _Place())
        with place.lock:
            if place.timer is not None and kept is None:
                place.timer.cancel()
                place.timer = None
            yield place
