"""Functions that find and stop the processes of a local cluster.

A kernel lock allows one cluster per checkout, and a killed starter releases it. Each process has an environment
variable that identifies its run. Only processes with this variable are signaled.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

#: Environment variable that every process of a run has. Its value is Run.mark.
MARK = "THREADS_CLUSTER_RUN"
#: Seconds to wait for the lock, because a guard process can hold it briefly.
_LOCK_PATIENCE_SECONDS = 1.0
_GUARD_SECONDS = 0.5


@dataclass(frozen=True)
class Run:
    """One start of a cluster. The data of the cluster is in `folder`."""

    folder: Path
    name: str

    @classmethod
    def new(cls, folder: Path) -> Run:
        return cls(folder, secrets.token_hex(6))

    @property
    def mark(self) -> str:
        return f"{self.name}@{self.folder}"

    def command(self, *command: str, **variables: str) -> list[str]:
        """Return the command line that runs `command` with additional environment variables.

        One of them is the mark of the run.
        """
        return [
            "/usr/bin/env",
            f"{MARK}={self.mark}",
            *(f"{name}={value}" for name, value in variables.items()),
            *command,
        ]


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock(folder: Path, patience: float = _LOCK_PATIENCE_SECONDS, name: str = "lock") -> int | None:
    """Lock a file in a folder, and return the open file. Return None if another process holds the lock.

    The lock is held until the file is closed or this process exits. `patience` is the wait time in seconds.
    """
    file = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + patience
    while not _try_lock(file):
        if time.monotonic() > deadline:
            os.close(file)
            return None
        time.sleep(0.05)
    return file


def find_marked(mark: str) -> list[psutil.Process]:
    """Return the processes whose mark ends with the text `mark`."""
    ours = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK, "").endswith(mark):
                ours.append(process)
        except (psutil.Error, OSError):
            continue
    return ours


def stop_marked(mark: str, grace: float = 10.0) -> int:
    """Stop all processes whose mark ends with the text `mark`. Return the number of processes.

    Sends SIGTERM, then SIGKILL after `grace` seconds.
    """
    own = os.getpid()
    count = 0
    for patience in (grace, 0.0, 0.0):
        ours = [process for process in find_marked(mark) if process.pid != own]
        count = max(count, len(ours))
        for process in ours:
            try:
                process.terminate() if patience else process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(ours, timeout=patience or 5.0)
    return count


def guard(run: Run) -> None:
    """Wait until the process that started the cluster exits. Then stop all processes of the run.

    This works even if the starter was killed.
    """
    while True:
        time.sleep(_GUARD_SECONDS)
        held = lock(run.folder, patience=0.0)
        if held is not None:
            os.close(held)
            stop_marked(run.mark)
            return


if __name__ == "__main__":
    guard(Run(Path(sys.argv[1]), sys.argv[2]))
