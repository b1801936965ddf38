"""Commands for `cluster up`: join a cluster in the background, and report the membership of this checkout."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deploy.local import commands
from deploy.local.joining import membership
from deploy.local.outcome import NOT_READY, OK, CommandError
from jobs.settings import LOCAL_FOLDER, STATE_FOLDER

#: Log file of the process that joins in the background.
LOG = LOCAL_FOLDER / "join.log"
#: Maximum number of characters of an invitation on stdin.
#: Timeout in seconds for joining.
_LONGEST_LINE, _JOIN_SECONDS = 1000, 60.0
#: Number of characters from the end of the log that an error message contains.
_SHOWN = 600


def state() -> int:
    """Print as JSON whether this checkout has joined a cluster, and whether its workers are running."""
    print(json.dumps(_state()), flush=True)
    return OK


def _state() -> dict[str, Any]:
    joined = membership.load()
    kept = {"url": joined.url, "name": joined.name, "workers": joined.workers} if joined else None
    return {"joined": kept, "running": commands.is_running()}


def join(options: Sequence[str]) -> int:
    """Join a cluster in the background, and print the state as JSON.

    Without an invitation on stdin, continue the last membership. Returns when the cluster has accepted this host and
    its workers are starting. Raises CommandError with the last log messages.
    """
    line = sys.stdin.readline(_LONGEST_LINE)
    LOCAL_FOLDER.mkdir(mode=0o700, exist_ok=True)
    with LOG.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "deploy.local", "join", *(["-", *options] if line.strip() else [])],
            cwd=STATE_FOLDER,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    assert process.stdin
    process.stdin.write(line.encode())
    process.stdin.close()
    deadline = time.monotonic() + _JOIN_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise CommandError(process.returncode or 1, f"join failed: {read_last_message(LOG)}")
        if membership.load() and commands.is_running():
            return state()
        time.sleep(0.1)
    process.terminate()
    raise CommandError(
        NOT_READY, f"the cluster did not accept this host within {_JOIN_SECONDS:.0f} s: {read_last_message(LOG)}"
    )


def read_last_message(log: Path) -> str:
    return log.read_text(errors="replace")[-_SHOWN:].strip().replace("\n", "; ")
