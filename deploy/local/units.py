"""Systemd units that start a local cluster, or the workers of a joined machine, when the machine boots.

One unit runs the same starter as a terminal does. The starter opens the ports, creates new passwords for Redis, and
lets supervisord start, restart and stop the programs in order (docs/decisions/0101).
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from deploy.local.outcome import MISSING, OK, USAGE, CommandError, say
from jobs.settings import CHECKOUT, STATE_FOLDER

#: Name of the unit that starts a local cluster, of its user with `--system`, and of that user's folder in /var/lib.
NAME = "threads-cluster"
_UNIT = """\
[Unit]
Description={description}
Documentation=file://{code}/docs/systemd.md
Wants=network-online.target
After=network-online.target

[Service]
{type}
WorkingDirectory={code}
Environment={environment}
EnvironmentFile=-%E/threads-cluster.env
ExecStart={command}
Restart=on-failure
RestartPreventExitStatus=2 3
RestartSec=10
KillMode=mixed
TimeoutStopSec=90
OOMPolicy=continue
{sandbox}
[Install]
WantedBy={target}
"""
#: Type of a unit that is active when all workers are ready. The first start can compile kernels for minutes.
_NOTIFY = "Type=notify\nTimeoutStartSec=900"
#: Restrictions of every unit, which also work for the units of a user. Programs cannot use sudo.
_SANDBOX = """\
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
"""
#: Further restrictions of the unit with `--system`. MemoryDenyWriteExecute is impossible, because workers compile
#: kernels to machine code. PrivateDevices is impossible, because workers use GPUs.
_SYSTEM_SANDBOX = """\
User=threads-cluster
Group=threads-cluster
StateDirectory=threads-cluster
StateDirectoryMode=0700
UMask=0077
ProtectSystem=strict
ProtectHome=tmpfs
{visible}PrivateTmp=yes
PrivateMounts=yes
ProtectProc=invisible
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RestrictNamespaces=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
CapabilityBoundingSet=
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
DevicePolicy=closed
DeviceAllow=char-nvidia rw
DeviceAllow=char-nvidia* rw
DeviceAllow=char-drm rw
DeviceAllow=char-kfd rw
"""
#: Folders that ProtectHome hides.
_HIDDEN = (Path("/home"), Path("/root"), Path("/run/user"))


@dataclass(frozen=True)
class Scope:
    """One of the two managers of systemd units: the manager of the system, or the manager of this user."""

    is_system: bool

    @property
    def option(self) -> str:
        return "--system" if self.is_system else "--user"

    @property
    def folder(self) -> Path:
        """Return the folder for units. Raises CommandError if the user has no home folder."""
        if self.is_system:
            return Path("/etc/systemd/system")
        try:
            return Path.home() / ".config" / "systemd" / "user"
        except RuntimeError:
            message = "a systemd unit needs a home folder, but this user has none; set HOME to a folder of your own"
            raise CommandError(USAGE, message) from None

    @property
    def unit(self) -> Path:
        """Return the path of the unit that starts a local cluster."""
        return self.folder / f"{NAME}.service"


SYSTEM, USER = Scope(is_system=True), Scope(is_system=False)


def cluster_unit(scope: Scope, options: Sequence[str]) -> str:
    """Return the text of the unit that starts a local cluster with some options of the command `local`."""
    return _render(
        scope,
        "Threads Cluster on this machine",
        ["local", *options],
        type=_NOTIFY,
        sandbox=_SANDBOX + (_SYSTEM_SANDBOX.format(visible=_visible_folders()) if scope.is_system else ""),
        target="multi-user.target" if scope.is_system else "default.target",
    )


def worker_unit() -> str:
    """Return the text of the unit that starts the workers of a joined machine."""
    return _render(
        USER,
        "Workers of this machine for a Threads Cluster",
        ["join"],
        type="Type=exec",
        sandbox=_SANDBOX,
        target="default.target",
    )


def write(unit: Path, text: str) -> None:
    unit.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text(text)


def is_ours(unit: Path) -> bool:
    """Return True if the unit uses the data of this checkout or installation."""
    return unit.is_file() and _environment() in unit.read_text()


def describe_boot() -> str:
    """Return a note for `stop` if systemd starts this cluster again at the next boot, or ""."""
    for scope in (USER, SYSTEM):
        with suppress(CommandError):
            if is_ours(scope.unit):
                again = f"note: {scope.unit.name} starts it again at the next boot."
                return f"{again} To prevent that: ./deploy-cluster.sh stop {scope.option}"
    return ""


def _environment() -> str:
    return _quote(f"CLUSTER_HOME={STATE_FOLDER}")


def _code(scope: Scope) -> Path:
    """Return the folder of the code that a unit runs.

    The unit of a user runs the current release of an installation, also after an update. The release itself is bound
    into the sandbox of the system's unit, so that unit changes when it is written again.
    """
    current = CHECKOUT.parent.parent / "current"
    is_current = CHECKOUT.parent.name == "releases" and current.resolve() == CHECKOUT
    return current if is_current and not scope.is_system else CHECKOUT


def _render(scope: Scope, description: str, words: Sequence[str], **parts: str) -> str:
    code = _code(scope)
    return _UNIT.format(
        description=description,
        code=_escape(str(code)),
        command=" ".join(_quote(word).replace("$", "$$") for word in (f"{code}/deploy-cluster.sh", *words)),
        environment=_environment(),
        **parts,
    )


def _escape(text: str) -> str:
    """Escape the specifiers of systemd."""
    return text.replace("%", "%%")


def _quote(word: str) -> str:
    """Quote a word of a setting of systemd."""
    return _escape('"{}"'.format(word.replace("\\", "\\\\").replace('"', '\\"')))


def _visible_folders() -> str:
    """Return lines that show the service the code and its Python, although their folder is hidden from it."""
    folders = dict.fromkeys((CHECKOUT, Path(sys.base_prefix).resolve()))
    hidden = [folder for folder in folders if any(folder.is_relative_to(each) for each in _HIDDEN)]
    return "".join(f"BindReadOnlyPaths={_quote(str(folder))}\n" for folder in hidden)


def write_worker_unit(name: str) -> int:
    """Write a unit for this user that starts the workers of this host, whose name is `name`.

    Raises CommandError if systemd is missing.
    """
    if not shutil.which("systemctl"):
        raise CommandError(
            MISSING, "--service needs systemd; without systemd, start ./deploy-cluster.sh join at boot by other means"
        )
    unit = USER.folder / f"{NAME}-{re.sub(r'[^A-Za-z0-9]', '-', name)}.service"
    write(unit, worker_unit())
    say(
        f"Wrote {unit}. Start the workers now and at each boot:\n"
        f"  systemctl --user enable --now {unit.name} && loginctl enable-linger"
    )
    return OK


def list_worker_units() -> list[Path]:
    """Return this user's units that start the workers of this checkout."""
    try:
        units = sorted(USER.folder.glob(f"{NAME}-*.service"))
    except CommandError:
        return []
    return [unit for unit in units if is_ours(unit)]
