"""The file of a bundle: a tar archive that is the same for the same packages."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from deploy.bundle.targets import Target

#: Folder in the archive that contains all files.
ROOT = "threads-cluster-bundle"
#: File with the SHA-256 sums of all other files, in the format of `sha256sum`.
SUMS = "SHA256SUMS"
#: File with one line per target.
TARGETS = "targets"


def write(file: Path, targets: Sequence[Target], wheels: Iterable[Path]) -> str:
    """Write a bundle atomically, and return its SHA-256 sum."""
    named = {f"wheels/{wheel.name}": wheel for wheel in sorted(wheels, key=lambda wheel: wheel.name)}
    listed = "".join(f"{target}\n" for target in targets).encode()
    sums = {TARGETS: hashlib.sha256(listed).hexdigest(), **{name: _sum(path) for name, path in named.items()}}
    new = file.with_name(f"{file.name}.new")
    try:
        with tarfile.open(new, "w", format=tarfile.PAX_FORMAT) as archive:
            _add(archive, SUMS, "".join(f"{digest}  {name}\n" for name, digest in sums.items()).encode())
            _add(archive, TARGETS, listed)
            for name, path in named.items():
                _add(archive, name, path)
        digest = _sum(new)
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)
    return digest


def _add(archive: tarfile.TarFile, name: str, content: bytes | Path) -> None:
    """Add a file without its owner and time, which would differ between two bundles."""
    entry = tarfile.TarInfo(f"{ROOT}/{name}")
    entry.mode = 0o644
    if isinstance(content, bytes):
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
        return
    entry.size = content.stat().st_size
    with content.open("rb") as file:
        archive.addfile(entry, file)


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
