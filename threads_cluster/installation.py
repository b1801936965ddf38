"""Releases of an installation: the servers that come with the client, unpacked side by side in the user's data folder.

The folder `releases` of CLUSTER_HOME has one folder per release, and the link `current` names the release in use. A
release contains only code. All releases share the state, which is in CLUSTER_HOME itself.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from threads_cluster import settings
from threads_cluster.client import checkouts
from threads_cluster.errors import Misconfigured

#: Archive of the server tree, which deploy/release/tree.py writes into the wheel.
ARCHIVE = Path(__file__).with_name("server.tar")
#: Number of digits of the archive's SHA-256 in the name of a release.
_DIGITS = 12
#: Prefix of folders that are being unpacked.
_PARTIAL = ".new-"


def run_server_command(command: str, arguments: list[str], *, installs: bool) -> NoReturn:
    """Replace this process by a command of deploy-cluster.sh in the checkout or in the release in use.

    With `installs`, unpack the release of this client if necessary. Raises Misconfigured.
    """
    server = find_server(installs=installs)
    script = str(server / "deploy-cluster.sh")
    os.execve(script, [script, command, *arguments], _environment())


def _environment() -> dict[str, str]:
    if settings.IS_CHECKOUT:
        return settings.environment()
    # The environment of a release uses the same Python as this client, unless the user names another.
    return {"PYTHON": settings.python()} | settings.environment() | {"CLUSTER_HOME": str(settings.STATE_FOLDER)}


def find_server(*, installs: bool) -> Path:
    """Return the folder of the checkout, or of the release in use. Raises Misconfigured if there is none."""
    if settings.IS_CHECKOUT:
        return settings.ROOT
    home = settings.STATE_FOLDER
    # A running cluster keeps its release, so that the commands for it have the same version.
    if installs and not (_has_release(home) and checkouts.own().is_locked()):
        with _explained(home):
            use_own_release(home)
    if not _has_release(home):
        error = Misconfigured(f"no cluster was started by this installation: {home} has no release")
        error.next = "start a cluster with: cluster start"
        raise error
    return (home / "current").resolve()


def _has_release(home: Path) -> bool:
    return (home / "current" / "deploy-cluster.sh").is_file()


def unpack_own_release() -> list[str]:
    """Unpack the release of this client for an update, and return its folder. A checkout has none.

    A rollback then lasts until another client is installed. Raises Misconfigured.
    """
    if settings.IS_CHECKOUT:
        return []
    home = settings.STATE_FOLDER
    with _explained(home):
        _check_archive()
        with _lock(home):
            folder = _unpack(home, ARCHIVE)
            _last(home).write_text(f"{folder.name}\n")
            return [str(folder)]


def add_release(home: Path, archive: Path) -> Path:
    """Unpack a release unless it exists, and return its folder. Raises OSError."""
    with _lock(home):
        return _unpack(home, archive)


def make_current(home: Path, folder: Path) -> None:
    """Let the next start of the installation use the release in a folder."""
    with _lock(home):
        _link(home, folder)


def use_own_release(home: Path) -> None:
    """Unpack the release of this client, and make it the current one if the client changed since the last time.

    So an update or a rollback, which change the current release, last until another client is installed.
    """
    _check_archive()
    with _lock(home):
        folder = _unpack(home, ARCHIVE)
        last = _last(home)
        if not _has_release(home) or not last.is_file() or last.read_text().strip() != folder.name:
            _link(home, folder)
            last.write_text(f"{folder.name}\n")


def _last(home: Path) -> Path:
    """Return the file with the name of the release of the client that was used last."""
    return home / "installed"


def _check_archive() -> None:
    """Raise Misconfigured if this package was installed without a server."""
    if not ARCHIVE.is_file():
        error = Misconfigured(f"this installation contains no server: {ARCHIVE} does not exist")
        error.next = "install the package again from its wheel, or use a checkout"
        raise error


@contextmanager
def _lock(home: Path) -> Iterator[None]:
    """Wait until no other process changes the releases, and prevent changes during a `with` block."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "releases").mkdir(exist_ok=True)
    with (home / "releases" / ".lock").open("a") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield


def _unpack(home: Path, archive: Path) -> Path:
    """Unpack a release unless it exists, and return its folder, named after its version and its archive's digest.

    The folder gets its name when it is complete. The caller holds the lock.
    """
    releases = home / "releases"
    with archive.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    with tarfile.open(archive) as opened_archive:
        version = opened_archive.extractfile("jobs/VERSION")
        name = f"{version.read().decode().strip() if version else ''}-{digest[:_DIGITS]}"
        if (releases / name).is_dir():
            return releases / name
        for left in releases.glob(f"{_PARTIAL}*"):  # of a process that was killed
            shutil.rmtree(left)
        folder = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=releases))
        try:
            opened_archive.extraction_filter = getattr(tarfile, "data_filter", None)
            opened_archive.extractall(folder)
            folder.chmod(0o755)  # a cluster of the system runs the release as another user
            folder.rename(releases / name)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return releases / name


def _link(home: Path, folder: Path) -> None:
    """Replace the link `current` in one step. The caller holds the lock."""
    link = home / "releases" / ".current"
    with suppress(FileNotFoundError):
        link.unlink()
    link.symlink_to(folder.relative_to(home) if folder.is_relative_to(home) else folder)
    link.replace(home / "current")


@contextmanager
def _explained(home: Path) -> Iterator[None]:
    """Convert errors of the file system into errors with a remedy."""
    try:
        yield
    except OSError as error:
        refused = Misconfigured(f"the server cannot be unpacked in {home}: {error.strerror or error}")
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            refused.next = "free some space (see df -h), then run the same command again"
        else:
            refused.next = "set CLUSTER_HOME to a folder that you can write to, then run the same command again"
        raise refused from error
