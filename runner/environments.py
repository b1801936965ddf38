"""Python environments of jobs: one for each list of packages, made once, by a program as any other."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.folders import clear
from runner.orders import Ended, Order
from runner.places import give

#: Seconds that one step of making an environment may take.
BUILD_SECONDS = 1800.0
#: Bytes of a list of packages at most.
LONGEST_LIST = 1 << 20

#: Runs a program in a slot and returns how it ended, or None where it was stopped.
Runs = Callable[[Order], Ended | None]


class NotBuilt(Exception):
    """The environment of a job could not be made; the message says why."""


class Stopped(Exception):
    """Making an environment was stopped."""


class Environments:
    """Environments below `folder`. Thread-safe; one is made at a time."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self._folder, self._python = folder, python
        self._building = threading.Lock()

    def have(
        self, requirements: Path, tenant: str, *, home: Path, environment: dict[str, str], uid: int | None, run: Runs,
        stopped: Callable[[], bool],
    ) -> Path:  # fmt: skip
        """Return the folder of an environment with these packages. Raises NotBuilt, Stopped, OSError.

        Tenants never share one: what runs in it may change it where slots have no users of their own.
        """
        try:
            with requirements.open("rb") as opened:
                text = opened.read(LONGEST_LIST + 1)
        except OSError as error:
            raise NotBuilt(f"the list of packages cannot be read: {error.strerror}") from error
        if len(text) > LONGEST_LIST:
            raise NotBuilt(f"the list of packages has over {LONGEST_LIST} bytes")
        place = self._folder / self._key(text, tenant)
        ready = place.with_suffix(".ready")
        with self._turn(ready, stopped):
            if not ready.exists():
                like = Order(argv=[], folder=str(home), environment=environment, uid=uid)
                self._build(place, requirements, like, run)
                ready.touch()
        return place

    def _key(self, text: bytes, tenant: str) -> str:
        return hashlib.sha256(b"\0".join([tenant.encode(), sys.version.encode(), text])).hexdigest()[:32]

    @contextmanager
    def _turn(self, ready: Path, stopped: Callable[[], bool]) -> Iterator[None]:
        """Wait until nobody else makes one. Raises Stopped."""
        while not self._building.acquire(timeout=0.2):
            if ready.exists():
                yield
                return
            if stopped():
                raise Stopped
        try:
            yield
        finally:
            self._building.release()

    def _build(self, place: Path, requirements: Path, like: Order, run: Runs) -> None:
        clear(place)
        place.mkdir(parents=True)
        if like.uid is not None:
            give(place, like.uid)
        for argv in (
            [self._python, "-m", "venv", str(place)],
            [f"{place}/bin/python", "-m", "pip", "install", "--disable-pip-version-check", "-r", str(requirements)],
        ):
            ended = run(
                Order(
                    argv=argv, folder=like.folder, environment=like.environment, uid=like.uid,
                    timeout_seconds=BUILD_SECONDS,
                )
            )  # fmt: skip
            if ended is None:
                clear(place)
                raise Stopped
            if ended.code or ended.reason:
                clear(place)
                how = ended.error or ended.reason or f"exit code {ended.code}"
                raise NotBuilt(f"{argv[2]} ended with {how}")
        if like.uid is not None:
            give(place, 0)
