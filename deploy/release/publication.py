"""Build all files of a release from a clean commit: python -m deploy.release.publication FOLDER

The files depend only on the commit: two builds of a commit are equal byte by byte. Exit codes: 0 success, 1 failure,
2 usage error.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from deploy.bundle import targets
from deploy.release import licenses, sbom, wheel

ROOT = Path(__file__).resolve().parents[2]
#: Platform of the bundle. `cluster bundle --platform` writes bundles for others.
PLATFORM = "linux-x86_64"
_CHANGES = re.compile(r"^## \[(?P<version>[^\]]+)\].*?$(?P<text>.*?)(?=^## \[|\Z)", re.MULTILINE | re.DOTALL)


class NoRelease(Exception):
    """A release cannot be built."""


def publish(folder: Path, root: Path = ROOT) -> list[Path]:
    """Write the files of a release to a folder, which is replaced, and return their paths. Raises NoRelease."""
    require_clean(root)
    version = (root / "jobs/VERSION").read_text().strip()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as work:
        part = Path(work, "part")
        part.mkdir()
        write_files(part, root, version)
        write_checksums(part)
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    return sorted(folder.iterdir())


def write_files(folder: Path, root: Path, version: str) -> None:
    """Write all files of a release except the checksums."""
    revision, seconds = git(root, "log", "-1", "--format=%H %ct").split()
    name = f"threads-cluster-{version}"
    wheel.build(folder, root)
    write_bundle(folder / f"{name}-bundle.tar", root)
    made = datetime.fromtimestamp(int(seconds), UTC)
    (folder / f"{name}.cdx.json").write_text(sbom.write(version, revision, made))
    (folder / f"{name}-image-contexts.tar.gz").write_bytes(image_contexts(root, int(seconds)))
    (folder / "RELEASE_NOTES.md").write_text(release_notes(root, version))


def require_clean(root: Path) -> None:
    """Raise NoRelease if the checkout contains changes that are not committed."""
    if changes := git(root, "status", "--porcelain"):
        raise NoRelease(
            f"A release is built from a commit, but these files are not committed:\n{changes}\n"
            "Commit or remove them, then run the same command again."
        )


def write_bundle(file: Path, root: Path) -> None:
    """Write the bundle for machines without a network, with the packages for all versions of Python on PLATFORM."""
    command = [sys.executable, "-m", "deploy.bundle", str(file.resolve()), "--platform", PLATFORM]
    done = subprocess.run([*command, "--python", ",".join(targets.PYTHONS)], cwd=root, check=False)
    if done.returncode:
        raise NoRelease("The bundle cannot be written; see the lines above.")


def image_contexts(root: Path, seconds: int) -> bytes:
    """Return an archive of the committed files. `docker build -f DOCKERFILE - <FILE` builds an image from it."""
    archive = subprocess.run(["git", "archive", "--format=tar", "HEAD"], cwd=root, capture_output=True, check=True)
    return gzip.compress(archive.stdout, mtime=seconds)


def release_notes(root: Path, version: str) -> str:
    """Return the changes of a version, or the unreleased ones if CHANGELOG.md does not name the version yet."""
    changes = {
        found["version"]: found["text"].strip() for found in _CHANGES.finditer((root / "CHANGELOG.md").read_text())
    }
    text = changes.get(version) or changes.get("Unreleased")
    if not text:
        raise NoRelease(f"CHANGELOG.md has no section [{version}] and no section [Unreleased]. Add one.")
    return f"# Threads Cluster {version}\n\n{text}\n"


def write_checksums(folder: Path) -> None:
    """Write SHA256SUMS, which `sha256sum --check` reads."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())]
    (folder / "SHA256SUMS").write_text("".join(lines))


def git(root: Path, *arguments: str) -> str:
    """Return the output of a git command."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoRelease(f"A release is built from a git checkout, but git failed: {done.stderr.strip()}")
    return done.stdout.strip()


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m deploy.release.publication FOLDER", file=sys.stderr)
        return 2
    try:
        files = publish(Path(arguments[0]))
    except (NoRelease, wheel.BuildError, sbom.Invalid, licenses.UnknownLicense) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for file in files:
        print(f"{file}  {file.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
