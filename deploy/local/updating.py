"""Implementation of the commands update and rollback."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from deploy.local import commands, data_version, release_file, switching, wheel_file
from deploy.local.outcome import FAILED, OK, USAGE, CommandError, raise_on_stop_signals, say
from jobs import releases
from jobs.releases import Release
from jobs.settings import CHECKOUT, STATE_FOLDER, child_environment
from threads_cluster import installation

#: Modules that a release must be able to import before any program is restarted.
_MODULES = ("coordinator.app", "cpu_worker.__main__", "runner.__main__", "deploy.local.switching")


def check(source: str = "") -> int:
    """Print which versions are installed and running, and whether the release in `source` can replace them.

    Return 0 if the update is possible or there is nothing to update, and 1 otherwise.
    """
    print(f"This release:    {_describe(releases.OWN, CHECKOUT)}")
    running = _running()
    print(f"Running cluster: {_describe(*running) if running else 'none'}")
    stored = data_version.read()
    print(f"Data format:     {stored.format if stored else 'no data'}")
    if not source:
        return _print_plan(releases.OWN, running)
    with fetched(source) as path:
        target = Release.read(path) if path.is_dir() else wheel_file.describe(path)
        print(f"New release:     {_describe(target, path)}")
        return _print_plan(target, running)


def _describe(release: Release, place: Path) -> str:
    return f"version {release.version}, data formats {release.oldest} to {release.newest} ({place})"


def _running() -> tuple[Release, Path] | None:
    """Return the release of the running cluster and its folder, or None if no cluster is running."""
    selected = release_file.read() if commands.is_running() else None
    return (Release.read(selected.folder), selected.folder) if selected else None


def _print_plan(target: Release, running: tuple[Release, Path] | None) -> int:
    """Print whether a release can replace the running one, and what would restart. Return the exit code."""
    if obstacle := target.data_obstacle(data_version.read()) or (running and target.next_obstacle(running[0])):
        print(f"Update:          not possible: {obstacle}")
        return FAILED
    if not running:
        print("Update:          possible; start the cluster with the new release")
        return OK
    print(f"Update:          possible, from {running[0].version} to {target.version}, and back with rollback")
    print(f"Would restart:   {', '.join(switching.wanted_programs())}, one after the other. Redis keeps running.")
    return OK


@contextmanager
def fetched(source: str) -> Iterator[Path]:
    """Provide the folder of a release, or a wheel.

    `source` is a path, an https:// address, or a package such as `threads-cluster==1.2.0`. Raises CommandError if there
    is not exactly one wheel.
    """
    if not source.startswith(("https://", "http://")) and (source.endswith(".whl") or os.sep in source):
        yield Path(source)
        return
    with tempfile.TemporaryDirectory(prefix="threads-cluster-") as folder:
        pip = (
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "download",
            "--no-deps",
            "--only-binary=:all:",
        )
        done = subprocess.run([*pip, "--dest", folder, source], capture_output=True, text=True, check=False)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            tail = "\n".join(f"  {line}" for line in done.stderr.strip().splitlines()[-3:])
            raise CommandError(FAILED, f"pip cannot download {source}.\n{tail}\n  Nothing was changed.")
        yield wheels[0]


# -- update ------------------------------------------------------------------------------------------------------------


def update(source: str, drain_seconds: float) -> int:
    """Replace the running release by the release in a wheel, or in a folder. Return the exit code.

    Without a source, use this release. If the update fails or is killed, run the same command again.
    """
    raise_on_stop_signals()
    if not source:
        return switch_to(CHECKOUT, drain_seconds)
    if STATE_FOLDER == CHECKOUT:
        raise CommandError(
            USAGE,
            "a checkout is updated with git: change to the new version, then run update without a file. Nothing was"
            " changed.",
        )
    with fetched(source) as path:
        if not path.is_dir():
            require_possible(wheel_file.describe(path))
        folder = path.resolve() if path.is_dir() else wheel_file.unpack(path)
    return switch_to(folder, drain_seconds)


def require_possible(target: Release) -> None:
    """Raise CommandError if a release cannot replace the running one."""
    data_version.check(target)
    if (running := _running()) and (obstacle := target.next_obstacle(running[0])):
        raise CommandError(
            FAILED,
            f"{obstacle}.\n  Nothing was changed. Update to a version between them first, or stop the cluster and start"
            " it with the new release.",
        )


def switch_to(folder: Path, drain_seconds: float) -> int:
    """Let the release in a folder restart the programs of the running cluster, or use it at the next start."""
    target = Release.read(folder)
    require_possible(target)
    python = prepare(folder)
    if not commands.is_running():
        if folder == CHECKOUT == STATE_FOLDER:
            raise CommandError(FAILED, "no cluster of this checkout is running. The next start uses the current code.")
        select_stopped(python, folder)
        say(f"The next start of the cluster uses version {target.version}.")
        return OK
    say(f"Updating the running programs to version {target.version} ...")
    return _execute_switch(python, drain_seconds)


def _execute_switch(python: Path, drain_seconds: float) -> NoReturn:
    """Replace this process by the switch of another release, which knows the needs of its programs."""
    command = (str(python), "-m", "deploy.local", "switch", "--drain", str(drain_seconds))
    os.execve(python, command, child_environment(CLUSTER_HOME=str(STATE_FOLDER)))


def prepare(folder: Path) -> Path:
    """Create the environment of a release, check that its programs can be loaded, and return its Python."""
    python = Path(sys.executable) if folder == CHECKOUT else folder / ".venv/bin/python"
    made = subprocess.run([folder / "deploy/environment.sh", "local"], cwd=folder, check=False)
    if made.returncode:
        raise CommandError(FAILED, "the environment of the new release could not be created. Nothing was changed.")
    code = f"import {', '.join(_MODULES)}"
    loaded = subprocess.run([python, "-c", code], cwd=STATE_FOLDER, capture_output=True, text=True, check=False)
    if loaded.returncode:
        last = (loaded.stderr.strip().splitlines() or ["no message"])[-1]
        raise CommandError(
            FAILED,
            f"the release in {folder} cannot be loaded: {last}.\n  Nothing was changed. Delete the folder, then run the"
            " same command again.",
        )
    return python


def select_stopped(python: Path, folder: Path) -> None:
    """Use a release at the next start of the cluster, which is not running."""
    with commands.hold_cluster_lock():
        release_file.select(python, folder)
        installation.make_current(STATE_FOLDER, folder)


# -- rollback ----------------------------------------------------------------------------------------------------------


def rollback(drain_seconds: float) -> int:
    """Return to the release before, if it can read the data. Return the exit code."""
    raise_on_stop_signals()
    if STATE_FOLDER == CHECKOUT:
        raise CommandError(
            USAGE, "a checkout has no releases: change to the earlier version with git, then run update without a file."
        )
    selected = release_file.read()
    if selected is None or not selected.earlier:
        raise CommandError(FAILED, "this cluster has not run another release before. Nothing was changed.")
    folder = selected.earlier[-1]
    if not folder.is_dir():
        raise CommandError(FAILED, f"the release before was deleted: {folder}. Use update with its wheel instead.")
    return switch_to(folder, drain_seconds)
