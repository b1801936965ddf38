"""Working directory of the programs in a slot. At the start of a unit, it contains only the job's files."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from runner.commands import RESULT
from runner.files import globs

#: Maximum size in bytes of a program's value.
LARGEST_VALUE = 1 << 20
#: Maximum number of paths in the working directory that are searched for new files.
MOST_ENTRIES = 10_000
#: Maximum depth of nested folders that `walk` reads.
_DEPTH = 200
#: Maximum length in bytes of a path in the working directory. Linux allows 4095 for the complete path.
_LONGEST = 3000
#: Maximum number of characters of a path in an error message.
_SHOWN = 200


class TooDeep(Exception):
    """A program created folders that are nested too deeply to read."""


class BadValue(Exception):
    """The value that a program wrote is invalid. The message contains the reason."""


@dataclass(frozen=True)
class _Mark:
    """File metadata that reveals changes to a path. Programs cannot set a file's ctime."""

    inode: int
    size: int
    modified: int
    changed: int
    mode: int


def _mark(found: os.stat_result) -> _Mark:
    return _Mark(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode)


class Folder:
    """Working directory of a slot's programs at `path`. The function `place` creates a file or folder of the job."""

    def __init__(self, path: Path, uid: int | None = None) -> None:
        self.path = path
        self._uid = uid
        self._paths: list[str] = []
        self._place: Callable[[str], None] = lambda path: None
        self._inode = 0
        #: Metadata of the job's paths, recorded when the paths were created.
        self._marks: dict[str, _Mark] = {}

    def fill(self, paths: Sequence[str], place: Callable[[str], None]) -> None:
        """Create the working directory and the job's paths in it. Raises TooDeep and OSError.

        Folders must precede their contents in `paths`.
        """
        self._paths, self._place = list(paths), place
        self._fill()

    def _fill(self) -> None:
        self._marks = {}
        clear(self.path)
        self.path.mkdir(mode=0o700, parents=True)
        self._own("")
        self._inode = self.path.lstat().st_ino
        for path in self._paths:
            self._put(path)

    def _put(self, path: str) -> None:
        self._place(path)
        self._own(path)
        self._marks[path] = _mark((self.path / path).lstat())

    def _own(self, path: str) -> None:
        if self._uid is not None:
            os.chown(self.path / path, self._uid, self._uid, follow_symlinks=False)

    def restore(self) -> None:
        """Delete the files that a unit created, and restore the job's files. Raises TooDeep and OSError."""
        if not self._is_there():
            self._fill()
            return
        self.path.chmod(0o700)
        kept: set[str] = set()
        for path, entry in list(walk(self.path, into=self._is_ours)):
            if self._is_ours(path) and self._is_whole(path, entry):
                kept.add(path)
            else:
                clear(self.path / path)
        for path in self._paths:
            if path not in kept:
                clear(self.path / path)
                self._put(path)

    def _is_there(self) -> bool:
        """Return True if the working directory still exists and no program has replaced it."""
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            return False
        return stat.S_ISDIR(found.st_mode) and found.st_ino == self._inode

    def _is_ours(self, path: str) -> bool:
        return path in self._marks

    def _is_whole(self, path: str, entry: os.DirEntry[str]) -> bool:
        """Return True if a path of the job is unchanged. For folders, the contents are not compared."""
        try:
            found, mark = _mark(entry.stat(follow_symlinks=False)), self._marks[path]
        except FileNotFoundError:  # The parent folder no longer exists
            return False
        if stat.S_ISDIR(mark.mode):
            return (found.inode, found.mode) == (mark.inode, mark.mode)
        return found == mark

    # -- outputs of a unit ---------------------------------------------------------------------------------------------

    def value(self) -> bytes | None:
        """Return the content of the file with the program's value, or None if the program wrote none. Raises
        BadValue.
        """
        try:
            descriptor = os.open(self.path / RESULT, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadValue(f"cannot read the file CLUSTER_RESULT: {error.strerror}") from error
        try:
            found = os.fstat(descriptor)
            if not self._is_program_s(found):
                raise BadValue("CLUSTER_RESULT is not a regular file of the program")
            if found.st_size > LARGEST_VALUE:
                raise BadValue(f"CLUSTER_RESULT has {found.st_size} bytes; the maximum is {LARGEST_VALUE}")
            return os.read(descriptor, LARGEST_VALUE)
        finally:
            os.close(descriptor)

    def take_outputs(self, wanted: Sequence[str], into: Path) -> None:
        """Move a unit's new and changed files that match one of the globs into another folder. Ignores links.

        Files that are nested too deeply are skipped.
        """
        if not self._is_there():  # The program replaced its working directory, for example by a link
            return
        patterns = [globs.pattern(glob) for glob in wanted]
        for path, entry in list(walk(self.path, into=_is_near)):
            found = entry.stat(follow_symlinks=False)
            if not self._is_program_s(found) or self._is_input(path, found) or path == RESULT:
                continue
            if any(each.fullmatch(path) for each in patterns):
                (into / path).parent.mkdir(parents=True, exist_ok=True)
                (self.path / path).rename(into / path)

    def take_file(self, name: str, into: Path) -> None:
        """Move one file of the program into another folder. Raises BadValue if it is not a regular file of it."""
        path = self.path / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise BadValue(f"the file {name[:_SHOWN]!r} must be in the working directory")
        try:
            if path.parent.resolve() != path.parent or not self._is_program_s(path.lstat()):
                raise BadValue(f"{name[:_SHOWN]!r} is not a regular file of the program")
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            path.rename(into / name)
        except FileNotFoundError:
            raise BadValue(f"the file {name[:_SHOWN]!r} does not exist") from None

    def new_files(self) -> list[str]:
        """Return paths of files that a unit created, among the first MOST_ENTRIES paths of the working directory.

        Hidden files and caches of Python are omitted.
        """
        if not self._is_there():
            return []
        found: list[str] = []
        with contextlib.suppress(TooDeep, OSError):
            for path, entry in islice(walk(self.path, into=_is_visible), MOST_ENTRIES):
                if not self._is_ours(path) and _is_visible(path) and entry.is_file(follow_symlinks=False):
                    found.append(path)
        return found

    def _is_input(self, path: str, found: os.stat_result) -> bool:
        return self._marks.get(path) == _mark(found)

    def _is_program_s(self, found: os.stat_result) -> bool:
        """Return True for a regular file. If the slot has its own Unix user, the file must also belong to this user."""
        return stat.S_ISREG(found.st_mode) and (self._uid is None or found.st_uid == self._uid)


def walk(top: Path, into: Callable[[str], bool] = lambda path: True) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield every path in a folder, with folders before their contents. Does not follow links. Raises TooDeep."""
    waiting = [""]
    while waiting:
        below = waiting.pop()
        if not _is_near(below):
            raise TooDeep(below[:100])
        with (
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(_make_listable(top / below)) as entries,
        ):
            for entry in entries:
                path = f"{below}/{entry.name}" if below else entry.name
                yield path, entry
                if entry.is_dir(follow_symlinks=False) and into(path):
                    waiting.append(path)


def _is_near(path: str) -> bool:
    """Return True if the depth and the length of a folder's path are within the limits of `walk`."""
    return path.count("/") <= _DEPTH and len(os.fsencode(path)) <= _LONGEST


def _is_visible(path: str) -> bool:
    name = path.rpartition("/")[2]
    return not name.startswith(".") and name != "__pycache__"


def _make_listable(folder: Path) -> Path:
    """Let the owner list a folder, and return its path. Programs can remove this permission."""
    if not os.access(folder, os.R_OK | os.X_OK, follow_symlinks=False):
        folder.chmod(0o700)
    return folder


def clear(path: Path) -> None:
    """Delete a file or a tree if it exists. Raises TooDeep and OSError."""
    try:
        is_folder = stat.S_ISDIR(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return
    if not is_folder:
        path.unlink()
        return
    for _ in walk(path):  # Walking lets the owner list every folder
        pass
    shutil.rmtree(path)
