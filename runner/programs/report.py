"""Report of a unit that failed: the words for people, and the row that is kept of it."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import dataclass
from typing import Any

from runner.programs.orders import ProgramEnd

#: Most bytes of the row as JSON.
MAX_ROW = 4096
#: Characters of its error.
MAX_ERROR = 300


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a unit counts as failed."""

    error: str
    #: Exit code, as of a shell where it could not be started; None where nothing was.
    exit: int | None = None
    #: timeout, memory, processes, disk, not started; empty where it ended by itself.
    reason: str = ""
    seconds: float = 0.0
    tail: str = ""


def failure(ended: ProgramEnd, tail: str, timeout_seconds: float) -> Failure | None:
    """Return why a program that ended counts as failed; None where it does not."""
    if not ended.code and not ended.reason:
        return None
    reason = "not started" if ended.error else ended.reason
    return Failure(
        error=_describe(ended, timeout_seconds),
        exit=ended.code,
        reason=reason,
        seconds=round(ended.seconds, 3),
        tail=tail,
    )


def disk_full(ended: ProgramEnd, tail: str, workspace: str = "") -> Failure:
    """Return the failure of a program that left no space on its runner's disk. `workspace`: it is still full."""
    stays = f"; its workspace {workspace} stays, and must be emptied on the runner" if workspace else ""
    return Failure(
        error="disk full: the program left no space on the runner's disk, so its output could not be kept and its files"
        f" were removed{stays}; have it write less, or run it where RUNNER_DIR has more space",
        exit=ended.code,
        reason="disk",
        seconds=round(ended.seconds, 3),
        tail=tail,
    )


def _describe(ended: ProgramEnd, timeout_seconds: float) -> str:
    if ended.error:
        return f"it could not be started: {ended.error}"
    limits = {
        "timeout": f"it took longer than timeout_seconds, {timeout_seconds:g}",
        "memory": "it and what it started used more memory than they may; ask for more with requirements.memory_mib",
        "processes": "it started more processes than it may",
    }
    return limits.get(ended.reason) or _status(ended.code)


def _status(code: int) -> str:
    if code > 128:
        try:
            return f"it was ended by {signal.Signals(code - 128).name}, exit code {code}"
        except ValueError:
            pass
    return f"exit code {code}"


def serialize_failure(failure: Failure, *, unit: int, attempt: int, worker: str, host: str) -> str:
    """Return a failure as it is kept, at most MAX_ROW bytes of JSON: its tail is cut from the front."""
    fields: dict[str, Any] = {
        "unit": unit,
        "exit": failure.exit,
        "reason": failure.reason,
        "seconds": failure.seconds,
        "attempt": attempt,
        "worker": worker,
        "host": host,
        "at": round(time.time(), 3),
        "error": failure.error[:MAX_ERROR],
        "tail": failure.tail,
    }
    while len(text := json.dumps(fields, separators=(",", ":"))) > MAX_ROW:
        fields["tail"] = fields["tail"][len(fields["tail"]) // 4 + 1 :]
    return text
