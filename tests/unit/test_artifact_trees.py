"""Tests how folders become artifacts, and that a download writes nothing outside its folder."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.artifact_bench import manifest_of, sha_of
from tests.unit.cluster_fake import complete
from threads_cluster.client import api, trees
from threads_cluster.client.trees import UnsafeArtifact
from threads_cluster.client.writing import Target
from threads_cluster.errors import BadArgument, ClientError, UnexpectedAnswer
from threads_protocol.answers.artifacts import Artifact
from threads_protocol.manifest import Entry

DATA = b"what was kept"
FILE: list[Any] = [len(DATA), sha_of(DATA)]


def beside(root: Path) -> None:
    """Create a link that leads out of the folder through another link, although its text names a file in the folder."""
    (root / "deep").mkdir()
    (root / "deep" / "up").symlink_to("..")
    (root / "deep" / "kept").touch()
    (root / "deep" / "x").symlink_to("up/../kept")


def made(path: Path) -> Path:
    path.touch()
    return path


# -- what is put -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda root: (root / "x").symlink_to("/etc/passwd"), "the link x leads to /etc/passwd"),
        (lambda root: (root / "x").symlink_to("../../etc/passwd"), "the link x leads to ../../etc/passwd"),
        (lambda root: (root / "x").symlink_to("nowhere"), "the link x leads to nowhere"),
        (lambda root: (root / "x").symlink_to(".env"), "the link x leads to .env"),
        (beside, "the link deep/x leads to up/../kept"),
        (lambda root: os.truncate(made(root / "x"), (64 << 30) + 1), "x is larger than 64 GiB"),
        (lambda root: os.mkfifo(root / "x"), "x is not a file, folder or link"),
        (lambda root: (root / "a\\b").touch(), "without NUL and backslash"),
        (lambda root: os.close(os.open(os.fsencode(root) + b"/a\xff", os.O_CREAT)), "not UTF-8"),
        (lambda root: (root / ".clusterignore").write_text("[z-a]\n!"), "pattern"),
    ],
)
def test_what_cannot_be_put_is_named(tmp_path: Path, make: Callable[[Path], Any], part: str) -> None:
    (tmp_path / ".env").touch()
    make(tmp_path)
    with pytest.raises(BadArgument, match=part.replace("\\", "\\\\")):
        trees.scan(tmp_path)


def test_a_folder_that_is_not_there_or_a_link_itself_is_refused_or_followed_as_given(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="is neither a folder nor a file"):
        trees.scan(tmp_path / "none")
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").touch()
    (tmp_path / "link").symlink_to("real")
    assert trees.scan(tmp_path / "link").manifest == trees.scan(tmp_path / "real").manifest


def test_links_inside_are_kept_and_never_followed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_bytes(DATA)
    (tmp_path / "data" / "up").symlink_to("..")
    (tmp_path / "latest").symlink_to("data")
    entries = trees.scan(tmp_path).entries
    assert [(entry.kind, entry.path) for entry in entries] == [("f", "data/a"), ("l", "data/up"), ("l", "latest")]


def test_links_through_links_and_names_with_two_dots_are_put(tmp_path: Path) -> None:
    """Kubernetes mounts ConfigMaps with such links."""
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..2026" / "conf").write_bytes(DATA)
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "conf").symlink_to("..data/conf")
    assert [entry.path for entry in trees.parsed(trees.scan(tmp_path).manifest)] == ["..2026/conf", "..data", "conf"]


def test_a_folder_of_any_depth_is_put(tmp_path: Path) -> None:
    (tmp_path / "/".join("a" * 300)).mkdir(parents=True)
    trees.scan(tmp_path)  # imported modules need stack depth too
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 150)
    try:
        [entry] = trees.scan(tmp_path).entries
    finally:
        sys.setrecursionlimit(limit)
    assert entry.path == "/".join("a" * 300)


def test_what_is_put_in_the_place_of_a_file_meanwhile_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(DATA)
    root = tmp_path / "work"
    for name, swap in (
        ("link", lambda path: path.symlink_to(tmp_path / "secret")),
        ("pipe", os.mkfifo),
        ("folder/file", lambda path: (path.parent.rmdir(), path.parent.symlink_to(tmp_path))),
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(DATA)
        trees.opened(root, name).close()
        path.unlink()
        swap(path)
        with pytest.raises(BadArgument, match=name):
            trees.opened(root, name)


def test_the_same_folder_makes_the_same_manifest_in_any_place(tmp_path: Path) -> None:
    for name in ("one", "other"):
        for path in ("b", "a/c", "a-b", "ä"):
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(path)
    one, other = (trees.scan(tmp_path / name).manifest for name in ("one", "other"))
    assert one == other
    assert [entry.path for entry in trees.parsed(one)] == ["a-b", "a/c", "b", "ä"]


# -- what is fetched ---------------------------------------------------------------------------------------------------


class Served:
    """A fake cluster with one artifact, with any manifest and files."""

    def __init__(self, manifest: bytes, files: dict[str, bytes]) -> None:
        self.id, self.manifest, self.files = hashlib.sha256(manifest).hexdigest(), manifest, files

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path.endswith("/manifest"):
            return httpx.Response(200, content=self.manifest)
        if path == "/api/file-bundle":
            wanted = json.loads(request.content)["hashes"]
            rows = [[sha, len(self.files[sha])] for sha in wanted]
            head = json.dumps(rows).encode()
            return httpx.Response(200, content=head + b"\n" + b"".join(self.files[sha] for sha in wanted))
        if path.startswith("/api/files/"):
            return self._file(self.files[path.rpartition("/")[2]], request.headers.get("Range", ""))
        return httpx.Response(200, json=complete(Artifact, artifact_id=self.id, files=1, bytes=1))

    @staticmethod
    def _file(data: bytes, wanted: str) -> httpx.Response:
        start = int(wanted.removeprefix("bytes=").removesuffix("-") or 0)
        if not start:
            return httpx.Response(200, content=data)
        if start >= len(data):
            return httpx.Response(416, json={"title": "There are no such bytes", "status": 416})
        return httpx.Response(206, content=data[start:])

    def fetch(self, folder: Path) -> Any:
        with api.Cluster("http://127.0.0.1", "", transport=httpx.MockTransport(self), patience=0) as cluster:
            return cluster.artifacts.fetch("any", folder)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Path]:
    """Return a folder for a download, after which nothing next to it may have changed."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").write_text("kept")
    yield tmp_path / "in"
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["kept"]
    assert (tmp_path / "outside" / "kept").read_text() == "kept"
    assert {path.name for path in tmp_path.iterdir()} <= {"outside", "in"}


@pytest.mark.parametrize(
    "rows",
    [
        [["f", "../outside/x", *FILE]],
        [["f", "a/../../outside/x", *FILE]],
        [["f", "/tmp/x", *FILE]],
        [["f", "", *FILE]],
        [["f", "..", *FILE]],
        [["f", "a\0b", *FILE]],
        [["f", "x" * 300, *FILE]],
        [["f", "a", *FILE], ["f", "a", *FILE]],
        [["f", "a", *FILE], ["f", "a/b", *FILE]],
        [["l", "a", "../outside"], ["f", "a/x", *FILE]],
        [["l", "a", "../outside"]],
        [["f", "p/q/x", *FILE], ["l", "p/q/up", "../.."], ["l", "p/q/z", "up/../outside/../p/q/x"]],
        [["f", "outside/kept", *FILE], ["l", "p/up", ".."], ["l", "p/x", "up/../outside/kept"]],
        [["l", "a", "/etc"]],
        [["f", "a", -1, FILE[1]]],
        [["f", "a", 1, "../../x"]],
        [["q", "a"]],
        [[]],
        [7],
    ],
)
def test_a_manifest_that_leads_elsewhere_writes_nothing(target: Path, rows: list[Any]) -> None:
    with pytest.raises(UnsafeArtifact):
        Served(manifest_of(*rows), {FILE[1]: DATA}).fetch(target)
    assert not target.exists()


@pytest.mark.parametrize("claimed", [0, len(DATA) - 1, len(DATA) + 1, 2 << 20])
def test_a_small_file_of_another_size_than_the_manifest_says_is_refused_by_name(target: Path, claimed: int) -> None:
    served = Served(manifest_of(["f", "sub/a", claimed, FILE[1]], ["f", "sub/b", claimed, FILE[1]]), {FILE[1]: DATA})
    with pytest.raises(UnexpectedAnswer, match=rf"sub/a has {len(DATA)} bytes, but the manifest says {claimed}"):
        served.fetch(target)
    assert not [path for path in target.rglob("*") if path.is_file()]


@pytest.mark.parametrize("claimed", [(2 << 20) - 1, (2 << 20) + 1, 40 << 20])
def test_a_large_file_of_another_size_than_the_manifest_says_is_refused_by_name(target: Path, claimed: int) -> None:
    large = b"x" * (2 << 20)
    served = Served(manifest_of(["f", "a", claimed, sha_of(large)]), {sha_of(large): large})
    with pytest.raises(UnexpectedAnswer, match=rf"a has {len(large)} bytes, but the manifest says {claimed}"):
        served.fetch(target)
    assert not list(target.iterdir())


def test_a_manifest_with_two_sizes_of_one_file_is_refused_by_name(target: Path) -> None:
    rows = ["f", "a", *FILE], ["f", "b", FILE[0] + 1, FILE[1]]
    with pytest.raises(UnsafeArtifact, match="'b' has a different size than another file with the same hash"):
        Served(manifest_of(*rows), {FILE[1]: DATA}).fetch(target)
    assert not target.exists()


def test_nothing_is_written_through_a_link_that_lies_in_the_folder(target: Path) -> None:
    target.mkdir()
    (target / "a").symlink_to("../outside")
    served = Served(manifest_of(["f", "a/x", *FILE]), {FILE[1]: DATA})
    with pytest.raises(BadArgument, match="a exists and is not a folder"):
        served.fetch(target)
    (target / "a").unlink()
    (target / "a").mkdir()
    (target / "a" / "x").symlink_to("../../outside/kept")
    with pytest.raises(BadArgument, match="exists with other contents"):
        served.fetch(target)
    (target / "a" / "x").unlink()
    (target / "a" / f".cluster-{FILE[1][:32]}.part").symlink_to("../../outside/kept")
    with pytest.raises(BadArgument, match="cannot be written"):
        served.fetch(target)


def test_a_file_that_is_there_and_is_another_is_not_replaced(target: Path) -> None:
    target.mkdir()
    (target / "b").write_text("mine")
    with pytest.raises(BadArgument, match="in/b exists with other contents; fetch into an empty folder"):
        Served(manifest_of(["f", "a", *FILE], ["f", "b", *FILE]), {FILE[1]: DATA}).fetch(target)
    assert [path.name for path in target.iterdir()] == ["b"] and (target / "b").read_text() == "mine"


def test_bytes_that_are_not_those_of_the_hash_become_no_file(target: Path) -> None:
    large = os.urandom((1 << 20) + 1)
    for data in (DATA, large):
        served = Served(manifest_of(["f", "a", len(data), sha_of(data)]), {sha_of(data): data[:-1] + b"!"})
        with pytest.raises(UnexpectedAnswer, match="not match its hash"):
            served.fetch(target)
        assert not list(target.iterdir())
    served = Served(manifest_of(["f", "a", *FILE]), {FILE[1]: DATA})
    served.id = sha_of(b"another")
    with pytest.raises(UnexpectedAnswer, match="does not match the artifact"):
        served.fetch(target)


def test_names_that_differ_in_case_alone_are_refused_where_they_would_be_one_file(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = b"OTHER"
    served = Served(
        manifest_of(["f", "Data/x", *FILE], ["f", "data/x", len(other), sha_of(other)]),
        {FILE[1]: DATA, sha_of(other): other},
    )
    with monkeypatch.context() as patched:
        patched.setattr(Target, "joins_names", lambda _: True)
        with pytest.raises(BadArgument, match="Data and data would be the same file"):
            served.fetch(target)
    served.fetch(target)
    assert ((target / "Data" / "x").read_bytes(), (target / "data" / "x").read_bytes()) == (DATA, other)
    opened = Target(target)
    assert opened.joins_names() is (target / "DATA").exists()
    opened.close()


def test_names_in_two_forms_are_refused_where_they_would_be_one_file(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served(manifest_of(["f", "e\u0301/x", *FILE], ["f", "\xe9/x", *FILE]), {FILE[1]: DATA})
    with monkeypatch.context() as patched:
        patched.setattr(Target, "joins_names", lambda _: True)
        with pytest.raises(BadArgument, match="would be the same file"):
            served.fetch(target)
    served.fetch(target)
    assert len(list(target.iterdir())) == 2


def test_colliding_names_are_found_among_many() -> None:
    def of(*paths: str) -> tuple[str, str] | None:
        return trees.colliding([Entry(kind="f", path=path) for path in paths])

    assert of("a", "a-b", "a/b", "a/c", "b/a/c") is None
    assert of("A/x", "B", "a-b", "a/y") == ("A", "a")
    assert of("a/b/c/d", "a/B/c/e") in (("a/B", "a/b"), ("a/b", "a/B"))
    deep = [f"{number}/" + "b/" * 1500 + "x" for number in range(100)]
    tracemalloc.start()
    try:
        assert of(*deep) is None
        trees.parsed(manifest_of(*(["f", path, *FILE] for path in sorted(deep))))
        assert tracemalloc.get_traced_memory()[1] < 20 * sum(map(len, deep))
    finally:
        tracemalloc.stop()


def test_pipes_and_second_names_in_the_place_of_a_beginning_are_left_alone(target: Path) -> None:
    target.mkdir()
    part = target / f".cluster-{FILE[1][:32]}.part"
    served = Served(manifest_of(["f", "x", *FILE]), {FILE[1]: DATA})
    os.link(target.parent / "outside" / "kept", part)
    with pytest.raises(BadArgument, match="exists and is not a regular file"):
        served.fetch(target)
    part.unlink()
    os.mkfifo(part)
    with pytest.raises(BadArgument, match="exists and is not a regular file"):
        served.fetch(target)
    part.unlink()
    served.fetch(target)
    assert (target / "x").read_bytes() == DATA


def test_a_link_in_the_place_of_a_beginning_changes_no_mode_outside(target: Path) -> None:
    kept = target.parent / "outside" / "kept"
    kept.chmod(0o600)
    opened = Target(target)
    entry = Entry(kind="x", path="a", size=FILE[0], sha=FILE[1])
    with opened.part(entry) as part:
        part.write(DATA)
    (target / f".cluster-{FILE[1][:32]}.part").unlink()
    (target / f".cluster-{FILE[1][:32]}.part").symlink_to(kept)
    with pytest.raises(OSError, match="symbolic links"):
        opened.finish(entry)
    opened.close()
    assert kept.stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_there_gets_the_mode_of_the_artifact(target: Path) -> None:
    Served(manifest_of(["f", "a", *FILE], ["x", "b", *FILE]), {FILE[1]: DATA}).fetch(target)
    got = Served(manifest_of(["x", "a", *FILE], ["f", "b", *FILE]), {}).fetch(target)
    assert got["fetched_files"] == 0
    assert [(target / name).stat().st_mode & 0o100 for name in ("a", "b")] == [0o100, 0]


@pytest.mark.parametrize("row", [["d", "z"], ["l", "z", "a"]])
def test_nothing_is_written_where_a_folder_or_link_would_find_something_else(target: Path, row: list[str]) -> None:
    target.mkdir()
    (target / "z").write_text("mine")
    with pytest.raises(BadArgument, match="in/z exists with other contents"):
        Served(manifest_of(["f", "a", *FILE], row), {FILE[1]: DATA}).fetch(target)
    assert [path.name for path in target.iterdir()] == ["z"]


def test_a_file_that_is_called_as_a_beginning_comes_too(target: Path) -> None:
    other = b"a beginning that was put"
    name = f".cluster-{FILE[1][:32]}.part"
    rows = (["f", name, len(other), sha_of(other)], ["f", "a", *FILE])
    Served(manifest_of(*rows), {FILE[1]: DATA, sha_of(other): other}).fetch(target)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {name: other, "a": DATA}
    assert [entry.path for entry in trees.scan(target).entries] == ["a"]


def test_a_folder_that_cannot_be_made_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ClientError, match="cannot be written"):
        Served(manifest_of(["f", "a", *FILE]), {FILE[1]: DATA}).fetch(tmp_path / "file" / "x")


def test_two_paths_of_one_large_file_are_downloaded_once(target: Path) -> None:
    large = os.urandom((1 << 20) + 1)
    rows = (["f", "a", len(large), sha_of(large)], ["x", "b/c", len(large), sha_of(large)])
    assert Served(manifest_of(*rows), {sha_of(large): large}).fetch(target)["fetched_files"] == 2
    assert (target / "a").read_bytes() == (target / "b" / "c").read_bytes() == large
    assert (target / "b" / "c").stat().st_mode & 0o777 == 0o755


def test_an_entry_is_the_line_that_it_was_read_from() -> None:
    rows = ["d", "a"], ["f", "b", *FILE], ["l", "c", "a"], ["x", "ü", *FILE]
    text = manifest_of(*rows)
    assert [entry.line for entry in trees.parsed(text)] == text.decode().splitlines()[1:]
    assert Entry(kind="f", path="a").is_file
