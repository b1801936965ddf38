"""Wheels of this project: which release a wheel contains, and how its server is unpacked next to other releases.

The file `threads_cluster/server.tar` in a wheel contains the code of a release.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from deploy.local.outcome import USAGE, CommandError
from jobs import releases
from jobs.releases import Release, UnreadableRelease
from jobs.settings import STATE_FOLDER
from threads_cluster import installation

TREE = "threads_cluster/server.tar"
#: Largest size in bytes of a file that describes a release.
_MAX_DESCRIPTION = 4096


def describe(wheel: Path) -> Release:
    """Return the release in a wheel. Raises CommandError if the file is not a wheel of this project."""
    with _open_tree(wheel) as tree, tarfile.open(fileobj=tree, mode="r:") as archive:
        texts = {name: _read(archive, name) for name in (releases.VERSION_FILE, releases.FORMAT_FILE)}
    try:
        return Release.parse(*filter(None, texts.values()))
    except (UnreadableRelease, TypeError) as error:
        raise _no_wheel(wheel, f"it does not contain a release: {error}") from error


def _read(archive: tarfile.TarFile, name: str) -> str:
    try:
        member = archive.extractfile(name)
    except KeyError:
        return ""
    return member.read(_MAX_DESCRIPTION).decode(errors="replace") if member else ""


def unpack(wheel: Path) -> Path:
    """Unpack the release in a wheel unless it is already unpacked, and return its folder.

    Raises CommandError, and OSError if the disk is full.
    """
    describe(wheel)
    with tempfile.TemporaryDirectory(prefix="threads-cluster-") as folder:
        archive = Path(folder, "server.tar")
        with _open_tree(wheel) as tree, archive.open("wb") as file:
            shutil.copyfileobj(tree, file)
        return installation.add_release(STATE_FOLDER, archive)


@contextmanager
def _open_tree(wheel: Path) -> Iterator[IO[bytes]]:
    """Open the server's archive in a wheel. Raises CommandError if the file is not a wheel of this project."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(TREE) as tree:
            yield tree
    except FileNotFoundError as error:
        raise CommandError(USAGE, f"the file {wheel} does not exist.") from error
    except KeyError as error:
        raise _no_wheel(wheel, f"it does not contain {TREE}") from error
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        raise _no_wheel(wheel, str(error)) from error


def _no_wheel(wheel: Path, why: str) -> CommandError:
    return CommandError(
        USAGE, f"{wheel} is not a usable wheel of Threads Cluster: {why}.\n  Nothing was changed. Use another file."
    )
