"""Wheels of this project: which release a wheel contains, and how its server is unpacked next to other releases.

The file `threads_cluster/server.tar` in a wheel contains the code of a release.
"""

from __future__ import annotations

import hashlib
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

TREE = "threads_cluster/server.tar"
#: Folder with the releases of an installation.
RELEASES = STATE_FOLDER / "releases"
#: Number of characters of the digest in the name of a release's folder.
_DIGEST = 12
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
    """Unpack the release in a wheel unless it is already unpacked, and return its folder. Raises CommandError.

    The folder appears with all its files or not at all.
    """
    release = describe(wheel)
    with _open_tree(wheel) as tree:
        digest = hashlib.sha256(tree.read()).hexdigest()[:_DIGEST]
    folder = RELEASES / f"{release.version}-{digest}"
    if folder.is_dir():
        return folder
    RELEASES.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".new-", dir=RELEASES))
    try:
        with _open_tree(wheel) as tree, tarfile.open(fileobj=tree, mode="r|") as archive:
            archive.extractall(temporary / "tree", filter="tar")
        (temporary / "tree").rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


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
