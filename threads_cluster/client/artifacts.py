"""Upload and download of artifacts. An upload sends only the files that the cluster lacks."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import httpx

from threads_cluster.client import answers, trees
from threads_cluster.client.connection import Connection, Patience
from threads_cluster.client.resource import pages, quoted
from threads_cluster.client.writing import Target
from threads_cluster.errors import ApiError, BadArgument, UnexpectedAnswer
from threads_cluster.terminal import visible
from threads_protocol import bundles, folders, manifest, uploads
from threads_protocol.answers import artifacts as artifact_answers
from threads_protocol.errors import MalformedText
from threads_protocol.folders import Tree
from threads_protocol.manifest import Entry
from threads_protocol.uploads import Upload

Json: TypeAlias = dict[str, Any]
#: Callback that reports the progress of a transfer: the number of transferred bytes, and the total number.
Progress: TypeAlias = Callable[[int, int], None]

#: Pattern of complete artifact IDs. Other texts must be resolved by the cluster.
_ID = re.compile(r"[0-9a-f]{64}")
#: Maximum number of artifacts whose file lists are cached.
_KNOWN = 4


def _silent(_done: int, _total: int) -> None:
    pass


class Artifacts:
    """Artifacts of a tenant. The token of the connection determines the tenant."""

    def __init__(self, connection: Connection, patience: float) -> None:
        self._connection = connection
        self._patience = patience
        #: Files of recently used artifacts by their paths.
        self._known_entries = lru_cache(_KNOWN)(self._entries_by_path)

    def put(
        self, path: str | Path, *, name: str | None = None, exclude: Sequence[str] = (), progress: Progress = _silent
    ) -> Json:
        """Upload a folder or a file, and return `{artifact, new, sent_files, sent_bytes, manifest_bytes}`.

        `path` is the folder or the file. The artifact `name` then points to the upload. `exclude` adds .gitignore
        patterns to those in .clusterignore. `progress` is called with the number of sent bytes. Raises BadArgument for
        an unsupported file, such as a link that points outside the folder.

        Example:
            print(cluster.artifacts.put("data", name="data", exclude=["*.tmp"])["artifact"]["artifact_id"])
        """
        return self.store(trees.scan(Path(path), exclude), name=name, progress=progress)

    def store(self, tree: Tree, *, name: str | None = None, progress: Progress = _silent) -> Json:
        """Upload a tree, and return the same as `put`. `name` and `progress` are those of `put`.

        Example:
            cluster.artifacts.store(tree, name="data")
        """
        sent: dict[str, int] = {}
        for attempt in itertools.count(1):
            try:
                self._send_missing(tree, sent, progress)
                committed = self._commit(tree, name)
            except ApiError as error:
                if (error.status, error.field) not in uploads.GONE or attempt == uploads.ATTEMPTS:
                    raise
            else:
                return committed | {
                    "sent_files": len(sent),
                    "sent_bytes": sum(sent.values()),
                    "manifest_bytes": len(tree.manifest),
                }
        raise AssertionError

    def list(self) -> Iterator[Json]:
        """Yield artifacts, newest first. The next page is requested when it is needed.

        Example:
            for artifact in cluster.artifacts.list():
                print(artifact["artifact_id"], artifact["names"])
        """

        def ask(cursor: str | None, size: int) -> Json:
            return self._ask("GET", "/api/artifacts", artifact_answers.ArtifactList, cursor=cursor, limit=size)

        return pages(self._connection.url, ask, "artifacts")

    def info(self, artifact: str) -> Json:
        """Return an artifact by its ID, by the first digits of its ID, or by its name.

        Example:
            print(cluster.artifacts.info("data")["artifact_id"])
        """
        return self._ask("GET", f"/api/artifacts/{_step(artifact)}", artifact_answers.Artifact)

    def files(self, artifact: str) -> Sequence[Entry]:
        """Return the list of an artifact's files, folders and links.

        Raises UnsafeArtifact if a path points outside the folder, and UnexpectedAnswer if the manifest is another
        artifact's.

        Example:
            for entry in cluster.artifacts.files("data"):
                print(entry.path, entry.size)
        """
        return self._entries(artifact if _ID.fullmatch(artifact) else self.info(artifact)["artifact_id"])

    def fetch(self, artifact: str, folder: str | Path, *, progress: Progress = _silent) -> Json:
        """Download an artifact into a folder and verify its files. Return `{artifact, fetched_files, fetched_bytes}`.

        Existing files are not downloaded again. An interrupted download resumes. Raises BadArgument before writing if a
        path of the artifact exists with other contents. Files are never written outside the folder.

        `progress` is called with the number of received bytes.

        Example:
            cluster.artifacts.fetch("data", "copy-of-data")
        """
        row = self.info(artifact)
        return {"artifact": row} | self._fetch_into(folder, self._entries(row["artifact_id"]), progress)

    def fetch_part(
        self, artifact_id: str, folder: str | Path, rename: Callable[[str], str | None], *, replace: bool = False
    ) -> Json:
        """Download some paths of an artifact into a folder, and return `{fetched_files, fetched_bytes}`.

        `rename` returns the new path below the folder, or None to omit the path. With `replace`, existing files are
        overwritten. Links to omitted paths are omitted too.

        Example:
            cluster.artifacts.fetch_part(artifact_id, "logs", lambda path: path if path.endswith(".log") else None)
        """
        named = {entry.path: (rename(entry.path), entry) for entry in self._entries(artifact_id)}
        entries = [
            dataclasses.replace(entry, path=path)
            for path, entry in named.values()
            if path is not None and (entry.kind != "l" or _leads_along(entry, path, rename))
        ]
        sound = trees.parsed(manifest.serialize(folders.without_broken_links(entries)))
        return self._fetch_into(folder, sound, _silent, replace=replace)

    def entry(self, artifact_id: str, path: str) -> Entry | None:
        """Return the entry for the file `path` of an artifact, or None if the artifact does not contain the file.

        Example:
            entry = cluster.artifacts.entry(artifact_id, "model.pt")
        """
        return self._known_entries(artifact_id).get(path)

    def part(self, sha: str, first: int, length: int) -> bytes:
        """Return up to `length` bytes of the file with the SHA-256 `sha`, starting at the offset `first`.

        Example:
            entry = cluster.artifacts.entry(artifact_id, "model.pt")
            print(cluster.artifacts.part(entry.sha, 0, 16))
        """
        return b"".join(self.pieces(sha, first, length))

    def read(self, entry: Entry) -> bytearray:
        """Return the contents of the file of an `entry`.

        Raises UnexpectedAnswer if the contents do not match the SHA-256 of the entry.

        Example:
            entry = cluster.artifacts.entry(artifact_id, "settings.json")
            print(json.loads(cluster.artifacts.read(entry)))
        """
        data, at, digest = bytearray(entry.size), 0, hashlib.sha256()
        for piece in self.pieces(entry.sha, 0, entry.size):
            data[at : at + len(piece)] = piece
            digest.update(piece)
            at += len(piece)
        if digest.hexdigest() != entry.sha:
            raise UnexpectedAnswer(self._connection.url, f"the contents of {visible(entry.path)} do not match its hash")
        return data

    def pieces(self, sha: str, first: int, length: int) -> Iterator[bytes]:
        """Yield `length` bytes of the file with the SHA-256 `sha`, starting at the offset `first`.

        The bytes are not verified. Broken connections are resumed.

        Example:
            for data in cluster.artifacts.pieces(entry.sha, 0, entry.size):
                file.write(data)
        """
        enduring = Patience(self._patience)
        while length > 0:
            try:
                with self._connection.download(f"/api/files/{sha}", first) as chunks:
                    for chunk in chunks:
                        data = chunk[:length]
                        first, length = first + len(data), length - len(data)
                        enduring.succeeded()
                        yield data
                        if not length:
                            return
                return
            except (httpx.TransportError, ApiError) as error:
                self._connection.endure(error, enduring)

    def _fetch_into(
        self, folder: str | Path, entries: Sequence[Entry], progress: Progress, *, replace: bool = False
    ) -> Json:
        target = Target(Path(folder), replace=replace)
        try:
            target.avoid(entries)
            _check_case(target, entries)
            for entry in entries:
                if not entry.is_file:
                    target.check_place(entry)
            lacking = [entry for entry in entries if entry.is_file and not target.has(entry)]
            there = {entry.path for entry in lacking}
            self._fetch(target, lacking, progress)
            for entry in entries:
                if entry.kind == "d":
                    target.make_folder(entry.path)
                elif entry.is_file and entry.path not in there:
                    target.set_mode(entry)
            for entry in entries:  # Links come last, so that no file is written through a link.
                if entry.kind == "l":
                    target.make_link(entry)
        except OSError as error:
            raise BadArgument(f"{visible(str(folder))} cannot be written: {error.strerror}") from None
        finally:
            target.close()
        return {"fetched_files": len(lacking), "fetched_bytes": sum(entry.size for entry in lacking)}

    def delete(self, artifact: str, *, job: str | None = None) -> None:
        """Delete an artifact and all of its names. Raises ApiError 409 if a job other than `job` uses the artifact.

        If `job` uses it and has not ended, only the names are deleted now.

        Example:
            cluster.artifacts.delete("old-data")
        """
        self._ask("DELETE", f"/api/artifacts/{_step(artifact)}", None, job=job)

    # -- upload --------------------------------------------------------------------------------------------------------

    def send(self, tree: Tree) -> None:
        """Upload the files of a tree, but create no artifact. Files without an artifact are deleted after a day.

        Example:
            cluster.artifacts.send(tree)
        """
        self._send_missing(tree, {}, _silent)

    def _send_missing(self, tree: Tree, sent: dict[str, int], progress: Progress) -> None:
        upload = Upload(tree, _Calls(self._ask))
        total, done = sum(entry.size for entry in upload.entries), 0
        progress(0, total)
        try:
            for entries, size in upload.send():
                done += size
                progress(done, total)
                sent.update((entry.sha, entry.size) for entry in entries)
        except uploads.Unsendable as error:
            raise BadArgument(visible(str(error))) from None

    def _commit(self, tree: Tree, name: str | None) -> Json:
        more = {"name": name, "extra_seconds": uploads.STORING_SECONDS}
        return self._ask("POST", "/api/artifacts", artifact_answers.Committed, octets=tree.manifest, **more)

    # -- download ------------------------------------------------------------------------------------------------------

    def _entries_by_path(self, artifact_id: str) -> dict[str, Entry]:
        return {each.path: each for each in self._entries(artifact_id) if each.is_file}

    def _entries(self, artifact_id: str) -> Sequence[Entry]:
        path = f"/api/artifacts/{quoted(artifact_id)}/manifest"
        text = self._connection.ask_octets("GET", path, patience=self._patience, extra_seconds=uploads.STORING_SECONDS)
        if hashlib.sha256(text).hexdigest() != artifact_id:
            raise UnexpectedAnswer(self._connection.url, "the manifest does not match the artifact")
        return trees.parsed(text)

    def _fetch(self, target: Target, lacking: Sequence[Entry], progress: Progress) -> None:
        files = trees.by_hash(lacking)
        total, done = sum(entries[0].size for entries in files.values()), 0
        progress(0, total)
        small = {sha: entries for sha, entries in files.items() if entries[0].size <= uploads.SMALL}
        for sha, data in self._bundles(list(small)):
            self._check_size(small[sha][0], len(data))
            for entry in small[sha]:
                target.write(entry, data)
            done += len(data)
            progress(done, total)
        for first, *others in (entries for sha, entries in files.items() if sha not in small):
            for step in self._download(target, first):
                done += step
                progress(done, total)
            for entry in others:
                target.copy(first, entry)

    def _bundles(self, shas: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the hash and the content of each small file. The content has been verified."""
        left = list(shas)
        while left:
            body = self._connection.ask_octets(
                "POST",
                "/api/file-bundle",
                patience=self._patience,
                body={"hashes": left[: bundles.MAX_FILES]},
                extra_seconds=uploads.STORING_SECONDS,
            )
            try:
                files = bundles.unpack(body)
            except MalformedText:
                why = "the contents of a file do not match its hash"
                raise UnexpectedAnswer(self._connection.url, why) from None
            if not files or list(files) != left[: len(files)]:
                raise UnexpectedAnswer(self._connection.url, "the server sent files that were not requested")
            yield from files.items()
            left = left[len(files) :]

    def _download(self, target: Target, entry: Entry) -> Iterator[int]:
        """Download one large file, and yield the number of bytes in each step. An interrupted download resumes."""
        with target.part(entry) as part:
            made, there = hashlib.sha256(), 0
            while piece := part.read(1 << 20):
                made.update(piece)
                there += len(piece)
            yield there
            with closing(self._rest(entry, there)) as pieces:
                for piece in pieces:
                    part.write(piece)
                    made.update(piece)
                    there += len(piece)
                    yield len(piece)
        if there != entry.size or made.hexdigest() != entry.sha:
            target.drop_part(entry)
            self._check_size(entry, there)
            raise UnexpectedAnswer(self._connection.url, f"the contents of {visible(entry.path)} do not match its hash")
        target.finish(entry)

    def _rest(self, entry: Entry, there: int) -> Generator[bytes]:
        """Yield the bytes of a file after the first `there` bytes. A file that is too long ends after one extra
        piece.
        """
        enduring, before = Patience(self._patience), -1
        while before < there < entry.size:
            before = there
            try:
                with self._connection.download(f"/api/files/{entry.sha}", there) as pieces:
                    for piece in pieces:
                        there += len(piece)
                        yield piece
                        enduring.succeeded()
                        if there > entry.size:
                            return
            except (httpx.TransportError, ApiError) as error:
                if isinstance(error, ApiError) and error.status == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                    return  # The file on the server has no more bytes
                before = -1
                self._connection.endure(error, enduring)

    def _check_size(self, entry: Entry, found: int) -> None:
        if found != entry.size:
            sizes = f"{visible(entry.path)} has {found} bytes, but the manifest says {entry.size}"
            raise UnexpectedAnswer(self._connection.url, sizes)

    def _ask(self, method: str, path: str, shape: Any = answers.Anything, **how: Any) -> Json:
        answer: Json = self._connection.ask(method, path, shape, **({"patience": self._patience} | how))
        return answer


def _step(artifact: str) -> str:
    return quoted(artifact, "id or name of an artifact")


class _Calls:
    """API calls of an upload, which are sent over one connection."""

    def __init__(self, ask: Callable[..., Json]) -> None:
        self._ask = ask

    def missing(self, hashes: Sequence[str]) -> Json:
        return self._ask("POST", "/api/missing-files", artifact_answers.MissingFiles, body={"hashes": hashes})

    def send(self, method: str, path: str, body: bytes | None, seconds: float, **query: int) -> None:
        self._ask(method, f"/api/{path}", octets=body, extra_seconds=seconds, **query)


def _leads_along(link: Entry, path: str, rename: Callable[[str], str | None]) -> bool:
    """Return True if a renamed link still points to its target under the target's new name."""
    led = trees.led_to(link)
    return rename(led) == trees.led_to(dataclasses.replace(link, path=path))


def _check_case(target: Target, entries: Sequence[Entry]) -> None:
    pair = trees.colliding(entries)
    if pair and target.joins_names():
        one, other = map(visible, pair)
        raise BadArgument(f"{one} and {other} would be the same file on this disk; use a case-sensitive file system")
