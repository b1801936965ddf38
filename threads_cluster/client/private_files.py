"""JSON files of the client that only their owner can read. Several processes can change them at the same time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from threads_cluster.errors import Misconfigured


class UnusableFile(Misconfigured):
    """A file of the client cannot be used. The message names the file and the reason."""

    def __init__(self, file: Path, why: str, advice: str = "") -> None:
        super().__init__(f"{file} cannot be used: {why}")
        self.next = advice


def check_private(file: Path) -> None:
    """Raise UnusableFile if other users can access a file. Files with tokens must pass this check."""
    if file.stat().st_mode & 0o077:
        advice = f"revoke its tokens if they were read; then: chmod 600 {file}"
        raise UnusableFile(file, "other users can read it", advice)


def check_unchangeable(file: Path) -> None:
    """Raise UnusableFile if other users can change a file. Files without tokens must pass this check."""
    if file.stat().st_mode & 0o022:
        raise UnusableFile(file, "other users can change it", f"check its content; then: chmod 600 {file}")


def read_json(file: Path, check: Callable[[Path], None] = check_private) -> Any:
    """Return the content of a file that passes `check`, or None if the file does not exist. Raises UnusableFile."""
    try:
        if not file.is_file():
            return None
        check(file)
        return json.loads(file.read_text())
    except OSError as error:
        raise UnusableFile(file, f"the file cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise foreign(file) from None


def foreign(file: Path) -> UnusableFile:
    """Return the error for a file with an unexpected content."""
    return UnusableFile(file, "the file was not written by the cluster command", f"remove it: rm {file}")


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold the lock for changes of a file, so that no change of another process is lost. Raises UnusableFile."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = _open_locked(file.with_suffix(".lock"))
    except OSError as error:
        raise UnusableFile(file, f"the file cannot be written: {error.strerror}") from None
    try:
        yield
    finally:
        os.close(descriptor)


def _open_locked(path: Path) -> int:
    """Lock a file and return its descriptor. Try again if `delete` of another process has removed the file."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _lock(descriptor)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    fcntl.flock(descriptor, fcntl.LOCK_EX)


def write_json(file: Path, value: Any) -> None:
    """Replace a file atomically, or the file to which a symbolic link points. The caller holds the lock.

    At all times, only its owner can read the file.
    """
    target = Path(os.path.realpath(file))
    new = target.with_suffix(".new")
    try:
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            json.dump(value, out, indent=1)
        new.replace(target)
    except OSError as error:
        raise UnusableFile(file, f"the file cannot be written: {error.strerror}") from None


def delete(file: Path) -> None:
    """Delete a file and its lock, which the caller holds. Raises UnusableFile."""
    try:
        file.unlink(missing_ok=True)
        with suppress(PermissionError):  # Windows does not delete open files
            file.with_suffix(".lock").unlink(missing_ok=True)
    except OSError as error:
        raise UnusableFile(file, f"the file cannot be deleted: {error.strerror}") from None
