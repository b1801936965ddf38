"""Functions that write the files of an artifact below one folder, but never through a link that points outside it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from threads_cluster.errors import BadArgument
from threads_cluster.terminal import visible
from threads_protocol.manifest import Entry

_PIECE = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
#: Flags for opening a file. Without O_NONBLOCK, a pipe in place of the file would block.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


class Target:
    """Folder into which an artifact is written. Each segment of a path is opened separately, and links are not
    followed.

    With `replace`, existing files and links are overwritten.
    """

    def __init__(self, folder: Path, *, replace: bool = False) -> None:
        self._folder = folder
        self._replace = replace
        self._suffix = "part"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise BadArgument(f"{visible(str(folder))} cannot be written: {error.strerror}") from None

    def close(self) -> None:
        os.close(self._root)

    def avoid(self, entries: Iterable[Entry]) -> None:
        """Choose a suffix for partial files that no path of the artifact has."""
        names = {entry.path.rpartition("/")[2] for entry in entries}
        while any(name.startswith(".cluster-") and name.endswith(f".{self._suffix}") for name in names):
            self._suffix += "t"

    def joins_names(self) -> bool:
        """Return True if this file system ignores letter case or Unicode form in names."""
        name = f".cluster-é-{secrets.token_hex(8)}"
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
        os.close(os.open(name, flags, 0o600, dir_fd=self._root))
        try:
            return any(self._is_there(other) for other in (name.upper(), unicodedata.normalize("NFD", name)))
        finally:
            os.unlink(name, dir_fd=self._root)

    def _is_there(self, name: str) -> bool:
        try:
            os.stat(name, dir_fd=self._root, follow_symlinks=False)
        except OSError:
            return False
        return True

    def check_place(self, entry: Entry) -> None:
        """Raise BadArgument if the path of a folder or a link is already in use."""
        with self._parent(entry.path, create=False) as place:
            if place is None:
                return
            parent, name = place
            try:
                mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
            except FileNotFoundError:
                return
            if stat.S_ISDIR(mode) if entry.kind == "d" else _is_link_to(parent, name, entry.target):
                return
            if self._replace and entry.kind == "l" and not stat.S_ISDIR(mode):
                return
        raise BadArgument(f"{self._shown(entry.path)} exists with other contents; fetch into an empty folder")

    def has(self, entry: Entry) -> bool:
        """Return True if a file exists with the right contents. Raises BadArgument if it exists with other contents."""
        with self._parent(entry.path, create=False) as place:
            if place is None:
                return False
            parent, name = place
            try:
                about = os.stat(name, dir_fd=parent, follow_symlinks=False)
            except FileNotFoundError:
                return False
            if stat.S_ISREG(about.st_mode) and about.st_size == entry.size and self._digest(parent, name) == entry.sha:
                return True
            if self._replace and not stat.S_ISDIR(about.st_mode):
                return False
        raise BadArgument(f"{self._shown(entry.path)} exists with other contents; fetch into an empty folder")

    def write(self, entry: Entry, data: bytes) -> None:
        """Write a complete file. Its bytes have already been verified."""
        with self.part(entry) as part:
            part.truncate(0)
            part.seek(0)
            part.write(data)
        self.finish(entry)

    @contextmanager
    def part(self, entry: Entry) -> Iterator[BinaryIO]:
        """Open the partial file of an interrupted download to append bytes."""
        with self._parent(entry.path, create=True) as place:
            assert place
            parent, _ = place
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            number = os.open(self._part_name(entry), flags, 0o644, dir_fd=parent)
            about = os.fstat(number)
            if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:  # The file may have several hard links
                os.close(number)
                raise BadArgument(f"{self._shown(self._part_name(entry))} exists and is not a regular file; remove it")
            with os.fdopen(number, "r+b") as opened:
                yield opened

    def finish(self, entry: Entry) -> None:
        """Give a complete file its final name and its mode."""
        with self._parent(entry.path, create=True) as place:
            assert place
            parent, name = place
            _set_mode(parent, self._part_name(entry), 0o755 if entry.kind == "x" else 0o644)
            os.replace(self._part_name(entry), name, src_dir_fd=parent, dst_dir_fd=parent)

    def set_mode(self, entry: Entry) -> None:
        """Set or clear the executable bit of an existing file."""
        with self._parent(entry.path, create=False) as place:
            assert place
            parent, name = place
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
            if bool(mode & 0o100) != (entry.kind == "x"):
                _set_mode(parent, name, 0o755 if entry.kind == "x" else 0o644)

    def drop_part(self, entry: Entry) -> None:
        """Delete the partial file of a download."""
        with self._parent(entry.path, create=True) as place, contextlib.suppress(FileNotFoundError):
            assert place
            os.unlink(self._part_name(entry), dir_fd=place[0])

    def copy(self, source: Entry, entry: Entry) -> None:
        """Copy a file that was already written under another path."""
        with self._parent(source.path, create=False) as place, self.part(entry) as part:
            assert place
            parent, name = place
            with os.fdopen(os.open(name, _FILE, dir_fd=parent), "rb") as opened:
                part.truncate(0)
                while piece := opened.read(_PIECE):
                    part.write(piece)
        self.finish(entry)

    def make_folder(self, path: str) -> None:
        """Create a folder and its parent folders."""
        with self._parent(f"{path}/.", create=True):
            pass

    def make_link(self, entry: Entry) -> None:
        """Create a symbolic link. Raises BadArgument if its path is already in use."""
        with self._parent(entry.path, create=True) as place:
            assert place
            parent, name = place
            if self._replace and not _is_link_to(parent, name, entry.target):
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=parent)
            try:
                os.symlink(entry.target, name, dir_fd=parent)
            except FileExistsError:
                if not _is_link_to(parent, name, entry.target):
                    raise BadArgument(f"{self._shown(entry.path)} exists with other contents") from None

    @contextmanager
    def _parent(self, path: str, *, create: bool) -> Iterator[tuple[int, str] | None]:
        """Yield the opened parent folder of a path, and the last segment of the path. Yield None if there is no
        parent.
        """
        *folders, name = path.split("/")
        opened = os.dup(self._root)
        try:
            for folder in folders:
                inner = self._step(opened, folder, path, create=create)
                if inner is None:
                    yield None
                    return
                os.close(opened)
                opened = inner
            yield opened, name
        finally:
            os.close(opened)

    def _step(self, parent: int, name: str, path: str, *, create: bool) -> int | None:
        if create:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=parent)
        try:
            return os.open(name, _FOLDER, dir_fd=parent)
        except FileNotFoundError:
            return None
        except OSError:  # The path is a link or a file
            raise BadArgument(f"{self._shown(path)}: {visible(name)} exists and is not a folder") from None

    def _digest(self, parent: int, name: str) -> str:
        made = hashlib.sha256()
        with os.fdopen(os.open(name, _FILE, dir_fd=parent), "rb") as opened:
            while piece := opened.read(_PIECE):
                made.update(piece)
        return made.hexdigest()

    def _part_name(self, entry: Entry) -> str:
        return f".cluster-{entry.sha[:32]}.{self._suffix}"

    def _shown(self, path: str) -> str:
        return visible(f"{self._folder}/{path}", 300)


def _set_mode(parent: int, name: str, mode: int) -> None:
    """Set the mode of a file. If the path is a link, do not follow it."""
    opened = os.open(name, _FILE, dir_fd=parent)
    try:
        os.fchmod(opened, mode)
    finally:
        os.close(opened)


def _is_link_to(parent: int, name: str, target: str) -> bool:
    try:
        return os.readlink(name, dir_fd=parent) == target
    except OSError:
        return False
