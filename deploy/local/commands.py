"""The commands of `python -m deploy.local`: run, stop, status."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from coordinator.secrets import keys
from coordinator.server import client_address
from deploy.local import processes, samples, shape
from deploy.local.cluster import ADDRESS, LocalCluster
from deploy.local.outcome import (
    FAILED,
    INTERRUPTED,
    OK,
    RUNNING,
    USAGE,
    CommandError,
    StopRequested,
    raise_stopped_on_signals,
    say,
)
from deploy.local.shape import CHECKOUT
from deploy.local.supervision import STOP_SECONDS
from jobs.network import exposure
from jobs.settings import LOCAL_FOLDER, Settings, load


def check_exposure(settings: Settings) -> None:
    """Refuse settings under which the coordinator would end at once, before anything starts. Raises CommandError."""
    try:
        exposure.check(settings)
        keys.check(settings)
        client_address.check(settings)
    except (exposure.Exposed, keys.UnusableKey, client_address.UnusableProxies) as error:
        raise CommandError(USAGE, str(error)) from error


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Cluster that a user asks for."""

    #: None: the next free one.
    port: int | None
    workers: int
    runner: bool
    once: bool
    samples: bool
    #: Print results as JSON, also on a terminal.
    as_json: bool = False


def run(wanted: ClusterOptions) -> int:
    """Start a cluster, compute the samples, and stay until a signal; with `once`, stop then. Returns the exit code."""
    raise_stopped_on_signals()
    settings = load()
    check_exposure(settings)
    up = False
    try:
        with alone(), LocalCluster(settings, _plan(settings, wanted)) as cluster:
            _announce(cluster.shape)
            cluster.wait_ready()
            done = _compute_samples(cluster, wanted)
            if wanted.once:
                return OK if done else FAILED
            up = True
            cluster.stay()
    except StopRequested:
        return OK if up else INTERRUPTED


def _plan(settings: Settings, wanted: ClusterOptions) -> shape.Shape:
    return shape.plan(settings, wanted.port, wanted.workers, runner=wanted.runner)


def _compute_samples(cluster: LocalCluster, wanted: ClusterOptions) -> bool:
    """Compute the samples, if they are wanted; True unless one of them is not done."""
    began = time.monotonic()
    as_json = wanted.once and (wanted.as_json or not sys.stdout.isatty())
    kept = "./deploy-cluster.sh local, and then " if wanted.once else ""
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
def alone() -> Iterator[None]:
    """Hold the checkout's lock, and end first what a killed run left.

    Raises CommandError when a cluster runs already.
    """
    LOCAL_FOLDER.mkdir(mode=0o700, exist_ok=True)
    LOCAL_FOLDER.chmod(0o700)
    lock = processes.lock(LOCAL_FOLDER)
    if lock is None:
        raise CommandError(
            RUNNING, f"a local cluster of this checkout runs already: {_address()}\n  Stop it: ./deploy-cluster.sh stop"
        )
    _sweep()
    ADDRESS.unlink(missing_ok=True)
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    try:
        yield
    finally:
        os.close(lock)


def _sweep() -> int:
    """End what an earlier run left behind, and say so; return the number of processes."""
    count = processes.sweep(f"@{LOCAL_FOLDER}")
    if count:
        say(f"Ended {count} processes that an earlier run left behind.")
    return count


def _address() -> str:
    if serves("join"):
        return describe_membership()
    return ADDRESS.read_text().strip() if ADDRESS.is_file() else "it is starting or stopping"


def running() -> bool:
    """Tell whether a cluster of this checkout runs: whether somebody holds the lock."""
    if not LOCAL_FOLDER.is_dir():
        return False
    lock = processes.lock(LOCAL_FOLDER)
    if lock is not None:
        os.close(lock)
    return lock is None


def _starter() -> psutil.Process | None:
    """Return the process that holds the lock, by the number it wrote there; None when that is not one of ours."""
    try:
        process = psutil.Process(int((LOCAL_FOLDER / "lock").read_text()))
        ours = "deploy.local" in process.cmdline() and Path(process.cwd()) == CHECKOUT
    except (psutil.Error, OSError, ValueError):
        return None
    return process if ours else None


def serves(command: str) -> bool:
    """Tell whether what runs was started by this command: run or join."""
    starter = _starter()
    return starter is not None and command in starter.cmdline()


def stop() -> int:
    """Stop the cluster that runs in another terminal, or what one left behind. Returns the exit code."""
    if not running():
        if not _sweep():
            say("No local cluster of this checkout runs.")
        return OK
    starter = _starter()
    if starter is None:
        raise CommandError(
            FAILED, "the process that runs the cluster was not found; look at its terminal and press Ctrl-C there."
        )
    starter.terminate()
    lock = processes.lock(LOCAL_FOLDER, patience=STOP_SECONDS + 20)
    if lock is None:
        raise CommandError(FAILED, f"it still runs (process {starter.pid}); its logs are in .cluster/logs.")
    os.close(lock)
    say("Stopped.")
    return OK


def describe_membership() -> str:
    """Say for which cluster this machine works; empty: for none."""
    from deploy.local.joining import membership  # loads what a cluster on one machine does not need

    joined = membership.load()
    return f"This checkout has joined {joined.url} with {', '.join(joined.workers)}" if joined else ""


def status() -> int:
    """Say whether a cluster of this checkout runs, and show its status. Returns the exit code."""
    if not running():
        if joined := describe_membership():
            say(f"{joined}; they do not run. Start them: ./deploy-cluster.sh join")
        else:
            say("No local cluster of this checkout runs. Start one: ./deploy-cluster.sh local")
        return FAILED
    if serves("join") and (joined := describe_membership()):
        say(f"{joined}; they run")
        return OK
    say(f"A local cluster of this checkout runs: {_address()}")
    return subprocess.run([".venv/bin/cluster", "status"], cwd=CHECKOUT, check=False).returncode
