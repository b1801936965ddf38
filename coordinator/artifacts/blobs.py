"""Store the contents of files as objects under ARTIFACT_URL, using fsspec.

An object is written once, read in parts, and deleted. Only Redis records which file an object belongs to
(`jobs/store/files.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobs import errors
from jobs.store.files import Files

#: Name of the marker file in the store's top folder. It contains the ID of the store.
MARKER = "threads-cluster-artifacts"
#: Seconds to wait while another coordinator writes the marker file.
_SETTLE_SECONDS = 10.0
_FULL = {errno.ENOSPC, errno.EDQUOT}
_TOO_FEW = "All coordinators must use the same artifact store"


class WrongStore(Exception):
    """ARTIFACT_URL is not this cluster's store or cannot be used. The message contains the reason and a solution."""


class Lost(Exception):
    """The store has lost the contents of an object."""


class Blobs:
    """Reads and writes the objects of one artifact store.

    Methods raise StoreFull, Unavailable, or Lost if an object does not exist.
    """

    def __init__(self, url: str) -> None:
        # Import fsspec on first use, because the import is slow.
        from fsspec.core import url_to_fs

        self.url = url
        local = {"auto_mkdir": True} if "://" not in url or url.startswith(("file:", "local:")) else {}
        try:
            self.filesystem, self._root = url_to_fs(url, **local)
        except (ImportError, ValueError) as error:
            raise WrongStore(f"ARTIFACT_URL={url} cannot be used: {error}") from None
        #: Local folder of the store, or None if the store is remote.
        self._folder = Path(self._root) if local else None
        #: Store ID found by the last check.
        self._known = ""

    def write(self, tenant: str, objects: Mapping[str, bytes]) -> None:
        """Write new objects and flush them to disk. If a write fails, remove all new objects."""
        paths = {self._path(tenant, name): data for name, data in objects.items()}
        try:
            with _convert_errors(missing=errors.Unavailable):
                self._write(paths)
            if self._folder is not None:  # if a volume is not mounted, the files were written to its empty mount point
                self._check_accessible()
        except Exception:
            for path in paths:
                with contextlib.suppress(Exception):
                    self.filesystem.rm_file(path)
            raise

    def read(self, tenant: str, name: str, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end` (exclusive) of an object. Raise Lost if they do not exist."""
        if start >= end:
            return b""
        try:
            with _convert_errors():
                data: bytes = self.filesystem.cat_file(self._path(tenant, name), start=start, end=end)
        except Lost:
            self._check_accessible()
            raise
        if len(data) != end - start:
            raise Lost(f"object {name} is truncated")
        return data

    def delete(self, objects: Sequence[tuple[str, str]]) -> None:
        """Delete objects, identified by (tenant, name). Objects that do not exist are ignored."""
        for tenant, name in objects:
            try:
                with _convert_errors():
                    self.filesystem.rm_file(self._path(tenant, name))
            except Lost:
                self._check_accessible()

    def check(self, files: Files) -> None:
        """Raise WrongStore unless this is the artifact store of this cluster.

        A cluster without a store adopts this one, even if another Redis used it before. That is safe: object names are
        random, and a cluster deletes only objects that its Redis knows.
        """
        if files.store_id() is None and files.claim_store():
            self._known = self._marker() or self._write_marker()
            files.settle_store(self._known)
            return
        deadline = time.monotonic() + _SETTLE_SECONDS
        while not (known := files.store_id()):
            if time.monotonic() > deadline:
                raise WrongStore(
                    "another coordinator has not finished creating the artifact store; start this coordinator again"
                )
            time.sleep(0.1)
        self._compare(known, self._marker())
        self._known = known

    def _check_accessible(self) -> None:
        """Raise Unavailable if the store is not accessible, for example because a volume is not mounted."""
        try:
            there = self._marker()
        except WrongStore as error:
            raise errors.Unavailable(str(error)) from None
        if self._known and there != self._known:
            detail = f"the artifact store at {self.url} is not available: its file {MARKER} is missing; mount it again"
            raise errors.Unavailable(detail)

    def _write(self, paths: Mapping[str, bytes]) -> None:
        if self._folder is None:
            self.filesystem.pipe(dict(paths))
            return
        for path, data in paths.items():
            self.filesystem.pipe_file(path, data)
        _sync_to_disk(self._folder)

    def _path(self, tenant: str, name: str) -> str:
        return f"{self._root}/{tenant}/{name[:2]}/{name}"

    def _marker(self) -> str:
        try:
            with _convert_errors(missing=FileNotFoundError):
                text: bytes = self.filesystem.cat_file(f"{self._root}/{MARKER}")
        except FileNotFoundError:
            return ""
        except errors.ClusterError as error:
            raise self._unusable("read", error) from None
        return text.decode(errors="replace").strip()

    def _write_marker(self) -> str:
        store_id = secrets.token_hex(16)
        try:
            with _convert_errors(missing=errors.Unavailable):
                self._write({f"{self._root}/{MARKER}": f"{store_id}\n".encode()})
        except errors.ClusterError as error:
            raise self._unusable("written", error) from None
        return store_id

    def _unusable(self, verb: str, error: errors.ClusterError) -> WrongStore:
        return WrongStore(
            f"ARTIFACT_URL={self.url} cannot be {verb}: {error.detail}. Give the coordinators' user read and write"
            " access, or set ARTIFACT_URL to another location"
        )

    def _compare(self, known: str, marker: str) -> None:
        if marker == known:
            return
        what = f"has the marker {marker}" if marker else f"has no file {MARKER}"
        raise WrongStore(
            f"ARTIFACT_URL={self.url} {what}, but the ID of this cluster's store is {known}. {_TOO_FEW}: mount one"
            " shared folder on all of them, or use a bucket (docs/artifacts.md). If the store is permanently lost, run"
            " redis-cli del ct:filestore"
        )


@contextmanager
def _convert_errors(missing: type[Exception] = Lost) -> Iterator[None]:
    """Convert the errors of storage drivers to errors of this project."""
    try:
        yield
    except FileNotFoundError as error:
        raise missing(str(error)) from None  # storage drivers also raise this error for a missing folder or bucket
    except OSError as error:
        if error.errno in _FULL:
            raise errors.StoreFull(
                "the artifact store is full; delete artifacts (list them with `cluster artifact list`), or add storage",
                field="body",
            ) from None
        reason = error.strerror or str(error) or type(error).__name__
        raise errors.Unavailable(f"the artifact store does not respond: {reason}") from None
    except Exception as error:
        if type(error).__module__ == "builtins":
            raise
        # Storage drivers raise errors of their own classes, such as botocore's.
        raise errors.Unavailable(f"the artifact store does not respond: {error}") from None


def _sync_to_disk(folder: Path) -> None:
    """Flush all writes on the folder's file system to disk. One call suffices for many files."""
    syncfs: Callable[[int], Any] | None = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:  # only Linux has syncfs
        os.sync()
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        if syncfs(opened):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(opened)
