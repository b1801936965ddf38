"""Version of the installed package."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from pathlib import Path

#: File with the version in a checkout and in a release's folder. A wheel has its metadata instead.
_FILE = Path(__file__).resolve().parents[1] / "jobs" / "VERSION"


@cache
def installed_version() -> str:
    """Return the version of this package, or an empty text if the package was copied without its metadata."""
    try:
        return _FILE.read_text().strip() if _FILE.is_file() else metadata.version("threads-cluster")
    except metadata.PackageNotFoundError:
        return ""
