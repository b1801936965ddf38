"""Files with which a new machine installs this version of the cluster: an installer and one wheel, in JOIN_DIR."""

from __future__ import annotations

from pathlib import Path

from jobs import errors
from jobs.settings import Settings

#: Name of the installer in the folder.
INSTALLER = "join.py"
_ADVICE = (
    "only the HTTPS port of a local cluster has one, after `./deploy-cluster.sh invite`. To join another cluster, run"
    " ./deploy-cluster.sh join in a checkout of its version (docs/hosts.md)"
)


def read(settings: Settings) -> bytes:
    """Return the installer. Raise NotFound if this coordinator has none."""
    try:
        return (_folder(settings) / INSTALLER).read_bytes()
    except FileNotFoundError:
        raise errors.NotFound("the installer is being built; try again in some seconds") from None


def find_wheel(settings: Settings, name: str) -> Path:
    """Return the path of the wheel with this name. Raise NotFound if the folder has no such wheel."""
    # The name is compared and never becomes part of a path.
    for path in _folder(settings).glob("*.whl"):
        if path.name == name:
            return path
    raise errors.NotFound("this coordinator serves another version now; ask for a new invitation")


def _folder(settings: Settings) -> Path:
    if not settings.join_dir:
        raise errors.NotFound(f"this coordinator serves no installer: {_ADVICE}")
    return Path(settings.join_dir)
