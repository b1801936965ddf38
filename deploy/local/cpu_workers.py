"""CPU workers of the local cluster. Their number can change while the cluster is running.

The configuration of supervisord has MAX_WORKERS such programs. Only programs with lanes are running.
"""

from __future__ import annotations

from collections.abc import Sequence

from deploy.local import private_files, release_file
from jobs.settings import LOCAL_FOLDER

MAX_WORKERS = 64
#: File with the number of lanes of each CPU worker, one per line.
LANES = LOCAL_FOLDER / "lanes"
#: File with the number of workers of all kinds, which coordinators read.
SIZE = LOCAL_FOLDER / "cluster_size"
#: Shell command that reads the lanes of worker $1 and starts it.
_START = 'WORKER_THREADS=$(sed -n "$1p" "$2"); export WORKER_THREADS; shift 2; exec "$@"'


def program_name(number: int) -> str:
    return f"cpu-worker-{number}"


def worker_id(number: int) -> str:
    return f"cpu-{number}"


def command(number: int) -> tuple[str, ...]:
    """Return the command that starts a worker with its current number of lanes."""
    start = ("/bin/sh", "-c", _START, program_name(number), str(number), f"{LOCAL_FOLDER.name}/{LANES.name}")
    return (*start, *release_file.command("-m", "cpu_worker"))


def write_lanes(lanes: Sequence[int], others: int) -> None:
    """Store the number of lanes of each CPU worker, and the total number of workers including `others`."""
    private_files.write(LANES, "".join(f"{count}\n" for count in lanes).encode())
    private_files.write(SIZE, f"{len(lanes) + others}\n".encode())


def read_lanes() -> tuple[int, ...]:
    """Return the number of lanes of each CPU worker of the running cluster."""
    return tuple(int(line) for line in LANES.read_text().split())


def is_wanted(program: str) -> bool:
    """Return False for programs of CPU workers that have no lanes."""
    numbers = range(len(read_lanes()) + 1, MAX_WORKERS + 1)
    return program not in {program_name(number) for number in numbers}
