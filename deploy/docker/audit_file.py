"""AUDIT_FILE in a coordinator's container: backup and restore pipe this into one as `python3 - dump|load FILE`.

dump writes the file's whole lines to stdout. load takes such lines on stdin and says on stdout what became of them:

    put back       there was no file, or one with only a beginning of these lines
    kept           the file begins with these lines and stays as it is: it has more of the same log
    aside NAME     the file was that of another log; it is called NAME now, and these lines have its place
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

_PIECE = 1 << 20


def complete_size(path: Path) -> int:
    """Return the bytes of a file up to the end of its last whole line; 0 where there is no file."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - _PIECE)
            file.seek(start)
            if newline := file.read(end - start).rfind(b"\n") + 1:
                return start + newline
            end = start
    return 0


def dump(path: Path) -> str:
    """Write the whole lines to stdout; a coordinator appends meanwhile."""
    left = complete_size(path)
    if left:
        with path.open("rb") as file:
            while left > 0:
                piece = file.read(min(_PIECE, left))
                if not piece:
                    sys.exit("the file was cut while it was read; run the same command again")
                left -= sys.stdout.buffer.write(piece)
    return ""


def load(path: Path) -> str:
    """Put the lines of stdin where they belong, and return what became of them. Nothing is overwritten."""
    new = path.with_name(f".{path.name}.restore")
    with new.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        os.fsync(file.fileno())
    new.chmod(0o600)
    present, restored = complete_size(path), new.stat().st_size
    if complete_size(new) != restored:
        new.unlink()
        sys.exit("stdin ended within a line; nothing was changed")
    answer = "put back"
    if present and not _same(path, new, min(present, restored)):
        aside = path.with_name(f"{path.name}.before-restore-{int(time.time())}")
        path.rename(aside)
        answer = f"aside {aside.name}"
    elif present >= restored:
        new.unlink()
        return "kept"
    new.rename(path)
    return answer


def _same(one: Path, other: Path, length: int) -> bool:
    """Return True when two files begin with the same `length` bytes."""
    with one.open("rb") as left, other.open("rb") as right:
        for start in range(0, length, _PIECE):
            size = min(_PIECE, length - start)
            if left.read(size) != right.read(size):
                return False
    return True


if __name__ == "__main__":
    sys.stdout.write({"dump": dump, "load": load}[sys.argv[1]](Path(sys.argv[2])))
