"""Functions that read the logs of supervisord and of its programs."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from jobs.settings import LOCAL_FOLDER

FOLDER = LOCAL_FOLDER / "logs"
SUPERVISOR = FOLDER / "supervisord.log"


def relative_path(log: Path) -> str:
    """Return the path of a log relative to the checkout."""
    return str(log.relative_to(LOCAL_FOLDER.parent))


def read_tail(log: Path, lines: int = 20) -> str:
    """Return the last lines of a log, below a heading with the log's path."""
    if not log.exists():
        return f"There is no {relative_path(log)} yet."
    text = log.read_text(errors="replace").splitlines()[-lines:]
    return "\n".join([f"The end of {relative_path(log)}:", *(f"  {line}" for line in text)])


def read_tails() -> str:
    """Return the last lines of all logs, except for the guard's log."""
    return "\n".join(read_tail(log, 8) for log in sorted(FOLDER.glob("*.log")) if log.stem != "guard")


def log_size() -> int:
    """Return the size of supervisord's log in bytes, as a start for `count_exits`."""
    return SUPERVISOR.stat().st_size if SUPERVISOR.exists() else 0


def count_exits(start: int) -> Counter[str]:
    """Return how often each program has exited, according to supervisord's log from byte `start` on."""
    if not SUPERVISOR.exists():
        return Counter()
    with SUPERVISOR.open("rb") as file:
        file.seek(start)
        text = file.read().decode(errors="replace")
    return Counter(re.findall(r" exited: (\S+) ", text))
