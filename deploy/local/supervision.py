"""Configuration and start of supervisord, which restarts the programs of a local cluster when they exit."""

from __future__ import annotations

import secrets
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from deploy.local import cpu_workers, listeners, private_files, processes, redis_server, release_file, runner_token
from deploy.local.api import local_url
from deploy.local.outcome import say
from deploy.local.processes import Run
from deploy.local.shape import Shape
from jobs.settings import LOCAL_FOLDER, STATE_FOLDER, Settings, child_environment, load
from jobs.store import acl

#: Unix socket on which supervisord accepts calls. The path is relative to STATE_FOLDER, because it must be short.
SOCKET = f"{LOCAL_FOLDER.name}/supervisor"
#: Maximum length of the socket's path. supervisord appends its process ID when it binds the socket.
_MAX_PATH = 90
#: Timeout in seconds for stopping a program. A worker needs less time to commit its partial results.
STOP_SECONDS = 40.0
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

#: Configuration of the socket on which supervisord accepts calls.
_CONTROL = """\
[unix_http_server]
file={socket}
chmod=0600

[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
"""

_PROGRAM = """
[program:{name}]
command={command}
environment={environment}
priority={priority}
autostart={start}
autorestart={again}
exitcodes={ended}
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

#: Configuration of programs that stop at the same time. If workers stopped one by one, some would be killed.
_GROUP = """
[group:priority-{priority}]
programs={names}
priority={priority}
"""


@dataclass(frozen=True, kw_only=True)
class Program:
    name: str
    command: tuple[str, ...]
    environment: dict[str, str]
    #: Exit code after which supervisord does not restart the program, or None. A restart would not help.
    last_code: int | None = None
    #: Programs with a lower priority start earlier and stop later.
    priority: int
    #: False if supervisord starts the program only on request.
    autostart: bool = True


def quote_percents(text: str) -> str:
    """Escape percent signs in a text, because supervisord would expand them."""
    return text.replace("%", "%%")


#: Environment that hides the key for secrets. Only the coordinator gets the key.
_NO_KEY = {"SECRETS_KEY": ""}


def _coordinator(shape: Shape) -> dict[str, str]:
    """Return environment variables that only the coordinator gets."""
    return {
        "NODE_TYPE": "coordinator",
        "COORDINATOR_PORT": str(shape.port),
        "METRICS_PORT": str(shape.metrics_port),
        "AUDIT_FILE": f"{LOCAL_FOLDER.name}/audit.jsonl",
        "CLUSTER_SIZE_FILE": f"{LOCAL_FOLDER.name}/{cpu_workers.SIZE.name}",
        "ARTIFACT_URL": load().artifact_url or f"{LOCAL_FOLDER.name}/artifacts",
        **({"OTEL_EXPORTER_OTLP_ENDPOINT": shape.span_endpoint} if shape.span_endpoint else {}),
        # Programs of a release serve the pages of this release.
        **({"PAGES_DIR": shape.pages} if shape.pages and load().pages_dir else {}),
        # Owners of tokens can run programs on a runner, so requests without a token get only guest access.
        **({"AUTH": "guest"} if shape.runner and load().auth == "auto" else {}),
    }


def _cpu_worker(number: int, shape: Shape) -> Program:
    return Program(
        name=cpu_workers.program_name(number),
        command=cpu_workers.command(number),
        environment={"NODE_TYPE": "cpu-worker", "WORKER_ID": cpu_workers.worker_id(number), "METRICS_PORT": "0"},
        priority=30,
        autostart=number <= len(shape.lanes),
    )


def _gpu_worker(number: int) -> Program:
    return Program(
        name=f"gpu-worker-{number}",
        command=release_file.command("-m", "gpu_worker"),
        environment={"NODE_TYPE": "gpu-worker", "WORKER_ID": f"gpu-{number}", "METRICS_PORT": "0"},
        priority=30,
    )


def _runner(shape: Shape, settings: Settings) -> Program:
    """Return the program of the runner, which connects only to the coordinator."""
    return Program(
        name="runner-1",
        command=release_file.command("-m", "deploy.local.runner"),
        environment=_NO_KEY
        | {
            "NODE_TYPE": "runner",
            "WORKER_ID": runner_token.NAME,
            "WORKER_API": local_url(settings, shape.port),
            "RUNNER_DIR": settings.runner_dir or f"{LOCAL_FOLDER.name}/runner",
            "METRICS_PORT": "0",
            "REDIS_URL": "",
            "COORDINATOR_URL": "",
            "CLUSTER_TOKEN": "",
            "METRICS_TOKEN": "",
            "WORKER_TOKEN": "",
        },
        priority=30,
    )


def redis_environment(shape: Shape, role: str, password: str) -> dict[str, str]:
    """Return environment variables for a process that connects to Redis. `role` determines its Redis user."""
    return {
        "REDIS_URL": redis_url(shape, role, password),
        "CLUSTER_SIZE": str(shape.workers),
    }


def guard(run: Run) -> Program:
    """Return the program that stops all other programs when the process that started the cluster exits."""
    command = (sys.executable, "-m", "deploy.local.processes", str(run.folder), run.name)
    return Program(name="guard", command=command, environment=_NO_KEY, priority=1)


#: Shell command that waits for the first invitation. It needs less memory than a Python program.
_DOOR = 'until [ -f "$1" ]; do sleep 1; done; shift; exec "$@"'


def _door(shape: Shape) -> Program:
    """Return the coordinator that serves HTTPS to other machines."""
    return Program(
        name="door",
        command=(
            *("/bin/sh", "-c", _DOOR, "door", f"{LOCAL_FOLDER.name}/door.json"),
            *release_file.command("-m", "deploy.local.joining.https_coordinator"),
        ),
        environment=_coordinator(shape) | {"AUTH": "required", "METRICS_PORT": "0"},
        priority=25,
    )


def programs(shape: Shape, run: Run, passwords: Mapping[str, str]) -> list[Program]:
    """Return all programs of a local cluster for supervisord, the guard first.

    `passwords` are keyed by Redis user.
    """
    coordinating = redis_environment(shape, "coordinator", passwords["coordinator"])
    # Programs that a worker runs must not see the admin token of the user.
    working = (
        redis_environment(shape, "worker", passwords["worker"])
        | _NO_KEY
        | {"CLUSTER_TOKEN": "", "WORKER_API": "", "COORDINATOR_URL": ""}
    )
    redis = (shape.redis_server, f"{run.folder}/redis.conf")
    sockets = f"{LOCAL_FOLDER.name}/{listeners.FILE.name}"
    coordinator = release_file.command("-m", "coordinator", "--sockets", sockets)
    door = _door(shape)
    workers = [
        *(_cpu_worker(number, shape) for number in range(1, cpu_workers.MAX_WORKERS + 1)),
        *(_gpu_worker(number) for number in range(1, shape.gpus + 1)),
    ]
    return [
        guard(run),
        Program(name="redis", command=redis, environment=_NO_KEY, priority=10),
        Program(
            name="coordinator",
            command=coordinator,
            environment=coordinating | _coordinator(shape),
            priority=20,
        ),
        replace(door, environment=coordinating | door.environment),
        *(replace(worker, environment=working | worker.environment) for worker in workers),
        *([_runner(shape, load())] if shape.runner else []),
    ]


def _section(program: Program, folder: str) -> str:
    return _PROGRAM.format(
        name=program.name,
        priority=program.priority,
        folder=folder,
        start=str(program.autostart).lower(),
        again="true" if program.last_code is None else "unexpected",
        ended=program.last_code or 0,
        command=quote_percents(shlex.join(program.command)),
        environment=quote_percents(",".join(f'{name}="{value}"' for name, value in program.environment.items())),
    )


def redis_url(shape: Shape, role: str, password: str) -> str:
    """Return the URL of the cluster's Redis server for a Redis user."""
    return f"redis://{role}:{password}@127.0.0.1:{shape.redis_port}/0"


def passwords() -> dict[str, str]:
    """Return new random passwords for the Redis users, keyed by role."""
    return {role.name: secrets.token_hex(24) for role in acl.ROLES}


def write(shape: Shape, run: Run, passwords: Mapping[str, str]) -> Path:
    """Write the configuration files of supervisord and Redis. Return the path of supervisord's file.

    Paths of data are relative to STATE_FOLDER, where supervisord runs, because its format cannot quote every character.
    """
    redis_server.write_configuration(run.folder, shape.redis_port, passwords)
    cpu_workers.write_lanes(shape.lanes, shape.workers - len(shape.lanes))
    return write_programs(programs(shape, run, passwords), run)


def write_programs(supervised: Sequence[Program], run: Run) -> Path:
    """Write a configuration file for supervisord, and return its path."""
    folder = run.folder.name
    (run.folder / "logs").mkdir(exist_ok=True)
    path = run.folder / "supervisord.conf"
    sections = [_section(program, folder) for program in supervised]
    text = "".join([_SUPERVISORD.format(folder=folder), _control(), *sections, *_groups(supervised)])
    private_files.write(path, text.encode())
    return path


def _groups(supervised: Sequence[Program]) -> list[str]:
    names: defaultdict[int, list[str]] = defaultdict(list)
    for program in supervised:
        names[program.priority].append(program.name)
    return [_GROUP.format(priority=priority, names=",".join(several)) for priority, several in names.items()]


def _control() -> str:
    """Return the configuration of SOCKET, or "" if its path is too long when supervisord makes it absolute."""
    here = Path("/proc/self/cwd")
    path = f"{here if here.exists() else STATE_FOLDER}/{SOCKET}"
    return _CONTROL.format(socket=quote_percents(path)) if len(path) <= _MAX_PATH else ""


def start(configuration: Path, run: Run, **variables: str) -> subprocess.Popen[bytes]:
    """Start supervisord with a configuration file. It runs in its own session.

    Signals of the terminal therefore reach only the starter, which then stops supervisord.
    """
    name = f"{LOCAL_FOLDER.name}/{configuration.name}"
    (STATE_FOLDER / SOCKET).unlink(missing_ok=True)  # supervisord would wait for the socket of a killed supervisord
    return subprocess.Popen(
        run.command(sys.executable, "-m", "deploy.local.supervisor_daemon", "-c", name),
        cwd=STATE_FOLDER,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=child_environment(PROFILE_DIR=load().profile_dir or f"{LOCAL_FOLDER.name}/profiles", **variables),
    )


def end(supervisor: subprocess.Popen[bytes] | None, run: Run) -> None:
    """Stop supervisord and its programs. Kill processes that do not stop in time."""
    if supervisor and supervisor.poll() is None:
        supervisor.terminate()
        try:
            supervisor.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            say("Some processes did not stop in time; killing them.")
    processes.stop_marked(run.mark)
