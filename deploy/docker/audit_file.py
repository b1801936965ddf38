"""Save or restore AUDIT_FILE. Backup and restore pipe this program into a coordinator: `python3 - dump|load FILE`.

`dump` writes the complete lines of the file to stdout. `load` reads such lines from stdin and prints the outcome:

    put back       the file was missing, or held only the first of these lines
    kept           the file starts with these lines, so it was not changed
    aside NAME     the file belonged to another log; it was renamed to NAME and replaced by these lines
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

_PIECE = 1 << 20


def complete_size(path: Path) -> int:
    """Return the number of bytes up to the end of a file's last complete line, or 0 if there is no file."""
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
    """Write the complete lines of AUDIT_FILE to stdout. A coordinator can append lines meanwhile."""
    left = complete_size(path)
    if left:
        with path.open("rb") as file:
            while left > 0:
                piece = file.read(min(_PIECE, left))
                if not piece:
                    sys.exit("The file became shorter while it was read; run the same command again")
                left -= sys.stdout.buffer.write(piece)
    return ""


def load(path: Path) -> str:
    """Write the lines from stdin to AUDIT_FILE without overwriting other lines, and return the outcome."""
    new = path.with_name(f".{path.name}.restore")
    with new.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        os.fsync(file.fileno())
    new.chmod(0o600)
    present, restored = complete_size(path), new.stat().st_size
    if complete_size(new) != restored:
        new.unlink()
        sys.exit("The input ends with an incomplete line; nothing was changed")
    answer = "put back"
    if present and not _have_same_start(path, new, min(present, restored)):
        aside = path.with_name(f"{path.name}.before-restore-{int(time.time())}")
        path.rename(aside)
        answer = f"aside {aside.name}"
    elif present >= restored:
        new.unlink()
        return "kept"
    new.rename(path)
    return answer


def _have_same_start(one: Path, other: Path, length: int) -> bool:
    """Return True if the first `length` bytes of both files are equal."""
    with one.open("rb") as left, other.open("rb") as right:
        for start in range(0, length, _PIECE):
            size = min(_PIECE, length - start)
            if left.read(size) != right.read(size):
                return False
    return True


if __name__ == "__main__":
    sys.stdout.write({"dump": dump, "load": load}[sys.argv[1]](Path(sys.argv[2])))
