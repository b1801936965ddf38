"""Implementation of `./deploy-cluster.sh join` and `leave`, which run workers for the cluster of another machine."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from pydantic import ValidationError

from deploy.local import cluster_programs, commands, program_logs, release_file, shape, supervision, units
from deploy.local import gpus as local_gpus
from deploy.local.cluster_programs import Program
from deploy.local.joining import invitation, membership
from deploy.local.joining.following import Follower
from deploy.local.joining.invitation import Invitation
from deploy.local.joining.membership import Membership
from deploy.local.outcome import (
    FAILED,
    MISSING,
    OK,
    USAGE,
    CommandError,
    StopRequested,
    raise_on_stop_signals,
    say,
)
from deploy.local.processes import Run
from jobs import invalid_settings
from jobs.network import exposure
from jobs.settings import CHECKOUT, LOCAL_FOLDER, STATE_FOLDER, Settings, load, usable_cores

#: Folder with a file for each worker. A worker touches its file when the cluster accepts a heartbeat.
_BEATS = membership.FOLDER / "beats"
#: Interval in seconds between checks of the workers.
#: Maximum age of a heartbeat in seconds.
_POLL_SECONDS, _SILENT_SECONDS = 1.0, 15.0
#: Settings of a local cluster that workers of another cluster must not inherit.
_EMPTY = (
    "REDIS_URL",
    "CLUSTER_TOKEN",
    "METRICS_TOKEN",
    "SECRETS_KEY",
    "WORKER_TOKEN",
    "WORKER_API",
    "COORDINATOR_URL",
    "NODE_TYPE",
)
#: Maximum number of characters of an invitation on stdin.
_LONGEST_LINE = 1000


@dataclass(frozen=True, kw_only=True)
class JoinOptions:
    """Options of the command join."""

    #: HOST:PORT/FINGERPRINT with the token on stdin, or `-` for the whole invitation on stdin. If empty, the last
    #: membership continues.
    invitation: str = ""
    #: Name of this host in the cluster. If empty, the name of the machine is used.
    name: str = ""
    workers: int = 1
    gpus: int = 0
    runner: bool = False
    labels: str = ""
    #: True to write a systemd unit instead of running the workers.
    service: bool = False


def join(asked: JoinOptions) -> int:
    """Join a cluster with an invitation, or continue the last membership. Run the workers, and return the exit code."""
    raise_on_stop_signals()
    try:
        with commands.hold_cluster_lock():
            joined = join_cluster(asked)
            if asked.service:
                return units.write_worker_unit(joined.name)
            with Host(joined) as host:
                host.stay()
    except StopRequested:
        return OK


def join_cluster(asked: JoinOptions) -> Membership:
    before = membership.load()
    if not asked.invitation:
        if before is None:
            raise CommandError(
                USAGE, "join needs an invitation; create one with `./deploy-cluster.sh invite` on the cluster's machine"
            )
        if asked != JoinOptions(service=asked.service):
            raise CommandError(
                USAGE,
                "these options were set when this machine joined; to change them, leave the cluster and join again",
            )
        return before
    if before is not None:
        raise CommandError(
            USAGE,
            f"this checkout has already joined {before.url} as {before.name}. Start its workers with"
            " ./deploy-cluster.sh join. To join another cluster, first run ./deploy-cluster.sh leave",
        )
    given = _read_invitation(asked.invitation)
    settings = check_settings(asked)
    lanes = 0 if asked.workers == 1 else max(1, usable_cores() // max(1, asked.workers))
    name = asked.name or default_name(settings.host_name())
    made = membership.join(given, name, _worker_names(asked), lanes=lanes, labels=asked.labels)
    say(f"This machine has joined {made.url} as {made.name}.")
    if asked.runner and not settings.program_uids():
        say(
            "note: programs run as your user and can read all your files, including the tokens of this machine's"
            " workers"
        )
    return made


def _read_invitation(text: str) -> Invitation:
    """Return the invitation, with its token or all of it from stdin. Raises CommandError."""
    line = sys.stdin.readline(_LONGEST_LINE)
    try:
        return invitation.parse(line if text == "-" else f"{text}/{line}")
    except invitation.NoInvitation as error:
        raise CommandError(USAGE, str(error)) from None


def check_settings(asked: JoinOptions) -> Settings:
    """Return the settings. Raises CommandError if they do not match the options of the command."""
    if asked.labels and not asked.runner:
        raise CommandError(USAGE, "--labels requires --runner")
    try:
        settings = Settings(runner_labels=asked.labels)
    except ValidationError as error:
        why = invalid_settings.describe(error, Settings)
        raise CommandError(USAGE, why.replace("RUNNER_LABELS is", "--labels is")) from None
    shape.check_folder(settings, asked.runner)
    return settings


def default_name(host: str) -> str:
    """Shorten the name of a host, so that worker names are not too long. The end of the name is usually unique."""
    return host if len(host) <= 48 else f"{host[:38]}-{host[-9:].lstrip('-')}"


def count_gpus() -> int:
    """Return the number of usable GPUs. Raises CommandError if there is none."""
    try:
        count, advice = local_gpus.usable_gpus(load().model_copy(update={"gpu_enabled": "true"}))
    except local_gpus.NoGpus as error:
        raise CommandError(MISSING, str(error)) from error
    if advice:
        say(advice)
    return count


def _worker_names(asked: JoinOptions) -> list[str]:
    """Return the names of this host's workers without the host's name, for example `cpu-1`."""
    found = [
        *(f"cpu-{number}" for number in range(1, asked.workers + 1)),
        *(f"gpu-{number}" for number in range(1, asked.gpus + 1)),
        *(["runner-1"] if asked.runner else []),
    ]
    if not found:
        raise CommandError(USAGE, "no worker was requested; use --workers with 1 or more, --gpu or --runner")
    return found


class Host:
    """Running workers of this machine. They stop at the end of the `with` block."""

    def __init__(self, joined: Membership) -> None:
        self.joined = joined
        self.run = Run.new(LOCAL_FOLDER)
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._said_exits: Counter[str] = Counter()
        self._follower = Follower(joined)

    def __enter__(self) -> Host:
        shutil.rmtree(_BEATS, ignore_errors=True)
        _BEATS.mkdir(parents=True)
        release_file.select(Path(sys.executable), CHECKOUT)
        configuration = supervision.write_programs(
            [cluster_programs.guard(self.run), *map(self._program, self.joined.workers)], self.run
        )
        self._log_start = program_logs.log_size()
        # Programs on a runner can read the environment of the runner's parent processes.
        self._supervisor = supervision.start(configuration, self.run, **dict.fromkeys(_EMPTY, ""))
        return self

    def __exit__(self, *_: object) -> None:
        say("Stopping: the workers return their leases ...")
        self._follower.stop()
        supervision.end(self._supervisor, self.run)
        say("Stopped. Start again: ./deploy-cluster.sh join. Leave the cluster: ./deploy-cluster.sh leave")

    def _program(self, worker: str) -> Program:
        return Program(
            name=worker,
            command=release_file.command("-m", "deploy.local.joining.joined_worker", worker),
            environment=dict.fromkeys(_EMPTY, "")
            | {
                "HEARTBEAT_FILE": f"{_BEATS.relative_to(STATE_FOLDER)}/{worker}",
                **({"RUNNER_DIR": load().runner_dir or f"{LOCAL_FOLDER.name}/runner"} if "-runner-" in worker else {}),
            },
            # Exit code for invalid settings or a revoked token. A restart would not help.
            last_code=exposure.REFUSED,
            priority=30,
        )

    def stay(self) -> NoReturn:
        """Print which workers are connected until a signal arrives. Raises CommandError if supervisord exits."""
        say(
            f"{len(self.joined.workers)} worker(s) for {self.joined.url}. Logs: .cluster/logs    Stop: Ctrl-C here, or"
            " ./deploy-cluster.sh stop"
        )
        said: set[str] | None = None
        assert self._supervisor is not None
        while self._supervisor.poll() is None:
            if (working := self._working()) != said:
                said = working
                self._say(working)
            self._say_exits()
            self._follower.check()
            time.sleep(_POLL_SECONDS)
        raise CommandError(
            FAILED, f"supervisord exited unexpectedly.\n{program_logs.read_tail(program_logs.SUPERVISOR)}"
        )

    def _working(self) -> set[str]:
        """Return the workers from which the cluster has recently accepted a heartbeat."""
        now = time.time()
        beats = {path.name: path.stat().st_mtime for path in _BEATS.iterdir() if path.is_file()}
        return {worker for worker in self.joined.workers if now - beats.get(worker, 0.0) < _SILENT_SECONDS}

    def _say(self, working: set[str]) -> None:
        silent = [worker for worker in self.joined.workers if worker not in working]
        if not silent:
            say(f"  {datetime.now():%H:%M:%S}  all workers are connected to the cluster")
        else:
            why = "they compile kernels at the first start, or cannot reach the cluster and retry"
            say(f"  {datetime.now():%H:%M:%S}  not connected to the cluster yet: {', '.join(silent)} ({why})")

    def _say_exits(self) -> None:
        for name, times in program_logs.count_exits(self._log_start).items():
            if times > self._said_exits[name]:
                self._said_exits[name] = times
                log = program_logs.FOLDER / f"{name}.log"
                say(f"  {datetime.now():%H:%M:%S}  {name} exited and is being restarted. {_last_error(log)}")


def _last_error(log: Path) -> str:
    """Return the last error message in the log of a worker, or the path of the log."""
    with_errors = [line for line in program_logs.read_tail(log).splitlines() if '"level": "error"' in line]
    found = re.search(r'"message": "((?:[^"\\]|\\.)*)"', with_errors[-1]) if with_errors else None
    return found[1] if found else f"Its log: {program_logs.relative_path(log)}"


def leave(*, anyway: bool) -> int:
    """Stop the workers, revoke their tokens, and delete the membership of this machine.

    With `anyway`, do this even if the cluster is unreachable.
    """
    try:
        joined = membership.load()
    except CommandError:
        if not anyway:
            raise
        joined = None
        membership.delete_membership()
    if joined is None:
        say("This checkout has not joined a cluster.")
        return OK
    if commands.is_running() and commands.was_started_by("join"):
        commands.stop()
    left = membership.revoke_host_tokens(joined)
    if left and not anyway:
        lines = "\n  ".join(left)
        raise CommandError(
            FAILED,
            f"these tokens were not revoked:\n  {lines}\n  Run the command again when {joined.url} is reachable; or run"
            " ./deploy-cluster.sh leave --anyway here and `cluster token revoke` there",
        )
    membership.delete_membership()
    for unit in units.list_worker_units():
        say(
            f"note: {unit} still starts the workers; disable it: systemctl --user disable --now {unit.name} && rm"
            f" {unit}"
        )
    for line in left:
        say(f"note: this token is still valid: {line}")
    say(f"This machine has left {joined.url}.")
    return OK
