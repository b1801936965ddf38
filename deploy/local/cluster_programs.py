"""Programs of a local cluster, with their commands and environment variables."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace

from deploy.local import cpu_workers, listeners, release_file, runner_token
from deploy.local.api import local_url
from deploy.local.processes import Run
from deploy.local.shape import Shape
from jobs.settings import LOCAL_FOLDER, Settings, load
from jobs.store import acl


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


#: Environment that hides the key for secrets. Only the coordinator gets the key.
_NO_KEY = {"SECRETS_KEY": ""}


def _coordinator(shape: Shape) -> dict[str, str]:
    """Return environment variables that only the coordinator gets."""
    return {
        "NODE_TYPE": "coordinator",
        "COORDINATOR_PORT": str(shape.port),
        "METRICS_PORT": str(shape.metrics_port),
        "AUDIT_FILE": f"{LOCAL_FOLDER.name}/audit.jsonl",
        **_autoscale_limit(shape),
        "CLUSTER_SIZE_FILE": f"{LOCAL_FOLDER.name}/{cpu_workers.SIZE.name}",
        "ARTIFACT_URL": load().artifact_url or f"{LOCAL_FOLDER.name}/artifacts",
        **({"OTEL_EXPORTER_OTLP_ENDPOINT": shape.span_endpoint} if shape.span_endpoint else {}),
        # Programs of a release serve the pages of this release.
        **({"PAGES_DIR": shape.pages} if shape.pages and load().pages_dir else {}),
        # Owners of tokens can run programs on a runner, so requests without a token get only guest access.
        **({"AUTH": "guest"} if shape.runner and load().auth == "auto" else {}),
    }


def _autoscale_limit(shape: Shape) -> dict[str, str]:
    """Return the maximum number of suggested CPU workers: one per lane, because more workers would share cores."""
    settings = load()
    if "autoscale_max" in settings.model_fields_set:
        return {}
    return {"AUTOSCALE_MAX": str(max(settings.autoscale_min, sum(shape.lanes)))}


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


def redis_url(shape: Shape, role: str, password: str) -> str:
    """Return the URL of the cluster's Redis server for a Redis user."""
    return f"redis://{role}:{password}@127.0.0.1:{shape.redis_port}/0"


def passwords() -> dict[str, str]:
    """Return new random passwords for the Redis users, keyed by role."""
    return {role.name: secrets.token_hex(24) for role in acl.ROLES}
