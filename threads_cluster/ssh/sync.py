"""Transfer of a folder to a host over SFTP. Only changed files are sent.

A list on the host records the sent files with their hashes. A file is sent if its local hash differs from the list, or
if its size or modification time on the host does. Listed files that no longer exist locally are removed. Other files on
the host stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import posixpath
import secrets
import socket
import stat
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh

from threads_cluster.client import trees
from threads_cluster.ssh.configuration import Node
from threads_cluster.ssh.pool import Pool
from threads_cluster.ssh.refusals import HostTrouble
from threads_cluster.terminal import visible
from threads_protocol import manifest
from threads_protocol.folders import Tree

#: Name of the folder on a host that contains the lists of sent files.
_LISTS = ".cluster-sent"
#: Maximum number of concurrent file transfers.
#: Maximum number of concurrent SFTP requests. A file needs five round trips.
_FILES, _QUESTIONS = 64, 128
#: Maximum size in bytes of a list of sent files.
_MOST_LIST = 64 << 20
_PIECE = 1 << 16

#: Callback that reports progress: the number of bytes that were sent, and the total number.
Progress = Callable[[int, int], Any]


@dataclass(frozen=True, kw_only=True)
class Synced:
    """Result of transferring a folder to a host."""

    #: Absolute path of the folder on the host.
    folder: str
    files: int
    sent_files: int
    sent_bytes: int
    removed: int


class Sender:
    """Transfer of one folder to one host."""

    def __init__(self, pool: Pool, node: Node, tree: Tree, progress: Progress, *, name: str = "") -> None:
        """Prepare the transfer. `name` is the name of the folder on the host, by default its local name."""
        self._pool, self._node, self._tree, self._progress = pool, node, tree, progress
        self._name = name or tree.root.resolve().name or "root"
        self._files = {entry.path: entry for entry in tree.entries if entry.is_file}
        self._links = {entry.path: entry.target for entry in tree.entries if entry.kind == "l"}
        self._sent_bytes = self._total = 0
        self._sftp: Any = None
        self._root = self._list = ""

    async def send(self) -> Synced:
        """Make the folder on the host equal to the local folder. Raises HostTrouble."""
        async with self._pool.channel(self._node) as connection, connection.start_sftp_client() as self._sftp:
            try:
                return await self._send()
            except asyncssh.SFTPError as error:
                raise await self._to_trouble(error) from None

    async def _send(self) -> Synced:
        await self._find_root()
        before = await self._before()
        removed = await self._remove([path for path in before if path not in self._files and path not in self._links])
        await self._make_folders()
        times = {path: int((self._tree.root / path).lstat().st_mtime) for path in self._files}
        changed = await self._changed(before, times)
        self._total = sum(self._files[path].size for path in changed)
        await _for_each(_FILES, lambda path: self._put(path, times[path]), changed)
        await self._link(before)
        await self._keep(times)
        return Synced(
            folder=self._root,
            files=len(self._files),
            sent_files=len(changed),
            removed=removed,
            sent_bytes=self._sent_bytes,
        )

    async def _find_root(self) -> None:
        around = self._pool.config.root(self._node)
        if around.startswith("~/"):
            around = posixpath.join(await self._sftp.realpath("."), around[2:])
        self._root = posixpath.join(around, self._name)
        self._list = posixpath.join(around, _LISTS, f"{self._name}.json")
        for folder in (self._root, posixpath.dirname(self._list)):
            await self._sftp.makedirs(folder, exist_ok=True)

    # -- read the host's state -------------------------------------------------------------------------------------

    async def _before(self) -> dict[str, list[Any]]:
        """Return the files that earlier transfers sent, with their hash, mode, size and time, keyed by path.

        For a link, the value contains its target.
        """
        try:
            async with self._sftp.open(self._list, "rb") as file:
                kept = json.loads(await file.read(_MOST_LIST))
            origin, rows = kept["from"], kept["sent"]
            rows = {path: row for path, row in rows.items() if _is_sound(path) and isinstance(row, list)}
        except asyncssh.SFTPNoSuchFile:
            return {}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}  # The list is damaged, so all files are compared
        if origin != self._origin():
            advice = f"rename one of the folders, or set a different remote_root for {self._node.name}"
            raise HostTrouble(
                self._node, f"{self._root} is a copy of a different folder: {visible(str(origin), 200)}", advice
            )
        return rows

    def _origin(self) -> str:
        return f"{socket.gethostname()}:{self._tree.root.resolve()}"

    async def _changed(self, before: Mapping[str, list[Any]], times: Mapping[str, int]) -> list[str]:
        """Return the paths of all files that must be sent."""
        changed: list[str] = []

        async def look(path: str) -> None:
            if before.get(path) != self._row(path, times) or not await self._is_there(path, before[path]):
                changed.append(path)

        await _for_each(_QUESTIONS, look, self._files)
        return sorted(changed)

    def _row(self, path: str, times: Mapping[str, int]) -> list[Any]:
        entry = self._files[path]
        return [entry.sha, entry.kind, entry.size, times[path]]

    async def _is_there(self, path: str, row: list[Any]) -> bool:
        try:
            about = await self._sftp.lstat(self._at(path))
        except asyncssh.SFTPNoSuchFile:
            return False
        return bool(stat.S_ISREG(about.permissions or 0) and [about.size, about.mtime] == row[2:])

    def _at(self, path: str) -> str:
        return posixpath.join(self._root, path)

    # -- change the host's files -----------------------------------------------------------------------------------

    async def _remove(self, paths: Iterable[str]) -> int:
        """Remove files on the host that do not exist locally any more. Also remove folders that become empty."""
        folders: set[str] = set()
        count = 0
        for path in paths:
            with contextlib.suppress(asyncssh.SFTPNoSuchFile, asyncssh.SFTPNotADirectory):
                await self._sftp.remove(self._at(path))
                count += 1
            folders |= {str(each) for each in Path(path).parents if str(each) != "."}
        for folder in sorted(folders, key=len, reverse=True):
            with contextlib.suppress(asyncssh.SFTPError):
                await self._sftp.rmdir(self._at(folder))
        return count

    async def _make_folders(self) -> None:
        folders = {str(parent) for path in (*self._files, *self._links) for parent in Path(path).parents}
        folders |= {entry.path for entry in self._tree.entries if entry.kind == "d"}
        by_depth = defaultdict(list)
        for folder in folders - {"."}:
            by_depth[folder.count("/")].append(folder)
        for _, same_depth in sorted(by_depth.items()):
            await _for_each(_QUESTIONS, self._make_folder, same_depth)

    async def _make_folder(self, folder: str) -> None:
        try:
            await self._sftp.mkdir(self._at(folder))
        except asyncssh.SFTPError:  # SFTP has no specific error for an existing folder
            if not await self._sftp.isdir(self._at(folder)):
                raise

    async def _put(self, path: str, moment: int) -> None:
        """Send a file under a temporary name and rename it. No program can then read an incomplete file."""
        entry, place = self._files[path], self._at(path)
        part = posixpath.join(posixpath.dirname(place), f".cluster-{secrets.token_hex(8)}.part")
        try:
            with trees.opened(self._tree.root, path) as file:
                async with self._sftp.open(part, "wb") as there:
                    while piece := file.read(_PIECE):
                        await there.write(piece)
                        self._count(len(piece))
            mode = 0o755 if entry.kind == "x" else 0o644
            await self._sftp.setstat(part, asyncssh.SFTPAttrs(permissions=mode, atime=moment, mtime=moment))
            await self._sftp.posix_rename(part, place)
        except BaseException:
            with contextlib.suppress(asyncssh.Error, OSError):
                await self._sftp.remove(part)
            raise

    def _count(self, sent: int) -> None:
        self._sent_bytes += sent
        self._progress(self._sent_bytes, max(self._total, self._sent_bytes))

    async def _link(self, before: Mapping[str, list[Any]]) -> None:
        for path, target in self._links.items():
            if before.get(path) != [target] or not await self._sftp.islink(self._at(path)):
                with contextlib.suppress(asyncssh.SFTPNoSuchFile):
                    await self._sftp.remove(self._at(path))
                await self._sftp.symlink(target, self._at(path))

    async def _keep(self, times: Mapping[str, int]) -> None:
        sent: dict[str, list[Any]] = {path: self._row(path, times) for path in self._files}
        sent |= {path: [target] for path, target in self._links.items()}
        part = f"{self._list}.{secrets.token_hex(8)}.part"
        async with self._sftp.open(part, "wb") as file:
            await file.write(json.dumps({"from": self._origin(), "sent": sent}).encode())
        await self._sftp.posix_rename(part, self._list)

    async def _to_trouble(self, error: Any) -> HostTrouble:
        """Convert an error of the host's disk into a HostTrouble. SFTP reports few details."""
        why = error.reason
        with contextlib.suppress(asyncssh.Error, OSError):
            room = await self._sftp.statvfs(posixpath.dirname(self._root) or "/")
            why += f"; {room.bavail * room.frsize:,} bytes are free there"
        return HostTrouble(
            self._node, f"cannot write {self._root}: {why}", "free disk space on the host, or set remote_root"
        )


async def _for_each(most: int, work: Callable[[str], Awaitable[None]], paths: Iterable[str]) -> None:
    """Call `work` for all paths, at most `most` at the same time. The first error cancels the others."""
    places = asyncio.Semaphore(most)

    async def one(path: str) -> None:
        async with places:
            await work(path)

    tasks = [asyncio.ensure_future(one(path)) for path in paths]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _is_sound(path: str) -> bool:
    try:
        manifest.check_path(path)
    except ValueError:
        return False
    return True
