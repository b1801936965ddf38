"""Plan of a local cluster: ports, workers with their lanes, GPUs and web pages."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from deploy.local import gpus, redis_server
from deploy.local.listeners import Listeners
from deploy.local.outcome import FAILED, MISSING, USAGE, CommandError, say
from jobs.settings import CHECKOUT, LOCAL_FOLDER, STATE_FOLDER, Settings, usable_cores

#: Default address of an OpenTelemetry collector on this machine.
COLLECTOR = "http://127.0.0.1:4318"
#: Minimum free disk space in bytes that is required to start a cluster.
MIN_FREE_BYTES = 100 << 20


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Parts of a local cluster, such as its ports and workers."""

    redis_server: str
    redis_port: int
    port: int
    metrics_port: int
    #: Number of lanes for each CPU worker.
    lanes: tuple[int, ...]
    #: Number of GPU workers. Each of them uses one GPU.
    gpus: int = 0
    #: True if the cluster has a runner for programs.
    runner: bool = False
    #: Folder with the web pages, relative to STATE_FOLDER. Empty if the pages are not built.
    pages: str = ""
    #: URL of the collector to which the coordinator sends spans with the option --tracing.
    span_endpoint: str = ""
    #: Open sockets that listen on the ports of the cluster.
    listeners: Listeners | None = None

    @property
    def workers(self) -> int:
        """Return the total number of workers."""
        return len(self.lanes) + self.gpus + self.runner


def split(total: int, workers: int) -> tuple[int, ...]:
    """Divide CPU cores among workers. Each worker gets at least one core."""
    return tuple(max(1, total // workers + (number < total % workers)) for number in range(workers))


def divide_cores(threads: int, cores: int, workers: int) -> tuple[int, ...]:
    """Return the number of lanes of each CPU worker: `threads` (WORKER_THREADS), or a share of the cores if it is 0."""
    return (threads,) * workers if threads else split(cores, workers)


def plan(settings: Settings, port: int | None, workers: int, *, runner: bool = False) -> Shape:
    """Plan the parts of a local cluster and open its ports. Raises CommandError if a requirement is missing."""
    check_folder(settings, runner)
    check_free_space(LOCAL_FOLDER)
    server, gpu_workers = _redis_server(), _gpu_workers(settings)
    taken = Listeners.take(settings, port)
    return Shape(
        redis_server=server,
        redis_port=taken.redis_port,
        port=taken.port,
        metrics_port=taken.metrics_port,
        lanes=divide_cores(settings.worker_threads, usable_cores(), workers),
        gpus=gpu_workers,
        runner=runner,
        pages=_pages(settings),
        listeners=taken,
    )


def runner_obstacle() -> str:
    """Return the reason why no runner can start on this machine, or an empty string."""
    from runner.programs import processes  # import only for clusters with a runner

    if not sys.platform.startswith("linux"):
        return "runners need Linux; the kinds with kernels work here"
    if not processes.can_list_children():
        return "runners need /proc/PID/task/PID/children, which this kernel does not have"
    return ""


def check_folder(settings: Settings, runner: bool) -> None:
    """Raise CommandError if the runner could not start programs as other Unix users, or in a folder of theirs."""
    if not (runner and settings.program_uids()):
        return
    if os.geteuid():
        raise CommandError(USAGE, "RUNNER_UIDS needs root, because only root can start programs as other users")
    if not settings.runner_dir:
        raise CommandError(
            USAGE,
            f"programs of other users (RUNNER_UIDS) cannot enter {LOCAL_FOLDER}: set RUNNER_DIR to a folder that"
            " every user can"
            " enter, such as /var/lib/runner",
        )


def check_free_space(folder: Path) -> None:
    """Raise CommandError if the disk has too little free space for a cluster."""
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        raise CommandError(
            FAILED,
            f"the disk of {folder} has {free >> 20} MiB free, but a cluster needs {MIN_FREE_BYTES >> 20} MiB for its"
            " jobs, logs and compiled kernels.\n  Free some space (see df -h), then run the same command again.",
        )


def _redis_server() -> str:
    try:
        return redis_server.find(LOCAL_FOLDER / "redis")
    except redis_server.NoRedis as error:
        raise CommandError(
            MISSING,
            f"no usable Redis server: {error}.\n  Install version 7 or later (Debian 12, Ubuntu 24.04: sudo apt install"
            " redis-server; Fedora: sudo dnf install valkey; macOS: brew install redis), then run the same command"
            " again.",
        ) from error
    except redis_server.NewerData as error:
        raise CommandError(MISSING, f"{error}, then run the same command again. Nothing was changed.") from error


def _gpu_workers(settings: Settings) -> int:
    try:
        count, advice = gpus.usable_gpus(settings)
    except gpus.NoGpus as error:
        raise CommandError(MISSING, str(error)) from error
    if advice:
        say(advice)
    return count


def _pages(settings: Settings) -> str:
    """Return the folder with the web pages, or "" if the pages are not built."""
    folder = CHECKOUT / (settings.pages_dir or "web/dist")
    return os.path.relpath(folder, STATE_FOLDER) if (folder / "index.html").is_file() else ""
