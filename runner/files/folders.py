"""Folder of a slot, in which its programs start: it has a job's files, and nothing that an earlier unit left."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.commands import RESULT
from runner.files import globs

#: Most bytes of a value, wherever it goes.
LARGEST_VALUE = 1 << 20
#: Levels of folders that a program may leave; deeper ones are removed by another program.
_DEPTH = 200
#: Longest path below a slot's folder in bytes: the system takes 4,095 in all, with the slot's own and a name in it.
_LONGEST = 3000


class TooDeep(Exception):
    """A program left folders within folders beyond what is walked here."""


class BadValue(Exception):
    """The value that a program wrote cannot be taken; the message says why."""


@dataclass(frozen=True)
class _Mark:
    """Marks of a path that nobody has changed: a program cannot set the time of a change of state."""

    inode: int
    size: int
    modified: int
    changed: int
    mode: int


def _mark(found: os.stat_result) -> _Mark:
    return _Mark(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode)


class Folder:
    """The folder at `path`. `place` puts one of the job's paths into it."""

    def __init__(self, path: Path, uid: int | None = None) -> None:
        self.path = path
        self._uid = uid
        self._paths: list[str] = []
        self._place: Callable[[str], None] = lambda path: None
        self._inode = 0
        #: The job's paths with what they were like when they were put here.
        self._marks: dict[str, _Mark] = {}

    def fill(self, paths: Sequence[str], place: Callable[[str], None]) -> None:
        """Make it anew with a job's paths; folders come before what is in them. Raises TooDeep, OSError."""
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
        """Remove what a unit left, and put back what it changed or removed. Raises TooDeep, OSError."""
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
        """Tell whether the folder itself is the one that was made; a program may have put something else there."""
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            return False
        return stat.S_ISDIR(found.st_mode) and found.st_ino == self._inode

    def _is_ours(self, path: str) -> bool:
        return path in self._marks

    def _is_whole(self, path: str, entry: os.DirEntry[str]) -> bool:
        """Tell whether a path of the job is as it was put here. Of a folder, what is in it may have changed."""
        try:
            found, mark = _mark(entry.stat(follow_symlinks=False)), self._marks[path]
        except FileNotFoundError:  # it went with the folder that it was in
            return False
        if stat.S_ISDIR(mark.mode):
            return (found.inode, found.mode) == (mark.inode, mark.mode)
        return found == mark

    # -- what a unit left -------------------------------------------------------------------------------------------

    def value(self) -> bytes | None:
        """Return what the program wrote as its value; None where it wrote none. Raises BadValue."""
        try:
            descriptor = os.open(self.path / RESULT, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadValue(f"CLUSTER_RESULT cannot be read: {error.strerror}") from error
        try:
            found = os.fstat(descriptor)
            if not self._is_program_s(found):
                raise BadValue("CLUSTER_RESULT is no file of the program")
            if found.st_size > LARGEST_VALUE:
                raise BadValue(f"CLUSTER_RESULT has {found.st_size} bytes, more than {LARGEST_VALUE}")
            return os.read(descriptor, LARGEST_VALUE)
        finally:
            os.close(descriptor)

    def take_outputs(self, wanted: Sequence[str], into: Path) -> None:
        """Move the files that the program wrote and a glob names below `into`. A link is never taken or followed.

        What lies deeper than is walked here is left.
        """
        if not self._is_there():  # a program may have put a link to another folder there
            return
        patterns = [globs.pattern(glob) for glob in wanted]
        for path, entry in list(walk(self.path, into=_is_near)):
            found = entry.stat(follow_symlinks=False)
            if not self._is_program_s(found) or self._is_input(path, found) or path == RESULT:
                continue
            if any(each.fullmatch(path) for each in patterns):
                (into / path).parent.mkdir(parents=True, exist_ok=True)
                (self.path / path).rename(into / path)

    def _is_input(self, path: str, found: os.stat_result) -> bool:
        return self._marks.get(path) == _mark(found)

    def _is_program_s(self, found: os.stat_result) -> bool:
        """Tell whether it is a plain file, of the program's user where that is one of its own."""
        return stat.S_ISREG(found.st_mode) and (self._uid is None or found.st_uid == self._uid)


def walk(top: Path, into: Callable[[str], bool] = lambda path: True) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield every path below a folder, each folder before what is in it; follow no link. Raises TooDeep."""
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
    """Tell whether a folder is at a depth, and has a path of a length, that is walked here."""
    return path.count("/") <= _DEPTH and len(os.fsencode(path)) <= _LONGEST


def _make_listable(folder: Path) -> Path:
    """Return a folder that its owner may list, whatever a program made of its mode."""
    if not os.access(folder, os.R_OK | os.X_OK, follow_symlinks=False):
        folder.chmod(0o700)
    return folder


def clear(path: Path) -> None:
    """Remove a file or a tree; nothing where there is none. Raises TooDeep, OSError."""
    try:
        is_folder = stat.S_ISDIR(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return
    if not is_folder:
        path.unlink()
        return
    for _ in walk(path):  # opens every folder that was closed
        pass
    shutil.rmtree(path)
