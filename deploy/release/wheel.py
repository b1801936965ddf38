"""Build of the wheel from a checkout or from an unpacked tree. The same files give the same bytes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.release import tree
from jobs.settings import CHECKOUT, child_environment


class BuildError(Exception):
    """The wheel could not be built. The message contains the reason and a remedy."""


def build(directory: Path, root: Path = CHECKOUT) -> Path:
    """Build the wheel in a directory, replace an earlier one there, and return its path. Raises BuildError."""
    if not (root / tree.BUILT / "index.html").is_file():
        raise BuildError(f"{tree.BUILT} has no web pages, which the wheel must contain. Build them with: make web")
    directory.mkdir(parents=True, exist_ok=True)
    # Build next to the destination, so that a reader never sees a part of the wheel.
    with tempfile.TemporaryDirectory(dir=directory, prefix=".wheel-") as folder:
        command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
        environment = child_environment(SOURCE_DATE_EPOCH=str(tree.MODIFIED), PYTHONDONTWRITEBYTECODE="1")
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
        built = list(Path(folder).glob("*.whl"))
        if done.returncode or len(built) != 1:
            raise BuildError(f"hatchling could not build the wheel:\n{done.stderr.strip()}")
        wheel = directory / built[0].name
        built[0].replace(wheel)
    return wheel
