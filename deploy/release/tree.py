"""Archive of the server tree: all files that a folder needs to run a cluster, without tests and state.

The build of the wheel loads this file by its path, so it imports no other module of this project. An unpacked archive
gives the same archive again, byte by byte.
"""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

#: Folders of the tree.
FOLDERS = (
    "coordinator",
    "cpu_worker",
    "deploy",
    "docs",
    "engines",
    "gpu_worker",
    "grafana",
    "jobs",
    "k8s",
    "nginx",
    "prometheus",
    "requirements",
    "runner",
    "threads_cluster",
    "threads_protocol",
    "web",
)
#: Patterns of files in the top folder of the tree.
FILES = (
    ".clusterignore",
    ".dockerignore",
    ".env.example",
    "*.md",
    "LICENSE*",
    "NOTICE*",
    "deploy-cluster.sh",
    "docker-compose.yml",
    "mkdocs.yml",
    "pyproject.toml",
)
#: Built files, which git ignores.
BUILT = "web/dist"
#: Names of files and folders that are left out wherever they are.
LEFT_OUT = ("__pycache__", "node_modules", "test", "tests", ".gitignore", "server.tar")
#: Modification time of all files: 1980-01-01, the earliest that a wheel can contain.
MODIFIED = 315532800


def list_files(root: Path) -> list[str]:
    """Return the sorted paths of the files of the tree in a checkout or an unpacked tree, relative to the root."""
    names = _listed_by_git(root) if (root / ".git").exists() else None
    found = set(_walk(root) if names is None else [*names, *_walk_folder(root, BUILT)])
    return sorted(name for name in found if is_in_tree(name) and (root / name).is_file())


def is_in_tree(name: str) -> bool:
    """Return True if a path belongs to the tree."""
    path = PurePosixPath(name)
    if any(part in LEFT_OUT for part in path.parts) or path.suffix == ".pyc":
        return False
    return path.parts[0] in FOLDERS if len(path.parts) > 1 else any(path.match(pattern) for pattern in FILES)


def _listed_by_git(root: Path) -> list[str] | None:
    """Return the files that git does not ignore, or None if git cannot list them."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.decode().split("\0")[:-1]


def _walk(root: Path) -> Iterator[str]:
    yield from (path.name for path in root.iterdir())
    for folder in FOLDERS:
        yield from _walk_folder(root, folder)


def _walk_folder(root: Path, folder: str) -> Iterator[str]:
    yield from (path.relative_to(root).as_posix() for path in (root / folder).rglob("*"))


def pack(root: Path, archive: Path) -> None:
    """Write the archive of the tree. Its bytes depend only on the names, contents and executable bits of the files."""
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as opened:
        for name in list_files(root):
            opened.add(root / name, name, recursive=False, filter=_normalize)


def _normalize(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mode = 0o755 if member.mode & 0o100 else 0o644
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = MODIFIED
    return member
