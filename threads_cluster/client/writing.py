"""Files of an artifact on this machine's disk: written below one folder, and never through a link out of it."""

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
#: To open a pipe that appears in the place of a file waits for nobody.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


class Target:
    """A folder that an artifact is written into. Each step of a path is opened by itself, and no link is followed.

    `replace`: files and links that are in the place of others give way to them.
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
        """Give beginnings of files names that are none of these."""
        names = {entry.path.rpartition("/")[2] for entry in entries}
        while any(name.startswith(".cluster-") and name.endswith(f".{self._suffix}") for name in names):
            self._suffix += "t"

    def joins_names(self) -> bool:
        """Return True when names that differ in the case or the form of letters alone are one file here."""
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
        """Return when a folder or a link can be made. BadArgument when something else is in its place."""
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
        raise BadArgument(f"{self._shown(entry.path)} is there and is something else; fetch into an empty folder")

    def has(self, entry: Entry) -> bool:
        """Return True when the file is there. BadArgument when something else is in its place."""
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
        raise BadArgument(f"{self._shown(entry.path)} is there and is something else; fetch into an empty folder")

    def write(self, entry: Entry, data: bytes) -> None:
        """Write a whole file, whose bytes were verified."""
        with self.part(entry) as part:
            part.truncate(0)
            part.seek(0)
            part.write(data)
        self.finish(entry)

    @contextmanager
    def part(self, entry: Entry) -> Iterator[BinaryIO]:
        """Yield the beginning of a file that was fetched before, open for more."""
        with self._parent(entry.path, create=True) as place:
            assert place
            parent, _ = place
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            number = os.open(self._part_name(entry), flags, 0o644, dir_fd=parent)
            about = os.fstat(number)
            if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:  # another name of it may be anywhere
                os.close(number)
                raise BadArgument(f"{self._shown(self._part_name(entry))} is there and is something else; remove it")
            with os.fdopen(number, "r+b") as opened:
                yield opened

    def finish(self, entry: Entry) -> None:
        """Give a file that is whole its name and mode."""
        with self._parent(entry.path, create=True) as place:
            assert place
            parent, name = place
            _set_mode(parent, self._part_name(entry), 0o755 if entry.kind == "x" else 0o644)
            os.replace(self._part_name(entry), name, src_dir_fd=parent, dst_dir_fd=parent)

    def set_mode(self, entry: Entry) -> None:
        """Let a file that was there be executed, or not."""
        with self._parent(entry.path, create=False) as place:
            assert place
            parent, name = place
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
            if bool(mode & 0o100) != (entry.kind == "x"):
                _set_mode(parent, name, 0o755 if entry.kind == "x" else 0o644)

    def drop_part(self, entry: Entry) -> None:
        """Forget the beginning of a file."""
        with self._parent(entry.path, create=True) as place, contextlib.suppress(FileNotFoundError):
            assert place
            os.unlink(self._part_name(entry), dir_fd=place[0])

    def copy(self, source: Entry, entry: Entry) -> None:
        """Write a file that is there under another path."""
        with self._parent(source.path, create=False) as place, self.part(entry) as part:
            assert place
            parent, name = place
            with os.fdopen(os.open(name, _FILE, dir_fd=parent), "rb") as opened:
                part.truncate(0)
                while piece := opened.read(_PIECE):
                    part.write(piece)
        self.finish(entry)

    def make_folder(self, path: str) -> None:
        """Make a folder, and those that it is in."""
        with self._parent(f"{path}/.", create=True):
            pass

    def make_link(self, entry: Entry) -> None:
        """Make a link. BadArgument when something else is in its place."""
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
                    raise BadArgument(f"{self._shown(entry.path)} is there and is something else") from None

    @contextmanager
    def _parent(self, path: str, *, create: bool) -> Iterator[tuple[int, str] | None]:
        """Yield the opened folder that a path is in, and its last part; None where that folder is not there."""
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
        except OSError:  # a link, or a file
            raise BadArgument(f"{self._shown(path)}: {visible(name)} is no folder there, or a link") from None

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
    """Set the mode of a file, and of nothing that a link in its place leads to."""
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
