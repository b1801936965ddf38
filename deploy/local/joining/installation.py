"""Files with which new machines install this version: the cluster's wheel, and the installer with its digest.

`python -m deploy.local.joining.installation` builds them in .cluster/join, which the HTTPS endpoint serves at /join.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from coordinator.hosts.installer import INSTALLER
from deploy.local.joining import installer
from deploy.release import wheel
from jobs import VERSION
from jobs.settings import LOCAL_FOLDER

FOLDER = LOCAL_FOLDER / "join"
#: File with the reason if the wheel cannot be built.
_ERROR = FOLDER / "error"
_CONSTANTS = 'WHEEL, SHA256, SIZE, RELEASE = "", "", 0, ""'


def remove() -> None:
    """Remove the installer of an earlier version. Until `write` has created the new one, nothing can be installed."""
    for file in (FOLDER / INSTALLER, _ERROR):
        file.unlink(missing_ok=True)


def read_error() -> str:
    """Return the reason why the wheel cannot be built, or an empty string."""
    try:
        return _ERROR.read_text()
    except OSError:
        return ""


def write() -> None:
    """Build the wheel and its installer, and remove earlier ones."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=FOLDER) as temporary:
        publish(wheel.build(Path(temporary)), FOLDER)


def publish(built: Path, folder: Path) -> None:
    """Move a wheel to the folder, write its installer, and remove other wheels."""
    text = render(built)
    served = Path(shutil.move(built, folder / built.name))
    new = folder / f".{INSTALLER}"
    new.write_text(text)
    new.replace(folder / INSTALLER)
    for other in folder.glob("*.whl"):
        if other != served:
            other.unlink()


def render(built: Path) -> str:
    """Return the text of the installer of a wheel."""
    text, content = Path(installer.__file__).read_text(), built.read_bytes()
    given = (built.name, hashlib.sha256(content).hexdigest(), len(content), release_name(built))
    assert text.count(_CONSTANTS) == 1
    return text.replace(_CONSTANTS, f"WHEEL, SHA256, SIZE, RELEASE = {given!r}")


def release_name(built: Path) -> str:
    """Return the name of the folder into which the wheel's tree is installed."""
    with zipfile.ZipFile(built) as archive:
        return f"{VERSION}-{hashlib.sha256(archive.read(installer.TREE)).hexdigest()[:12]}"


def main() -> int:
    os.nice(10)  # the coordinator runs on the same cores
    try:
        write()
    except (wheel.BuildError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        _ERROR.write_text(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
