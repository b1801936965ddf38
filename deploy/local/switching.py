"""Restart of a running cluster's programs with this release, one after the other: `python -m deploy.local switch`.

The coordinator comes first, then the workers and runners. Redis, supervisord and the process that started the cluster
keep running. A switch that was interrupted continues when it is started again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from deploy.local import (
    commands,
    cpu_workers,
    data_version,
    program_control,
    program_logs,
    redis_users,
    release_file,
    running_cluster,
)
from deploy.local.api import Api
from deploy.local.outcome import FAILED, NOT_READY, OK, CommandError, raise_on_stop_signals, say
from deploy.local.program_control import ProgramState
from jobs import VERSION
from jobs.settings import CHECKOUT, LOCAL_FOLDER, STATE_FOLDER
from threads_cluster import installation

#: Programs that a switch never restarts.
_KEPT = ("guard", "redis")
_DOOR = "door"
#: Timeout in seconds until a new coordinator answers.
COORDINATOR_SECONDS = 90.0
#: Timeout in seconds until a new worker is ready. It can need to compile kernels.
WORKER_SECONDS = 300.0
#: Default time in seconds in which running programs can end before their runner stops.
DRAIN_SECONDS = 60.0
_POLL_SECONDS = 0.2
#: Number of exits after which a program counts as broken.
_MAX_EXITS = 3


def switch(drain_seconds: float = DRAIN_SECONDS) -> int:
    """Restart all programs that run another release. Return the exit code.

    `drain_seconds` is the time in which running programs can end before their runner stops; programs that are still
    running then start again.
    """
    raise_on_stop_signals()
    with running_cluster.hold_change_lock():
        data_version.check()
        if commands.was_started_by("join"):
            _switch_host()
        else:
            _switch_cluster(running_cluster.find_api(), drain_seconds)
    say(f"All programs run version {VERSION}.")
    return OK


def _switch_host() -> None:
    """Restart the workers of a machine that has joined a cluster."""
    _select()
    for name in outdated():
        say(f"  {name} returns its leases and restarts ...")
        _restart(name)
        _wait(name, lambda: False, WORKER_SECONDS, until_running=True)


def _switch_cluster(api: Api, drain_seconds: float) -> None:
    names = outdated()
    before = release_file.read()
    redis_users.renew()
    _select(keep_current=True)
    if "coordinator" in names:
        try:
            _replace_coordinator(api)
        except CommandError as error:
            _return_to(before, api)
            raise CommandError(error.code, f"{error}\n  The release before keeps running.") from None
    data_version.record()
    _select()
    if _DOOR in names:
        _restart(_DOOR)
    for name in names:
        if name not in ("coordinator", _DOOR):
            _replace_worker(api, name, drain_seconds)


def outdated() -> list[str]:
    """Return the programs that do not run this release, in the order in which they are replaced.

    In a checkout the code can have changed at the same place, so all programs are outdated.
    """
    programs = program_control.list_programs()
    return [name for name in wanted_programs() if STATE_FOLDER == CHECKOUT or not runs_release(programs[name].pid)]


def wanted_programs() -> list[str]:
    """Return the names of the programs that a switch can restart, in the order of their restart.

    They include programs that an interrupted switch has stopped.
    """
    programs = program_control.list_programs()
    wanted = [name for name, one in programs.items() if name not in _KEPT and (one.has_process or _is_wanted(name))]
    return sorted(wanted, key=lambda name: (name != "coordinator", name != _DOOR, name.startswith("runner"), name))


def _is_wanted(name: str) -> bool:
    return not name.startswith("cpu-worker-") or cpu_workers.is_wanted(name)


def runs_release(pid: int) -> bool:
    """Return True if a process runs the Python of this release."""
    try:
        return bool(psutil.Process(pid).cmdline()[:1] == [sys.executable])
    except psutil.Error:
        return False


def _select(*, keep_current: bool = False) -> None:
    """Let programs that start from now on run this release."""
    release_file.select(Path(sys.executable), CHECKOUT)
    if not keep_current and STATE_FOLDER != CHECKOUT:
        installation.make_current(STATE_FOLDER, CHECKOUT)


def _return_to(before: release_file.Selection | None, api: Api) -> None:
    """Restart the coordinator with the release before, after this release's coordinator did not start."""
    if before:
        say("  The new coordinator does not start; returning to the release before ...")
        release_file.write(before)
        with suppress(CommandError):
            _replace_coordinator(api)


# -- coordinator ------------------------------------------------------------------------------------------------------


def _replace_coordinator(api: Api) -> None:
    """Restart the coordinator. Requests wait meanwhile, because the process that started the cluster holds the port."""
    say("  coordinator restarts ...")
    _restart("coordinator")
    _wait("coordinator", lambda: _answers(api), COORDINATOR_SECONDS)


def _answers(api: Api) -> bool:
    try:
        api.get("/ready", timeout=1.0)
    except (OSError, ValueError):
        return False
    return True


# -- workers and runners ----------------------------------------------------------------------------------------------


def _replace_worker(api: Api, name: str, drain_seconds: float) -> None:
    """Restart a worker, which returns its leases. First let the programs of a runner end, up to the time limit."""
    worker = worker_of(name)
    say(f"  {name} returns its leases and restarts ...")
    if name.startswith("runner"):
        with _drained(api, worker, drain_seconds):
            program_control.stop([name])
    _restart(name)
    _wait(name, lambda: is_ready(api, worker), WORKER_SECONDS)


def worker_of(program: str) -> str:
    """Return the ID of the worker that a program runs, such as `cpu-1` for `cpu-worker-1`."""
    return program.replace("-worker-", "-")


@contextmanager
def _drained(api: Api, worker: str, seconds: float) -> Iterator[None]:
    """Assign no new work to a worker during a `with` block, and wait up to `seconds` until it has ended its work."""
    try:
        _drain(api, worker, on=True)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and _state(api, worker) not in ("drained", "stopped", "lost"):
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        _drain(api, worker, on=False)


def _drain(api: Api, worker: str, *, on: bool) -> None:
    try:
        api.post(f"/api/workers/{worker}/drain", {"on": on})
    except (OSError, ValueError) as error:
        say(f"  note: {worker} could not be {'drained' if on else 'resumed'}: {error}")


def _state(api: Api, worker: str) -> str:
    """Return the state of a worker, or an empty text if it is unknown."""
    try:
        return next((row["state"] for row in api.get("/api/workers")["workers"] if row["id"] == worker), "")
    except (OSError, ValueError):
        return ""


def is_ready(api: Api, worker: str) -> bool:
    """Return True if a worker takes work."""
    return _state(api, worker) in ("idle", "busy", "parked")


# -- programs ---------------------------------------------------------------------------------------------------------


def _restart(name: str) -> None:
    program_control.stop([name])
    program_control.start([name])


def _wait(name: str, is_done: Callable[[], bool], seconds: float, *, until_running: bool = False) -> None:
    """Wait until a restarted program works. Raises CommandError with its log if it exits repeatedly or is too slow."""
    deadline, log_start = time.monotonic() + seconds, program_logs.log_size()
    while not (_is_running(program_control.list_programs()[name]) and (until_running or is_done())):
        exits = program_logs.count_exits(log_start)[name]
        if exits >= _MAX_EXITS or time.monotonic() > deadline:
            why = f"exited {exits} times" if exits >= _MAX_EXITS else f"was not ready after {seconds:.0f} s"
            tail = program_logs.read_tail(LOCAL_FOLDER / "logs" / f"{name}.log")
            raise CommandError(
                FAILED if exits >= _MAX_EXITS else NOT_READY, f"{name} of version {VERSION} {why}.\n{tail}"
            )
        time.sleep(_POLL_SECONDS)


def _is_running(program: ProgramState) -> bool:
    return program.state == "RUNNING"
