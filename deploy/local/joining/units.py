"""Units of systemd that start the workers of a joined machine when the machine boots."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from deploy.local.outcome import MISSING, OK, USAGE, CommandError, say
from jobs.settings import CHECKOUT

_UNIT = """\
[Unit]
Description=Workers of this machine for a Threads Cluster
After=network-online.target

[Service]
WorkingDirectory={folder}
ExecStart="{folder}/deploy-cluster.sh" join
Restart=on-failure
RestartPreventExitStatus=2
RestartSec=10
KillMode=mixed
TimeoutStopSec=90

[Install]
WantedBy=default.target
"""
_FOLDER = Path(".config", "systemd", "user")
_SERVICE = "threads-cluster-{name}.service"


def write(name: str) -> int:
    """Write a systemd unit for this user that starts the workers of a host.

    `name` is the name of the host. Raises CommandError if systemd is missing.
    """
    if not shutil.which("systemctl"):
        raise CommandError(
            MISSING, "--service needs systemd; without systemd, start ./deploy-cluster.sh join at boot by other means"
        )
    folder = _folder()
    if folder is None:
        raise CommandError(
            USAGE, "--service needs a home folder, but this user has none; set HOME to a folder of your own"
        )
    folder.mkdir(parents=True, exist_ok=True)
    unit = folder / _SERVICE.format(name=re.sub(r"[^A-Za-z0-9]", "-", name))
    unit.write_text(_UNIT.format(folder=str(CHECKOUT).replace("%", "%%")))
    say(
        f"Wrote {unit}. Start the workers now and at each boot:\n"
        f"  systemctl --user enable --now {unit.name} && loginctl enable-linger"
    )
    return OK


def _folder() -> Path | None:
    """Return the folder of this user's systemd units, or None if the user has no home folder."""
    try:
        return Path.home() / _FOLDER
    except RuntimeError:
        return None


def list_units() -> list[Path]:
    """Return the systemd units that start the workers of this checkout."""
    folder = _folder()
    units = folder.glob(_SERVICE.format(name="*")) if folder and folder.is_dir() else ()
    return [unit for unit in units if f"WorkingDirectory={CHECKOUT}\n" in unit.read_text()]
