"""`./deploy-cluster.sh join` and `leave`: this machine's workers for a cluster elsewhere, under one supervisor."""

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

from deploy.local import commands, program_logs, shape, supervision
from deploy.local import gpus as usable_gpus
from deploy.local.joining import invitation, membership, units
from deploy.local.joining.membership import Membership
from deploy.local.outcome import (
    FAILED,
    MISSING,
    OK,
    USAGE,
    CommandError,
    StopRequested,
    raise_stopped_on_signals,
    say,
)
from deploy.local.processes import Run
from deploy.local.shape import CHECKOUT
from deploy.local.supervision import Program
from jobs.network import exposure
from jobs.settings import LOCAL_FOLDER, Settings, load, usable_cores

#: Touched by each worker whenever the cluster has taken its heartbeat.
_BEATS = membership.FOLDER / "beats"
#: How often the workers are looked at, and how long a heartbeat counts, in seconds.
_LOOK_SECONDS, _SILENT_SECONDS = 1.0, 15.0
#: Settings of a cluster here, which workers of another one have no use for.
_EMPTY = ("REDIS_URL", "CLUSTER_TOKEN", "METRICS_TOKEN", "SECRETS_KEY", "WORKER_TOKEN")
#: Characters of an invitation on stdin at most.
_LONGEST_LINE = 1000


@dataclass(frozen=True, kw_only=True)
class JoinOptions:
    """Wishes of who joins."""

    #: As it was printed; -: it comes on stdin; empty: go on with what was joined before.
    invitation: str = ""
    #: Name of this host in the cluster; empty: the machine's.
    name: str = ""
    workers: int = 1
    gpus: int = 0
    runner: bool = False
    labels: str = ""
    #: Write a unit of systemd and end, instead of staying.
    service: bool = False


def join(asked: JoinOptions) -> int:
    """Join with an invitation, or go on; run the workers until a signal. Returns the exit code."""
    raise_stopped_on_signals()
    try:
        with commands.alone():
            joined = join_cluster(asked)
            if asked.service:
                return units.write(joined.name)
            with Host(joined) as host:
                host.stay()
    except StopRequested:
        return OK


def join_cluster(asked: JoinOptions) -> Membership:
    before = membership.load()
    if not asked.invitation:
        if before is None:
            raise CommandError(
                USAGE, "join needs an invitation: `./deploy-cluster.sh invite` prints one on the cluster's machine"
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
            f"this checkout has joined {before.url} as {before.name} already. Start its workers:"
            " ./deploy-cluster.sh join; to join elsewhere, first: ./deploy-cluster.sh leave",
        )
    try:
        given = invitation.parse(sys.stdin.readline(_LONGEST_LINE) if asked.invitation == "-" else asked.invitation)
    except invitation.NoInvitation as error:
        raise CommandError(USAGE, str(error)) from None
    settings = check_settings(asked)
    lanes = 0 if asked.workers == 1 else max(1, usable_cores() // max(1, asked.workers))
    name = asked.name or default_name(settings.host_name())
    made = membership.join(given, name, _sorts(asked), lanes=lanes, labels=asked.labels)
    say(f"This machine has joined {made.url} as {made.name}.")
    if asked.runner and not settings.program_uids():
        say("note: programs run here as you, and can read what you can, the tokens of this machine's workers too")
    return made


def check_settings(asked: JoinOptions) -> Settings:
    """Return the settings, if the workers can use them with what was asked for. Raises CommandError."""
    if asked.labels and not asked.runner:
        raise CommandError(USAGE, "--labels are of a runner: give --runner too")
    try:
        settings = Settings(runner_labels=asked.labels)
    except ValidationError as error:
        raise CommandError(USAGE, f"--labels: {error.errors()[0]['msg']}") from None
    shape.check_folder(settings, asked.runner)
    return settings


def default_name(host: str) -> str:
    """Return a host's name, shortened so that its workers' names fit; what makes it the only one is at its end."""
    return host if len(host) <= 48 else f"{host[:38]}-{host[-9:].lstrip('-')}"


def gpus() -> int:
    """Return how many GPUs a worker each can use here. Raises CommandError where there is none."""
    try:
        count, advice = usable_gpus.usable(load().model_copy(update={"gpu_enabled": "true"}))
    except usable_gpus.NoGpus as error:
        raise CommandError(MISSING, str(error)) from error
    if advice:
        say(advice)
    return count


def _sorts(asked: JoinOptions) -> list[str]:
    """Return the workers of the host by sort and number."""
    found = [
        *(f"cpu-{number}" for number in range(1, asked.workers + 1)),
        *(f"gpu-{number}" for number in range(1, asked.gpus + 1)),
        *(["runner-1"] if asked.runner else []),
    ]
    if not found:
        raise CommandError(USAGE, "nothing would run here: give --workers 1 or more, --gpu or --runner")
    return found


class Host:
    """The workers of this machine, that run; they end with the `with` block."""

    def __init__(self, joined: Membership) -> None:
        self.joined = joined
        self.run = Run.new(LOCAL_FOLDER)
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._said_exits: Counter[str] = Counter()

    def __enter__(self) -> Host:
        shutil.rmtree(_BEATS, ignore_errors=True)
        _BEATS.mkdir(parents=True)
        configuration = supervision.write_programs(
            [supervision.guard(self.run), *map(self._program, self.joined.workers)], self.run
        )
        self._log_start = program_logs.size()
        # Programs of a runner could read the environment of its parents.
        self._supervisor = supervision.start(configuration, self.run, **dict.fromkeys(_EMPTY, ""))
        return self

    def __exit__(self, *_: object) -> None:
        say("Stopping: the workers give back what they hold ...")
        supervision.end(self._supervisor, self.run)
        say("Stopped. Start again: ./deploy-cluster.sh join; for good: ./deploy-cluster.sh leave")

    def _program(self, worker: str) -> Program:
        return Program(
            name=worker,
            command=(sys.executable, "-m", "deploy.local.joining.joined_worker", worker),
            environment=dict.fromkeys(_EMPTY, "")
            | {
                "HEARTBEAT_FILE": f"{_BEATS.relative_to(CHECKOUT)}/{worker}",
                **({"RUNNER_DIR": load().runner_dir or f"{LOCAL_FOLDER.name}/runner"} if "-runner-" in worker else {}),
            },
            # Settings that it cannot use, or a token that was revoked.
            last_code=exposure.REFUSED,
            priority=30,
        )

    def stay(self) -> NoReturn:
        """Say who works and who does not, until a signal, or until supervisord is gone: then raise CommandError."""
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
            time.sleep(_LOOK_SECONDS)
        raise CommandError(FAILED, f"supervisord ended by itself.\n{program_logs.read_tail(program_logs.SUPERVISOR)}")

    def _working(self) -> set[str]:
        """Return the workers of which the cluster has heard a moment ago."""
        now = time.time()
        beats = {path.name: path.stat().st_mtime for path in _BEATS.iterdir() if path.is_file()}
        return {worker for worker in self.joined.workers if now - beats.get(worker, 0.0) < _SILENT_SECONDS}

    def _say(self, working: set[str]) -> None:
        silent = [worker for worker in self.joined.workers if worker not in working]
        if not silent:
            say(f"  {datetime.now():%H:%M:%S}  all work for the cluster")
        else:
            why = "the first start compiles the kernels; else the cluster is not reached, and they try again"
            say(f"  {datetime.now():%H:%M:%S}  not heard by the cluster yet: {', '.join(silent)} ({why})")

    def _say_exits(self) -> None:
        for name, times in program_logs.exits(self._log_start).items():
            if times > self._said_exits[name]:
                self._said_exits[name] = times
                log = program_logs.FOLDER / f"{name}.log"
                say(f"  {datetime.now():%H:%M:%S}  {name} ended; it is started again. {_last_error(log)}")


def _last_error(log: Path) -> str:
    """Return the last error that a worker wrote, for it says what to do; else where its log is."""
    with_errors = [line for line in program_logs.read_tail(log).splitlines() if '"level": "error"' in line]
    found = re.search(r'"message": "((?:[^"\\]|\\.)*)"', with_errors[-1]) if with_errors else None
    return found[1] if found else f"Its log: {program_logs.relative_path(log)}"


def leave(*, anyway: bool) -> int:
    """Stop the workers, end their tokens and forget the cluster. `anyway`: also where it is not reached."""
    try:
        joined = membership.load()
    except CommandError:
        if not anyway:
            raise
        joined = None
        membership.forget()
    if joined is None:
        say("This checkout has joined no cluster.")
        return OK
    if commands.running() and commands.serves("join"):
        commands.stop()
    left = membership.end(joined)
    if left and not anyway:
        lines = "\n  ".join(left)
        raise CommandError(
            FAILED,
            f"these tokens were not ended:\n  {lines}\n  Run it again when {joined.url} is reached; or"
            " ./deploy-cluster.sh leave --anyway, and `cluster token revoke` there",
        )
    membership.forget()
    for unit in units.present():
        say(f"note: {unit} would start it again: systemctl --user disable --now {unit.name} && rm {unit}")
    for line in left:
        say(f"note: its token still counts: {line}")
    say(f"This machine has left {joined.url}.")
    return OK
