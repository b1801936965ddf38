"""Access to a local cluster that another process has started, for the commands scale, restore and report."""

from __future__ import annotations

import configparser
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from deploy.local import admin_token, commands, cpu_workers, processes, program_logs, runner_token
from deploy.local.api import Api
from deploy.local.cluster import ADDRESS
from deploy.local.outcome import FAILED, NOT_READY, RUNNING, CommandError
from jobs.settings import LOCAL_FOLDER
from jobs.store.server import connection

#: Timeout in seconds until the CPU workers are ready. Their kernels are already compiled.
READY_SECONDS = 120.0
_POLL_SECONDS = 0.1
_CONFIGURATION = LOCAL_FOLDER / "supervisord.conf"


def find_api() -> Api:
    """Return a client of the running cluster with its admin token.

    Raises CommandError if the cluster is not running, or if its processes work for another cluster.
    """
    if not commands.is_running():
        raise CommandError(FAILED, "no local cluster of this checkout is running. Start one: ./deploy-cluster.sh local")
    if commands.was_started_by("join"):
        raise CommandError(FAILED, f"{commands.describe_membership()}. Run this command where it was started.")
    if not ADDRESS.is_file():
        raise CommandError(FAILED, "the local cluster is starting or stopping; wait until it is ready, then try again.")
    return Api(ADDRESS.read_text().strip(), read_token())


def read_token() -> str:
    """Return the admin token of the cluster, or "" if there is none."""
    return admin_token.FILE.read_text().strip() if admin_token.FILE.is_file() else ""


@contextmanager
def hold_change_lock() -> Iterator[None]:
    """Prevent other commands from changing the cluster during a `with` block. Raises CommandError if one does so."""
    lock = processes.lock(LOCAL_FOLDER, name="change.lock")
    if lock is None:
        raise CommandError(
            RUNNING, "another ./deploy-cluster.sh is changing this cluster. Wait until it exits, then try again."
        )
    try:
        yield
    finally:
        os.close(lock)


def wait_ready(api: Api) -> None:
    """Wait until the API answers and each CPU worker is ready with its lanes. Raises CommandError."""
    deadline = time.monotonic() + READY_SECONDS
    while not _has_workers(api):
        if time.monotonic() > deadline:
            raise CommandError(
                NOT_READY,
                f"not all CPU workers were ready after {READY_SECONDS:.0f} s. See: ./deploy-cluster.sh status\n"
                f"{program_logs.read_tails()}",
            )
        time.sleep(_POLL_SECONDS)


def _has_workers(api: Api) -> bool:
    try:
        workers = api.get("/api/workers")["workers"]
    except (OSError, ValueError):
        return False
    ready = {worker["id"]: worker["lanes"] for worker in workers if worker["live"] and worker["state"] != "starting"}
    lanes = cpu_workers.read_lanes()
    return all(ready.get(cpu_workers.worker_id(number)) == count for number, count in enumerate(lanes, 1))


def renew_tokens(api: Api) -> None:
    """Wait until Redis answers. Create the tokens of the user and of the runner that are missing in its data."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            api.token = admin_token.ensure(_redis_url())
            runner_token.ensure(_redis_url())
            return
        except connection.Unreachable as error:
            if time.monotonic() > deadline:
                tail = program_logs.read_tail(program_logs.FOLDER / "redis.log")
                raise CommandError(NOT_READY, f"Redis does not answer: {error}\n{tail}") from error
        time.sleep(_POLL_SECONDS)


def _redis_url() -> str:
    """Return the URL of Redis that the coordinator of the running cluster uses."""
    parser = configparser.RawConfigParser()
    parser.read(_CONFIGURATION)
    [url] = re.findall(r'REDIS_URL="([^"]+)"', parser["program:coordinator"]["environment"])
    return str(url).replace("%%", "%")
