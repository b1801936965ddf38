"""Commands that let systemd start the cluster at each boot, and end that: `local --system|--user` and `stop`."""

from __future__ import annotations

import getpass
import subprocess
from collections.abc import Sequence
from pathlib import Path

from deploy.local import commands, units, user_contexts
from deploy.local.cluster import ADDRESS, CLUSTER
from deploy.local.outcome import FAILED, OK, RUNNING, CommandError, say
from deploy.local.units import NAME, Scope
from jobs.settings import LOCAL_FOLDER


def start(scope: Scope, options: Sequence[str]) -> int:
    """Write the unit of a local cluster, and start it now and at each boot. Return the exit code when it is ready."""
    _check_unit(scope)
    _systemctl(scope, "show", "--property=Version")  # Fails without a session of systemd
    if commands.is_running() and not _is_active(scope):
        raise CommandError(RUNNING, "a local cluster is already running here.\n  Stop it: ./deploy-cluster.sh stop")
    units.write(scope.unit, units.cluster_unit(scope, options))
    say(f"Wrote {scope.unit}. Starting the cluster ...")
    _systemctl(scope, "daemon-reload")
    _systemctl(scope, "enable", "--quiet", NAME)
    if not scope.is_system:
        _let_linger()
    try:
        _systemctl(scope, "restart", NAME)
    except CommandError as error:
        raise CommandError(FAILED, f"{error}\n{_read_journal(scope)}") from None
    _describe(scope)
    return OK


def stop(scope: Scope) -> int:
    """Stop the cluster that systemd started, and delete its unit. The data stays. Return the exit code."""
    if not scope.unit.exists():
        say(f"No unit {scope.unit} exists.")
        return OK
    _check_unit(scope)
    _systemctl(scope, "disable", "--quiet", "--now", NAME)
    scope.unit.unlink()
    _systemctl(scope, "daemon-reload")
    say(f"Stopped, and deleted {scope.unit}. Jobs and results remain in {LOCAL_FOLDER}.")
    return OK


def _check_unit(scope: Scope) -> None:
    """Raise CommandError if the unit belongs to another cluster."""
    if scope.unit.exists() and not units.is_ours(scope.unit):
        raise CommandError(
            RUNNING, f"{scope.unit} starts another cluster.\n  In its folder, first run stop {scope.option}."
        )


def _let_linger() -> None:
    """Let systemd keep this user's units when the user is not logged in. If that is not permitted, print a command."""
    user = getpass.getuser()
    shown = subprocess.run(["loginctl", "show-user", user, "-p", "Linger"], capture_output=True, text=True, check=False)
    if "Linger=yes" in shown.stdout:
        return
    command = ["loginctl", "--no-ask-password", "enable-linger", user]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        say(f"note: the cluster stops when you log out. To prevent that: sudo loginctl enable-linger {user}")


def _systemctl(scope: Scope, *words: str) -> None:
    _run(["systemctl", *([] if scope.is_system else ["--user"]), *words])


def _run(command: Sequence[str]) -> None:
    """Run a command of systemd. Raises CommandError with its message."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.returncode:
        return
    said = (done.stderr or done.stdout).strip()
    if "Failed to connect to bus" in said:
        said += (
            "\n  This shell belongs to no session of systemd. Log in as this user (not with su or sudo), for example"
            " with ssh."
        )
    raise CommandError(FAILED, f"{' '.join(command)} failed: {said}")


def _is_active(scope: Scope) -> bool:
    command = ["systemctl", *([] if scope.is_system else ["--user"]), "is-active", "--quiet", NAME]
    return subprocess.run(command, check=False).returncode == 0


def _read_journal(scope: Scope) -> str:
    """Return the last lines that the cluster has printed."""
    unit = [f"--unit={NAME}"] if scope.is_system else [f"--user-unit={NAME}"]
    command = ["journalctl", *unit, "--lines=20", "--output=cat", "--no-pager", "--quiet"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.rstrip()


def _describe(scope: Scope) -> None:
    """Print where the cluster and its data are, and what to do next."""
    url = ADDRESS.read_text().strip()
    user_contexts.keep_local(url)
    command = f"{CLUSTER} --context {NAME}" if scope.is_system else CLUSTER
    say(
        f"The cluster is running, and starts at each boot: {url}\n"
        f"  open the pages:  {command} login --link\n"
        f"  run a program:   {command} run --no-files -- echo hello\n"
        f"Data: {LOCAL_FOLDER}   Settings: {_settings_file(scope)}   Stop: ./deploy-cluster.sh stop {scope.option}"
    )


def _settings_file(scope: Scope) -> Path:
    return (Path("/etc") if scope.is_system else Path.home() / ".config") / f"{NAME}.env"
