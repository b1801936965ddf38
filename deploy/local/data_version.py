"""File .cluster/data_format: the format of the cluster's data, and the version that used them last.

Redis stores the same text, but a release must refuse unreadable data before it starts Redis.
"""

from __future__ import annotations

from contextlib import suppress

from deploy.local import private_files
from deploy.local.outcome import MISSING, CommandError
from jobs import releases
from jobs.releases import Release, Stored
from jobs.settings import LOCAL_FOLDER

FILE = LOCAL_FOLDER / "data_format"


def read() -> Stored | None:
    """Return the stored data format, or None if there is none."""
    with suppress(FileNotFoundError, ValueError):
        return Stored.parse(FILE.read_text())
    return None


def check(release: Release = releases.OWN) -> None:
    """Raise CommandError if a release cannot use the data of this cluster."""
    if obstacle := release.data_obstacle(read()):
        raise CommandError(MISSING, f"{obstacle}.\n  Nothing was changed.")


def record() -> None:
    """Record that this release has written to the data."""
    private_files.write(FILE, f"{releases.OWN.stored_after(read())}\n".encode())
