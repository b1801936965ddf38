"""Folders of a runner: working directories, the file cache, workspaces and Python environments."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Places:
    """Paths of a runner's folders below `top`. Other users can enter the folders but cannot list them."""

    top: Path

    def make(self) -> None:
        """Create the runner's folders. Raises OSError."""
        for folder in (self.top, self.work, self.cache, self.workspaces, self.environments):
            folder.mkdir(parents=True, exist_ok=True)
        for folder in (self.top, self.work, self.workspaces, self.environments):
            folder.chmod(0o711)
        self.cache.chmod(0o700)

    @property
    def work(self) -> Path:
        return self.top / "work"

    @property
    def cache(self) -> Path:
        return self.top / "cache"

    @property
    def workspaces(self) -> Path:
        return self.top / "workspaces"

    @property
    def environments(self) -> Path:
        return self.top / "environments"

    def workspace(self, tenant: str, name: str, uid: int | None) -> Path:
        """Create a tenant's workspace if needed, and return its path. The slot's user becomes its owner."""
        folder = self.workspaces / _encode_name(tenant)
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        workspace = folder / _encode_name(name)
        workspace.mkdir(mode=0o700, exist_ok=True)
        if uid is not None and workspace.lstat().st_uid != uid:
            give(workspace, uid)
        return workspace


def _encode_name(name: str) -> str:
    """Return a folder name for a tenant or workspace: the name itself if it is safe, otherwise a digest."""
    return name if _PLAIN.fullmatch(name) else f"_{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def give(top: Path, uid: int) -> None:
    """Change the owner of a folder and its contents without following links.

    The top folder changes last, so that an interrupted call is repeated.
    """
    for _, names, files, descriptor in os.fwalk(top, follow_symlinks=False):
        for name in [*names, *files]:
            os.chown(name, uid, uid, dir_fd=descriptor, follow_symlinks=False)
    os.chown(top, uid, uid, follow_symlinks=False)
