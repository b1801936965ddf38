"""Report of a failed unit: its error message, and the record that is stored."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import dataclass
from typing import Any

from runner.programs.guard_messages import ProgramEnd

#: Maximum size in bytes of a failure record as JSON.
MAX_ROW = 4096
#: Maximum size in bytes of a value and an error message in a failure record as JSON.
_MOST_VALUE = 3200
#: Maximum length of an error message in characters.
#: `MAX_LINE` is the maximum length of the line of program output in the message.
MAX_ERROR, MAX_LINE = 300, 200


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Failure of a unit, with the exit code and the end of stderr."""

    error: str
    #: Exit code, 126 or 127 if the program could not be started, or None if no start was attempted.
    exit: int | None = None
    #: Reason of the failure: timeout, memory, processes, disk or not started. Empty if the program exited by itself.
    reason: str = ""
    seconds: float = 0.0
    tail: str = ""
    #: Value that the program sent with the error, or None. A value that does not fit into a record is a file.
    value: Any = None


def fits_record(value: Any, error: str) -> bool:
    """Return True if the record of a failure can contain a value."""
    return len(json.dumps(value, separators=(",", ":"))) + len(json.dumps(error[:MAX_ERROR])) <= _MOST_VALUE


def failure(ended: ProgramEnd, tail: str, timeout_seconds: float) -> Failure | None:
    """Return the failure of a finished program, or None if it succeeded."""
    if not ended.code and not ended.reason:
        return None
    reason = "not started" if ended.error else ended.reason
    return Failure(
        error=_describe(ended, tail, timeout_seconds),
        exit=ended.code,
        reason=reason,
        seconds=round(ended.seconds, 3),
        tail=tail,
    )


def disk_full(ended: ProgramEnd, tail: str, workspace: str = "") -> Failure:
    """Return the failure of a program that filled the runner's disk.

    `workspace` is the program's workspace if the disk is still full.
    """
    stays = f"; its workspace {workspace} was not deleted, so delete its files on the runner" if workspace else ""
    return Failure(
        error="disk full: the program left no space on the runner's disk, so its output could not be stored and its"
        f" files were deleted{stays}; reduce its output, or run it on a runner with more space in RUNNER_DIR",
        exit=ended.code,
        reason="disk",
        seconds=round(ended.seconds, 3),
        tail=tail,
    )


def _describe(ended: ProgramEnd, tail: str, timeout_seconds: float) -> str:
    if ended.error:
        return f"the program could not be started: {ended.error}"
    limits = {
        "timeout": f"the program ran longer than timeout_seconds, {timeout_seconds:g}",
        "memory": "the program and its child processes exceeded the memory limit; raise requirements.memory_mib",
        "processes": "the program exceeded the limit of concurrent processes",
    }
    return limits.get(ended.reason) or ": ".join(filter(None, (_status(ended.code), _last_line(tail))))


def _last_line(text: str) -> str:
    """Return the last line that is not blank, or an empty string. A long line loses its end."""
    return text.strip().rpartition("\n")[2].strip()[:MAX_LINE]


def _status(code: int) -> str:
    if code > 128:
        try:
            return f"the program was killed by {signal.Signals(code - 128).name}, exit code {code}"
        except ValueError:
            pass
    return f"exit code {code}"


def serialize_failure(failure: Failure, *, unit: int, attempt: int, worker: str, host: str) -> str:
    """Encode a failure as JSON of at most MAX_ROW bytes. If needed, drop the start of the output."""
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
        **({} if failure.value is None else {"value": failure.value}),
    }
    while len(text := json.dumps(fields, separators=(",", ":"))) > MAX_ROW:
        fields["tail"] = fields["tail"][len(fields["tail"]) // 4 + 1 :]
    return text
