"""Python environments of jobs: one for each list of packages, made once, by a program as any other."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from runner.files.folders import clear
from runner.files.places import give
from runner.programs.orders import Order, ProgramEnd

log = logging.getLogger(__name__)

#: Seconds that one step of making an environment may take.
BUILD_SECONDS = 1800.0
#: Bytes of a list of packages at most.
LONGEST_LIST = 1 << 20

#: Seconds between two looks whether who waits for another one shall stop.
_LOOK_SECONDS = 0.2

#: Runs a program in a slot and returns how it ended, or None where it was stopped.
Runs = Callable[[Order], ProgramEnd | None]


class NotBuilt(Exception):
    """The environment of a job could not be made; the message says why."""


class BuildStopped(Exception):
    """Making an environment was stopped."""


class Environments:
    """Environments below `folder`, of at most `capacity` bytes together but for those in use. Thread-safe.

    One is made at a time, and then those that were unused longest go.
    """

    def __init__(self, folder: Path, capacity: int, python: str = sys.executable) -> None:
        self._folder, self._capacity, self._python = folder, capacity, python
        self._building = threading.Lock()
        #: Who takes or drops an environment holds this one, for a moment.
        self._taking = threading.Lock()
        self._users: Counter[Path] = Counter()

    def take(
        self,
        requirements: Path,
        tenant: str,
        *,
        home: Path,
        environment: dict[str, str],
        uid: int | None,
        run: Runs,
        stopped: Callable[[], bool],
    ) -> Path:
        """Return the folder of an environment with these packages, which stays until it is given back.

        Raises NotBuilt, Stopped, OSError. Tenants never share one: what runs in it may change it where slots have no
        users of their own.
        """
        text = _text(requirements)
        place = self._folder / self._key(text, tenant)
        while not self.take_place(place):
            if not self._building.acquire(timeout=_LOOK_SECONDS):
                if stopped():
                    raise BuildStopped
                continue
            try:
                if not _ready(place).exists():
                    self._build(
                        place, requirements, Order(argv=[], folder=str(home), environment=environment, uid=uid), run
                    )
                    _ready(place).write_text(str(size_of(place)))
                    self._shrink(keep=place)
            finally:
                self._building.release()
        return place

    def give_back(self, place: Path) -> None:
        """Take in that whoever took an environment needs it no more."""
        with self._taking:
            self._users[place] -= 1

    def take_place(self, place: Path) -> bool:
        """Take an environment that is ready; it counts as used now."""
        with self._taking:
            if not _ready(place).exists():
                return False
            os.utime(_ready(place))
            self._users[place] += 1
            return True

    def _key(self, text: bytes, tenant: str) -> str:
        return hashlib.sha256(b"\0".join([tenant.encode(), sys.version.encode(), text])).hexdigest()[:32]

    # -- what goes --------------------------------------------------------------------------------------------------

    def _shrink(self, keep: Path) -> None:
        """Remove what was being made when a runner died, and what is too much. Call it while nobody makes one."""
        ready = self._by_use()
        for path in self._folder.iterdir():
            if not path.suffix and not _ready(path).exists():
                _remove(path)
        sizes = {path.with_suffix(""): _size_of_ready(path) for path in ready}
        total = sum(sizes.values())
        for place, size in sizes.items():
            if total <= self._capacity:
                return
            if place != keep and self._try_remove(place):
                log.info("the Python environment %s is removed, %d MiB", place.name, size >> 20)
                _remove(place)
                total -= size

    def evict_until(self, is_enough: Callable[[], bool]) -> None:
        """Remove environments that are not in use, the longest unused first, until there is enough space."""
        for place in (path.with_suffix("") for path in self._by_use()):
            if is_enough():
                return
            if self._try_remove(place):
                _remove(place)

    def _by_use(self) -> list[Path]:
        """Return the files that mark complete environments, the longest unused first."""
        return sorted(self._folder.glob("*.ready"), key=lambda path: path.stat().st_mtime)

    def _try_remove(self, place: Path) -> bool:
        """Have nobody take an environment from now on; False where somebody uses it."""
        with self._taking:
            if self._users[place] > 0:
                return False
            del self._users[place]
            _ready(place).unlink(missing_ok=True)
            return True

    # -- making one -------------------------------------------------------------------------------------------------

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
                    argv=argv,
                    folder=like.folder,
                    environment=like.environment,
                    uid=like.uid,
                    timeout_seconds=BUILD_SECONDS,
                )
            )
            if ended is None:
                clear(place)
                raise BuildStopped
            if ended.code or ended.reason:
                clear(place)
                how = ended.error or ended.reason or f"exit code {ended.code}"
                raise NotBuilt(f"{argv[2]} ended with {how}")
        if like.uid is not None:
            give(place, 0)


def _text(requirements: Path) -> bytes:
    """Return a list of packages. Raises NotBuilt."""
    try:
        with requirements.open("rb") as opened:
            text = opened.read(LONGEST_LIST + 1)
    except OSError as error:
        raise NotBuilt(f"the list of packages cannot be read: {error.strerror}") from error
    if len(text) > LONGEST_LIST:
        raise NotBuilt(f"the list of packages has over {LONGEST_LIST} bytes")
    return text


def _ready(place: Path) -> Path:
    """Return the file that says that an environment is whole, and how many bytes it has; used when it was changed."""
    return place.with_suffix(".ready")


def _remove(place: Path) -> None:
    try:
        clear(place)
    except OSError as error:  # tried again after the next one is made
        log.warning("%s cannot be removed: %s", place, error)


def _size_of_ready(ready: Path) -> int:
    try:
        return int(ready.read_text())
    except ValueError:  # the runner died while it wrote it
        return size_of(ready.with_suffix(""))


def size_of(folder: Path) -> int:
    """Add up the bytes of the files below a folder."""
    return sum(
        os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_size
        for _, _, names, descriptor in os.fwalk(folder)
        for name in names
    )


def is_here(module: object) -> bool:
    """Return True where this runner's own Python has a module."""
    return isinstance(module, str) and bool(module) and importlib.util.find_spec(module) is not None
