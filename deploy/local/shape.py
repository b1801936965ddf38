"""Parts of a local cluster on this machine: ports, workers with their lanes, GPUs, pages."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from deploy.local import gpus, redis_server
from deploy.local.listeners import Listeners
from deploy.local.outcome import FAILED, MISSING, USAGE, CommandError, say
from jobs.settings import LOCAL_FOLDER, Settings, usable_cores

CHECKOUT = LOCAL_FOLDER.parent
#: Bytes that the disk must have left for what a cluster writes.
LEAST_FREE = 100 << 20


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The parts of a local cluster."""

    redis_server: str
    redis_port: int
    port: int
    metrics_port: int
    #: Lanes of each CPU worker.
    lanes: tuple[int, ...]
    #: Number of GPU workers; each claims one GPU.
    gpus: int = 0
    #: Whether there is a runner of programs.
    runner: bool = False
    #: A folder with the pages that the coordinator serves, relative to the checkout; empty: none.
    pages: str = ""
    #: Sockets that listen on these ports.
    listeners: Listeners | None = None

    @property
    def workers(self) -> int:
        """Number of workers of all sorts."""
        return len(self.lanes) + self.gpus + self.runner


def split(total: int, workers: int) -> tuple[int, ...]:
    """Deal `total` cores out to the workers, at least one each."""
    return tuple(max(1, total // workers + (number < total % workers)) for number in range(workers))


def plan(settings: Settings, port: int | None, workers: int, *, runner: bool = False) -> Shape:
    """Decide what runs, and take its ports. Raises CommandError when something is missing or a port is taken."""
    check_folder(settings, runner)
    check_room(LOCAL_FOLDER)
    server, gpu_workers = _redis_server(), _gpu_workers(settings)
    taken = Listeners.take(settings, port)
    lanes = (settings.worker_threads,) * workers if settings.worker_threads else split(usable_cores(), workers)
    return Shape(
        redis_server=server,
        redis_port=taken.redis_port,
        port=taken.port,
        metrics_port=taken.metrics_port,
        lanes=lanes,
        gpus=gpu_workers,
        runner=runner,
        pages=_pages(settings),
        listeners=taken,
    )


def check_folder(settings: Settings, runner: bool) -> None:
    """Raise CommandError where programs could not enter the folder in which they are to run."""
    if runner and settings.program_uids() and not settings.runner_dir:
        raise CommandError(
            USAGE,
            f"programs of other users (RUNNER_UIDS) cannot enter {LOCAL_FOLDER}: set RUNNER_DIR=/var/lib/runner,"
            " or another folder that every user may pass through",
        )


def check_room(folder: Path) -> None:
    """Raise CommandError where the disk of a folder has too little room for what a cluster writes."""
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE:
        raise CommandError(
            FAILED,
            f"the disk of {folder} has {free >> 20} MiB left, and a cluster needs {LEAST_FREE >> 20} for its"
            " jobs, logs and compiled kernels.\n  Make room, see df -h, then run the same command again.",
        )


def _redis_server() -> str:
    try:
        return redis_server.find(LOCAL_FOLDER / "redis")
    except redis_server.NoRedis as error:
        raise CommandError(
            MISSING,
            f"no Redis server: {error}.\n  Install version 7 or later (Debian 12, Ubuntu 24.04: sudo apt install"
            " redis-server; Fedora: sudo dnf install valkey; macOS: brew install redis), then run the same command"
            " again.",
        ) from error
    except redis_server.NewerData as error:
        raise CommandError(MISSING, f"{error}, then run the same command again. Nothing was changed.") from error


def _gpu_workers(settings: Settings) -> int:
    try:
        count, advice = gpus.usable(settings)
    except gpus.NoGpus as error:
        raise CommandError(MISSING, str(error)) from error
    if advice:
        say(advice)
    return count


def _pages(settings: Settings) -> str:
    """Return where the coordinator finds the pages; empty when they are not built."""
    folder = settings.pages_dir or "web/dist"
    return folder if (CHECKOUT / folder / "index.html").is_file() else ""
