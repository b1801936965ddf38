"""`join` that goes on without who started it, for `cluster up`: whether this checkout has joined, and the start."""

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
from deploy.local.shape import CHECKOUT
from jobs.settings import LOCAL_FOLDER

#: What the started `join` says.
LOG = LOCAL_FOLDER / "join.log"
#: Characters of an invitation on stdin at most, and seconds until the cluster has taken it.
_LONGEST_LINE, _JOIN_SECONDS = 1000, 60.0
#: Characters of the log that are shown of a join that failed.
_SHOWN = 600


def state() -> int:
    """Print whether this checkout has joined a cluster, and whether its workers are started, as JSON."""
    print(json.dumps(_state()), flush=True)
    return OK


def _state() -> dict[str, Any]:
    joined = membership.load()
    kept = {"url": joined.url, "name": joined.name, "workers": joined.workers} if joined else None
    return {"joined": kept, "running": commands.running()}


def join(options: Sequence[str]) -> int:
    """Join with the invitation on stdin, or go on where there is none, in a session of its own; print the state.

    Returns once the cluster has taken this host and its workers are being started. Raises CommandError with what it
    said.
    """
    line = sys.stdin.readline(_LONGEST_LINE)
    LOCAL_FOLDER.mkdir(mode=0o700, exist_ok=True)
    with LOG.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "deploy.local", "join", *(["-", *options] if line.strip() else [])],
            cwd=CHECKOUT,
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
            raise CommandError(process.returncode or 1, f"join ended: {read_last_message(LOG)}")
        if membership.load() and commands.running():
            return state()
        time.sleep(0.1)
    process.terminate()
    raise CommandError(
        NOT_READY, f"the cluster did not take this host within {_JOIN_SECONDS:.0f} s: {read_last_message(LOG)}"
    )


def read_last_message(log: Path) -> str:
    return log.read_text(errors="replace")[-_SHOWN:].strip().replace("\n", "; ")
