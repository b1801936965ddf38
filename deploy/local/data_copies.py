"""Implementation of backup and restore. The scripts pack and check the backup file that contains the dump."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.local import (
    commands,
    cpu_workers,
    data_swap,
    program_control,
    redis_data,
    redis_server,
    runner_token,
    running_cluster,
)
from deploy.local.outcome import FAILED, MISSING, OK, CommandError, ignore_stop_signals, raise_on_stop_signals, say
from jobs.settings import CHECKOUT, LOCAL_FOLDER

_AUDIT_PROGRAM = CHECKOUT / "deploy/docker/audit_file.py"
_AUDIT_FILE = LOCAL_FOLDER / "audit.jsonl"


# -- backup ------------------------------------------------------------------------------------------------------------


def dump(folder: Path) -> int:
    """Write all data to the files dump.rdb and audit.jsonl in a folder, and print facts about the dump.

    The cluster can be running. Changes that were acknowledged before the call are in the dump.
    """
    raise_on_stop_signals()
    if not redis_server.has_data(data_swap.DATA):
        raise CommandError(FAILED, "this checkout has no data of a local cluster. Start one: ./deploy-cluster.sh local")
    work = folder / "redis"
    try:
        redis_data.copy(data_swap.DATA, work)
        server = _find_server(work)
        redis_data.load(server, work, dump=True)
        (work / "dump.rdb").rename(folder / "dump.rdb")
        _print_facts(server, folder / "dump.rdb")
    except redis_data.UnusableData as error:
        raise CommandError(
            FAILED, f"Redis cannot copy its data:\n{error}\n  If the disk is full, free some space: df -h {folder}"
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    # Copy the file after the data of Redis, so that it contains all entries that Redis has dropped.
    with (folder / "audit.jsonl").open("wb") as file:
        subprocess.run([sys.executable, _AUDIT_PROGRAM, "dump", _AUDIT_FILE], stdout=file, check=True)
    return OK


def _print_facts(server: str, file: Path) -> None:
    """Print lines for the manifest, as deploy/docker/dump-redis.sh does."""
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    print(f"fact redis_version {'.'.join(map(str, redis_server.version(server)))}")
    print(f"fact keys {redis_data.count_keys(server, file)}")
    print(f"fact bytes {file.stat().st_size}")
    print(f"fact sha256 {digest}")


# -- restore -----------------------------------------------------------------------------------------------------------


def restore(folder: Path) -> int:
    """Replace all data with the files dump.rdb and audit.jsonl in a folder. Print the outcome for the audit log's file.

    In a running cluster, all programs stop during the restore and start again afterwards. If anything fails, the data
    does not change.
    """
    raise_on_stop_signals()
    if not commands.is_running():
        with commands.hold_cluster_lock(), _prepared(folder / "dump.rdb"):
            data_swap.swap()
            _restore_audit_file(folder / "audit.jsonl")
        return OK
    api = running_cluster.find_api()
    with running_cluster.hold_change_lock():
        with _prepared(folder / "dump.rdb"), program_control.stopped_cluster(cpu_workers.is_wanted):
            ignore_stop_signals()
            data_swap.swap()
            # The restored data does not have the current token of the runner, which then waits for a new one.
            runner_token.delete_token()
            _restore_audit_file(folder / "audit.jsonl")
        running_cluster.renew_tokens(api)
        raise_on_stop_signals()
        running_cluster.wait_ready(api)
    return OK


@contextmanager
def _prepared(dump: Path) -> Iterator[None]:
    """Prepare data from a dump in a `with` block. Raises CommandError if Redis cannot load the data."""
    shutil.rmtree(data_swap.NEW, ignore_errors=True)
    try:
        redis_data.write_log(dump, data_swap.NEW)
        server = _find_server(data_swap.NEW)
        redis_data.count_keys(server, dump)  # Redis would accept an empty file
        redis_data.load(server, data_swap.NEW)
        yield
    except redis_data.UnusableData as error:
        raise CommandError(FAILED, f"Redis cannot load the backup. Nothing was changed.\n{error}") from error
    finally:
        shutil.rmtree(data_swap.NEW, ignore_errors=True)


def _find_server(data: Path) -> str:
    """Return a server that can read the data, which the running cluster can also use. Raises CommandError."""
    try:
        server = redis_server.find(data)
    except (redis_server.NoRedis, redis_server.NewerData) as error:
        raise CommandError(MISSING, f"{error}. Nothing was changed.") from error
    if commands.is_running() and server != redis_server.find(data_swap.DATA):
        raise CommandError(
            FAILED,
            f"only {server} can read the backup, and the running cluster uses another server.\n"
            "  Run ./deploy-cluster.sh stop, restore the backup, and start the cluster again.",
        )
    return server


def _restore_audit_file(backup: Path) -> None:
    """Restore the audit log's file if the backup has one. Coordinators must not be running."""
    if not backup.is_file() or not backup.stat().st_size:
        return
    with backup.open("rb") as file:
        command = [sys.executable, str(_AUDIT_PROGRAM), "load", str(_AUDIT_FILE)]
        done = subprocess.run(command, stdin=file, capture_output=True, text=True, check=False)
    if done.returncode:
        say(f"note: the audit log's file was not restored, and did not change: {done.stderr.strip()[-500:]}")
    else:
        print(done.stdout, flush=True)
