"""Cache of Python environments for jobs. Jobs of a tenant with equal package lists share an environment."""

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

from jobs.settings import installer_settings
from runner.files.directories import give
from runner.files.folders import clear
from runner.programs.guard_messages import Order, ProgramEnd

log = logging.getLogger(__name__)

#: Timeout in seconds for one step of an installation.
BUILD_SECONDS = 1800.0
#: Maximum size in bytes of a package list.
LONGEST_LIST = 1 << 20

#: Interval in seconds at which a lease checks its stop flag while it waits for another installation.
_POLL_SECONDS = 0.2

#: Function that runs a program in a slot. It returns None if the program was stopped.
Runs = Callable[[Order], ProgramEnd | None]


class InstallationFailed(Exception):
    """The Python environment of a job could not be installed. The message contains the reason."""


class BuildStopped(Exception):
    """The installation of a Python environment was stopped."""


class Environments:
    """Cache of Python environments in `folder`, limited to `capacity` bytes without the environments in use.
    Thread-safe.

    One environment is installed at a time. Afterwards, environments are deleted in the order of last use.
    """

    def __init__(self, folder: Path, capacity: int, python: str = sys.executable) -> None:
        self._folder, self._capacity, self._python = folder, capacity, python
        self._building = threading.Lock()
        #: Lock for reserving and deleting environments, held only briefly.
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
        """Reserve a Python environment with the required packages, and return its folder. Installs the environment if
        needed.

        `give_back` ends the reservation. Raises InstallationFailed, BuildStopped and OSError. Tenants never share an
        environment, because a program can change it if slots have no Unix users of their own.
        """
        text = _text(requirements)
        place = self._folder / self._key(text, tenant)
        while not self.take_place(place):
            if not self._building.acquire(timeout=_POLL_SECONDS):
                if stopped():
                    raise BuildStopped
                continue
            try:
                if not _ready(place).exists():
                    self._build(
                        place, requirements, Order(argv=[], folder=str(home), environment=environment, uid=uid), run
                    )
                    _ready(place).write_text(str(total_size(place)))
                    self._shrink(keep=place)
            finally:
                self._building.release()
        return place

    def give_back(self, place: Path) -> None:
        """Release the reservation of a Python environment."""
        with self._taking:
            self._users[place] -= 1

    def take_place(self, place: Path) -> bool:
        """Reserve a Python environment if it is complete, and mark it as used. Return False if it is not complete."""
        with self._taking:
            if not _ready(place).exists():
                return False
            os.utime(_ready(place))
            self._users[place] += 1
            return True

    def _key(self, text: bytes, tenant: str) -> str:
        return hashlib.sha256(b"\0".join([tenant.encode(), sys.version.encode(), text])).hexdigest()[:32]

    # -- eviction ------------------------------------------------------------------------------------------------------

    def _shrink(self, keep: Path) -> None:
        """Delete incomplete environments, and complete ones until the total size is within the capacity.

        No installation may be running.
        """
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
                log.info("deleting the Python environment %s of %d MiB", place.name, size >> 20)
                _remove(place)
                total -= size

    def evict_until(self, is_enough: Callable[[], bool]) -> None:
        """Delete unused environments until `is_enough` returns True, starting with the least recently used one."""
        for place in (path.with_suffix("") for path in self._by_use()):
            if is_enough():
                return
            if self._try_remove(place):
                _remove(place)

    def _by_use(self) -> list[Path]:
        """Return the marker files of complete environments, least recently used first."""
        return sorted(self._folder.glob("*.ready"), key=lambda path: path.stat().st_mtime)

    def _try_remove(self, place: Path) -> bool:
        """Delete a Python environment unless it is in use. Return False if it is in use."""
        with self._taking:
            if self._users[place] > 0:
                return False
            del self._users[place]
            _ready(place).unlink(missing_ok=True)
            return True

    # -- installation --------------------------------------------------------------------------------------------------

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
                    environment=installer_settings() | like.environment,
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
                raise InstallationFailed(f"{argv[2]} failed with {how}")
        if like.uid is not None:
            give(place, 0)


def _text(requirements: Path) -> bytes:
    """Return the content of a package list. Raises InstallationFailed."""
    try:
        with requirements.open("rb") as opened:
            text = opened.read(LONGEST_LIST + 1)
    except OSError as error:
        raise InstallationFailed(f"cannot read the list of packages: {error.strerror}") from error
    if len(text) > LONGEST_LIST:
        raise InstallationFailed(f"the list of packages exceeds {LONGEST_LIST} bytes")
    return text


def _ready(place: Path) -> Path:
    """Return the path of the marker file that each complete environment has.

    The file contains the size in bytes. Its modification time is the time of last use.
    """
    return place.with_suffix(".ready")


def _remove(place: Path) -> None:
    try:
        clear(place)
    except OSError as error:  # The next installation tries again to delete the folder
        log.warning("cannot delete %s: %s", place, error)


def _size_of_ready(ready: Path) -> int:
    try:
        return int(ready.read_text())
    except ValueError:  # The runner died while it wrote the size
        return total_size(ready.with_suffix(""))


def total_size(folder: Path) -> int:
    """Return the total size in bytes of the files in a folder."""
    return sum(
        os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_size
        for _, _, names, descriptor in os.fwalk(folder)
        for name in names
    )


def has_module(module: object) -> bool:
    """Return True if the runner's own Python has a module with this name."""
    return isinstance(module, str) and bool(module) and importlib.util.find_spec(module) is not None
