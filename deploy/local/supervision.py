"""Programs of supervisord: Redis, the coordinator, the workers and the runner. It starts again whatever dies."""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from deploy.local import redis_server, runner_token
from deploy.local.api import local_url
from deploy.local.processes import Run
from deploy.local.shape import Shape
from jobs.settings import LOCAL_FOLDER, Settings, load
from jobs.store import acl

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
dir {folder}/redis
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
# A title would be written over the variable that says whose process it is.
set-proc-title no
{users}
"""


@dataclass(frozen=True, kw_only=True)
class Program:
    name: str
    command: tuple[str, ...]
    environment: dict[str, str]
    #: Lower starts earlier and stops later.
    priority: int


def _quoted(text: str) -> str:
    """Quote for supervisord's files, which expand percent signs."""
    return text.replace("%", "%%")


#: The coordinator alone inherits the key from supervisord, whose file cannot quote every character.
_NO_KEY = {"SECRETS_KEY": ""}


def _coordinator(shape: Shape) -> dict[str, str]:
    """Return the coordinator's own environment."""
    return {
        "NODE_TYPE": "coordinator", "COORDINATOR_PORT": str(shape.port), "METRICS_PORT": str(shape.metrics_port),
        "AUDIT_FILE": f"{LOCAL_FOLDER.name}/audit.jsonl",
        "ARTIFACT_URL": load().artifact_url or f"{LOCAL_FOLDER.name}/artifacts",
        **({"PAGES_DIR": shape.pages} if shape.pages else {}),
        # Whoever may submit has programs run here.
        **({"AUTH": "required"} if shape.runner else {}),
    }  # fmt: skip


def _cpu_worker(number: int, lanes: int) -> Program:
    return Program(
        name=f"cpu-worker-{number}",
        command=(sys.executable, "-m", "cpu_worker"),
        environment={
            "NODE_TYPE": "cpu-worker", "WORKER_ID": f"cpu-{number}", "WORKER_THREADS": str(lanes), "METRICS_PORT": "0",
        },
        priority=30,
    )  # fmt: skip


def _gpu_worker(number: int) -> Program:
    return Program(
        name=f"gpu-worker-{number}",
        command=(sys.executable, "-m", "gpu_worker"),
        environment={"NODE_TYPE": "gpu-worker", "WORKER_ID": f"gpu-{number}", "METRICS_PORT": "0"},
        priority=30,
    )


def _runner(shape: Shape, settings: Settings) -> Program:
    """Return the runner, which reaches the coordinator alone; deploy/local/runner.py gives it its token."""
    return Program(
        name="runner-1",
        command=(sys.executable, "-m", "deploy.local.runner"),
        environment=_NO_KEY | {
            "NODE_TYPE": "runner", "WORKER_ID": runner_token.NAME, "WORKER_API": local_url(settings, shape.port),
            "RUNNER_DIR": settings.runner_dir or f"{LOCAL_FOLDER.name}/runner", "METRICS_PORT": "0",
            "REDIS_URL": "", "CLUSTER_TOKEN": "", "METRICS_TOKEN": "", "WORKER_TOKEN": "",
        },
        priority=40,
    )  # fmt: skip


def _shared(shape: Shape, role: str, password: str) -> dict[str, str]:
    """Return the environment of a process that uses Redis in a role."""
    return {
        "REDIS_URL": redis_url(shape, role, password),
        "CLUSTER_SIZE": str(shape.workers),
    }


def programs(shape: Shape, run: Run, passwords: Mapping[str, str]) -> list[Program]:
    """List what supervisord runs, the guard first; `passwords` of Redis' users."""
    coordinating = _shared(shape, "coordinator", passwords["coordinator"])
    # Programs that a worker runs must not find a token of every scope that whoever starts the cluster has set.
    working = _shared(shape, "worker", passwords["worker"]) | _NO_KEY | {"CLUSTER_TOKEN": ""}
    guard = (sys.executable, "-m", "deploy.local.processes", str(run.folder), run.name)
    redis = (shape.redis_server, f"{run.folder}/redis.conf")
    coordinator = (sys.executable, "-m", "coordinator")
    workers = [
        *(_cpu_worker(number, lanes) for number, lanes in enumerate(shape.lanes, 1)),
        *(_gpu_worker(number) for number in range(1, shape.gpus + 1)),
    ]
    return [
        Program(name="guard", command=guard, environment=_NO_KEY, priority=1),
        Program(name="redis", command=redis, environment=_NO_KEY, priority=10),
        Program(
            name="coordinator",
            command=coordinator,
            environment=coordinating | _coordinator(shape),
            priority=20,
        ),
        *(replace(worker, environment=working | worker.environment) for worker in workers),
        *([_runner(shape, load())] if shape.runner else []),
    ]


def _section(program: Program, folder: str) -> str:
    return _PROGRAM.format(
        name=program.name, priority=program.priority, folder=folder,
        command=_quoted(shlex.join(program.command)),
        environment=_quoted(",".join(f'{name}="{value}"' for name, value in program.environment.items())),
    )  # fmt: skip


def _write(path: Path, text: str) -> None:
    """Write a file that its owner alone can read from the first byte on: it holds a password."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)


def redis_url(shape: Shape, role: str, password: str) -> str:
    """Address of the cluster's Redis for one of its users."""
    return f"redis://{role}:{password}@127.0.0.1:{shape.redis_port}/0"


def passwords() -> dict[str, str]:
    """Return new passwords of Redis' users, by role."""
    return {role.name: secrets.token_hex(24) for role in acl.ROLES}


def write(shape: Shape, run: Run, passwords: Mapping[str, str]) -> Path:
    """Write what supervisord and Redis read; return the path of supervisord's file.

    Paths of data are relative to the checkout, where supervisord runs: its format cannot quote every character.
    """
    folder = run.folder.name
    given = {name: f">{password}" for name, password in passwords.items()}
    users = "\n".join(acl.lines(given, redis_server.version(redis_server.find())))
    for part in ("logs", "redis"):
        (run.folder / part).mkdir(exist_ok=True)
    _write(run.folder / "redis.conf", _REDIS.format(port=shape.redis_port, folder=folder, users=users))
    sections: Sequence[str] = [_section(program, folder) for program in programs(shape, run, passwords)]
    path = run.folder / "supervisord.conf"
    _write(path, _SUPERVISORD.format(folder=folder) + "".join(sections))
    return path
