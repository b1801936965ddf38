"""Implementation of the commands run, stop and status of `python -m deploy.local`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from coordinator.secrets import keys
from coordinator.server import client_address
from deploy.local import data_swap, data_version, processes, redis_server, samples, shape, units
from deploy.local.cluster import ADDRESS, LocalCluster
from deploy.local.outcome import (
    FAILED,
    INTERRUPTED,
    OK,
    RUNNING,
    USAGE,
    CommandError,
    StopRequested,
    raise_on_stop_signals,
    say,
)
from deploy.local.supervision import STOP_SECONDS
from jobs.network import exposure
from jobs.settings import CHECKOUT, LOCAL_FOLDER, STATE_FOLDER, Settings, load


def check_exposure(settings: Settings) -> None:
    """Check the settings before any process starts. Raises CommandError if the coordinator would reject them."""
    try:
        exposure.check(settings)
        keys.check(settings)
        client_address.check(settings)
    except (exposure.ExposureError, keys.UnusableKey, client_address.UnusableProxies) as error:
        raise CommandError(USAGE, str(error)) from error


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Options of the command run."""

    #: Port of the API, or None for the next free port.
    port: int | None
    workers: int
    runner: bool
    once: bool
    samples: bool
    #: True if results are printed as JSON even on a terminal.
    as_json: bool = False
    #: True if spans are sent to OTEL_EXPORTER_OTLP_ENDPOINT, or to a collector on this machine.
    tracing: bool = False


def run(wanted: ClusterOptions) -> int:
    """Start a local cluster, and wait for a signal. Return the exit code.

    The first start submits the sample jobs. With `once`, compute them, print their results and stop.
    """
    raise_on_stop_signals()
    settings = load()
    check_exposure(settings)
    up = False
    try:
        with ExitStack() as stack:
            stack.enter_context(hold_cluster_lock())
            data_version.check()
            is_first = not redis_server.has_data(LOCAL_FOLDER / "redis")
            cluster = stack.enter_context(LocalCluster(settings, plan_cluster(settings, wanted)))
            _announce(cluster.shape)
            cluster.wait_ready()
            if wanted.once:
                return OK if _compute_samples(cluster, wanted) else FAILED
            if is_first and wanted.samples:
                samples.submit_in_background(cluster.run, cluster.api.url)
            up = True
            cluster.stay()
    except StopRequested:
        return OK if up else INTERRUPTED


def plan_cluster(settings: Settings, wanted: ClusterOptions) -> shape.Shape:
    """Plan the parts of the cluster. If no runner can start on this machine, print why and leave it out."""
    has_runner = wanted.runner and not wanted.once
    if has_runner and (why := shape.runner_obstacle()):
        say(f"The cluster starts without a runner of programs: {why}.")
        has_runner = False
    plan = shape.plan(settings, wanted.port, wanted.workers, runner=has_runner)
    if not wanted.tracing:
        return plan
    return replace(plan, span_endpoint=settings.otel_exporter_otlp_endpoint or shape.COLLECTOR)


def _compute_samples(cluster: LocalCluster, wanted: ClusterOptions) -> bool:
    """Compute the sample jobs that the user requested. Return False if one of them fails."""
    began = time.monotonic()
    as_json = wanted.as_json or not sys.stdout.isatty()
    kept = "./deploy-cluster.sh local, and then "
    several = samples.SAMPLES if wanted.samples else ()
    done = [samples.submit(cluster.run, cluster.api.url, sample, as_json=as_json, kept=kept) for sample in several]
    if several:
        say(f"{len(several)} sample jobs took {time.monotonic() - began:.1f} s.")
    return all(done)


def _announce(parts: shape.Shape) -> None:
    lanes = "+".join(map(str, parts.lanes))
    on_gpus = f" and {parts.gpus} GPU worker(s)" if parts.gpus else ""
    runner = " and a runner of programs" if parts.runner else ""
    say(f"Starting Redis, a coordinator, {len(parts.lanes)} CPU worker(s) with {lanes} lanes{on_gpus}{runner} ...")


@contextmanager
def hold_cluster_lock() -> Iterator[None]:
    """Stop processes of an earlier run, and hold the lock of this checkout in a `with` block.

    Raises CommandError if a cluster is already running.
    """
    LOCAL_FOLDER.mkdir(mode=0o700, exist_ok=True)
    LOCAL_FOLDER.chmod(0o700)
    lock = processes.lock(LOCAL_FOLDER)
    if lock is None:
        raise CommandError(
            RUNNING,
            f"a local cluster of this checkout is already running: {_address()}\n  Stop it: ./deploy-cluster.sh stop",
        )
    _stop_earlier_run()
    data_swap.finish()
    ADDRESS.unlink(missing_ok=True)
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    try:
        yield
    finally:
        os.close(lock)


def _stop_earlier_run() -> int:
    """Stop the processes of an earlier run, and print and return their number."""
    count = processes.stop_marked(f"@{LOCAL_FOLDER}")
    if count:
        say(f"Stopped {count} processes of an earlier run.")
    return count


def _address() -> str:
    if was_started_by("join"):
        return describe_membership()
    return ADDRESS.read_text().strip() if ADDRESS.is_file() else "it is currently starting or stopping"


def is_running() -> bool:
    """Return True if a local cluster of this checkout is running and therefore holds its lock."""
    if not LOCAL_FOLDER.is_dir():
        return False
    lock = processes.lock(LOCAL_FOLDER)
    if lock is not None:
        os.close(lock)
    return lock is None


def _find_starter() -> psutil.Process | None:
    """Return the process that started a cluster of this checkout, or None if it is not running."""
    try:
        process = psutil.Process(int((LOCAL_FOLDER / "lock").read_text()))
        ours = "deploy.local" in process.cmdline() and Path(process.cwd()) == STATE_FOLDER
    except (psutil.Error, OSError, ValueError):
        return None
    return process if ours else None


def was_started_by(command: str) -> bool:
    """Return True if the command `command` (run or join) started the running processes."""
    starter = _find_starter()
    return starter is not None and command in starter.cmdline()


def describe_starter() -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of the process that started the cluster. Empty if it is not running."""
    starter = _find_starter()
    return (starter.cmdline(), starter.environ()) if starter else ([], {})


def stop() -> int:
    """Stop the local cluster of this checkout, or the processes of an earlier run. Return the exit code."""
    if not is_running():
        if not _stop_earlier_run():
            say("No local cluster of this checkout is running.")
        return OK
    starter = _find_starter()
    if starter is None:
        raise CommandError(FAILED, "the process that started the cluster was not found; press Ctrl-C in its terminal.")
    starter.terminate()
    lock = processes.lock(LOCAL_FOLDER, patience=STOP_SECONDS + 20)
    if lock is None:
        raise CommandError(FAILED, f"the cluster did not stop (process {starter.pid}); its logs are in .cluster/logs.")
    os.close(lock)
    say("Stopped.")
    if note := units.describe_boot():
        say(note)
    return OK


def describe_membership() -> str:
    """Describe in one sentence which cluster this machine has joined. Return "" if it has joined none."""
    from deploy.local.joining import membership  # Imported here because most clusters do not need this module

    joined = membership.load()
    return f"This checkout has joined {joined.url} with the workers {', '.join(joined.workers)}" if joined else ""


def status() -> int:
    """Print whether a cluster of this checkout is running, with its status. Return the exit code."""
    if not is_running():
        if joined := describe_membership():
            say(f"{joined}. The workers are not running. Start them: ./deploy-cluster.sh join")
        else:
            say("No local cluster of this checkout is running. Start one: ./deploy-cluster.sh local")
        return FAILED
    if was_started_by("join") and (joined := describe_membership()):
        say(f"{joined}. The workers are running.")
        return OK
    say(f"A local cluster of this checkout is running: {_address()}")
    command = [".venv/bin/cluster", "--url", _address(), "status"]  # CLUSTER_URL can name another cluster
    return subprocess.run(command, cwd=CHECKOUT, check=False).returncode
