"""Tests programs' folders: a unit's files never reach the next unit, and nothing outside a folder changes."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.commands import RESULT
from runner.files.cache import DamagedFile, FileCache
from runner.files.folders import LARGEST_VALUE, BadValue, Folder, TooDeep, clear
from runner.files.globs import pattern

FILES = {"a.txt": b"first", "sub/b.txt": b"second", "sub/deep/c.txt": b"third"}
PATHS = ["a.txt", "sub", "sub/b.txt", "sub/deep", "sub/deep/c.txt"]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Return a folder with the files of a job."""
    made = Folder(tmp_path / "home")

    def place(path: str) -> None:
        at = made.path / path
        if path in FILES:
            at.write_bytes(FILES[path])
        else:
            at.mkdir()

    made.fill(PATHS, place)
    return made


def contents(folder: Folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder.path)): path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}


def test_a_folder_that_nothing_changed_keeps_its_files(folder: Folder) -> None:
    before = {path: (folder.path / path).stat().st_ino for path in FILES}
    folder.restore()
    assert contents(folder) == FILES
    assert {path: (folder.path / path).stat().st_ino for path in FILES} == before


def rewrite(top: Path) -> None:
    """Change a file and restore its timestamps."""
    times = (top / "a.txt").stat()
    (top / "a.txt").write_bytes(b"FIRST")
    os.utime(top / "a.txt", ns=(times.st_atime_ns, times.st_mtime_ns))


def close_folders(top: Path) -> None:
    (top / "new/inner").mkdir(parents=True)
    (top / "new/inner/x").write_text("x")
    (top / "new/inner").chmod(0)
    (top / "new").chmod(0)
    (top / "sub").chmod(0o500)


@pytest.mark.parametrize(
    "act",
    [
        lambda top: (top / "left").write_text("x"),
        lambda top: (top / "sub/left").symlink_to("/etc"),
        lambda top: (top / "a.txt").unlink(),
        lambda top: shutil.rmtree(top / "sub"),
        lambda top: (top / "sub").rename(top / "other"),
        lambda top: ((top / "a.txt").unlink(), (top / "a.txt").symlink_to("sub/b.txt")),
        lambda top: os.link(top / "a.txt", top / "twin"),
        lambda top: (top / "a.txt").chmod(0o777),
        lambda top: os.mkfifo(top / "pipe"),
        rewrite,
        close_folders,
    ],
)
def test_whatever_a_unit_does_the_next_one_sees_the_jobs_files(folder: Folder, act: Callable[[Path], object]) -> None:
    act(folder.path)
    folder.restore()
    assert contents(folder) == FILES
    assert not any(path.is_symlink() for path in folder.path.rglob("*"))
    assert (folder.path / "a.txt").stat().st_mode & 0o777 == 0o644
    assert (folder.path / "a.txt").stat().st_nlink == 1


def test_a_folder_that_became_a_link_is_made_anew_and_what_it_leads_to_is_left_alone(
    folder: Folder, tmp_path: Path
) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").write_text("x")
    shutil.rmtree(folder.path)
    folder.path.symlink_to(tmp_path / "precious")
    folder.restore()
    assert contents(folder) == FILES
    assert (tmp_path / "precious/file").read_text() == "x"


def test_folders_too_deep_to_be_walked_are_said(folder: Folder) -> None:
    at = os.open(folder.path, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=at)
        at, before = os.open("d", os.O_RDONLY, dir_fd=at), at
        os.close(before)
    os.close(at)
    with pytest.raises(TooDeep):
        folder.restore()
    # This path is deeper than pytest can remove.
    subprocess.run(["rm", "-rf", Path(folder.path) / "d"], check=True)


def test_what_is_cleared_is_never_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").write_text("x")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/link").symlink_to(tmp_path / "kept")
    clear(tmp_path / "tree")
    clear(tmp_path / "tree")
    assert (tmp_path / "kept/file").exists()
    assert not (tmp_path / "tree").exists()


@pytest.mark.parametrize(
    ("glob", "paths", "others"),
    [
        ("*.csv", ["a.csv"], ["a.csv.gz", "sub/a.csv", "acsv"]),
        ("out/*.csv", ["out/a.csv"], ["out/sub/a.csv", "a.csv"]),
        ("**/*.csv", ["a.csv", "x/y/a.csv"], ["a.txt"]),
        ("out/**", ["out/a", "out/b/c"], ["outer/a"]),
        ("out", ["out", "out/a/b"], ["outer"]),
        ("./out/", ["out/a"], ["b/out/a"]),
        ("[ab]?.txt", ["a1.txt", "bx.txt"], ["c1.txt", "a.txt"]),
        ("[!ab].txt", ["c.txt"], ["a.txt", "/.txt"]),
        ("a+(b)", ["a+(b)"], ["aab"]),
        ("**", ["a", "a/b"], []),
        ("a**z", ["az", "abz", "a/b/z", "a/z/more"], ["a", "ab"]),
        ("**/x/**/y", ["x/y", "a/x/b/c/y", "x/b/y"], ["y", "x", "xy"]),
        ("***", ["a", "a/b"], []),
        ("[z-a]x", [], ["zx", "ax", "-x"]),
        ("[]x", ["[]x"], ["x"]),
        ("[!]", ["a"], ["/"]),
        ("[[&&~~||--a]", ["[", "&", "a"], ["b"]),
        ("[a\\]", ["a", "\\"], ["b"]),
        ("[", ["["], ["a"]),
    ],
)
def test_globs(glob: str, paths: list[str], others: list[str]) -> None:
    assert [path for path in paths if not pattern(glob).fullmatch(path)] == []
    assert [path for path in others if pattern(glob).fullmatch(path)] == []


def test_a_glob_that_would_take_years_takes_no_time() -> None:
    for glob, path in (
        ("*a" * 100 + "b", "a" * 255),
        ("**/" * 100 + "x", "a/" * 200 + "y"),
        ("**a" * 100 + "b", "a" * 1000),
        ("*?" * 200 + "/b", "a" * 255),
        ("[!b]*" * 100 + "c", "a" * 255),
    ):
        assert not pattern(glob).fullmatch(path), glob


def test_what_is_too_deep_or_has_too_long_a_path_is_no_output_and_is_removed(tmp_path: Path) -> None:
    """A program can create paths that are too long for one system call. The slot must be clean again."""
    for name, levels in (("d" * 250, 30), ("d", 250)):
        folder = Folder(tmp_path / f"slot-{levels}")
        folder.fill([], lambda path: None)
        (folder.path / "near.txt").write_text("near")
        at = os.open(folder.path, os.O_RDONLY)
        for _ in range(levels):
            os.mkdir(name, dir_fd=at)
            at, before = os.open(name, os.O_RDONLY, dir_fd=at), at
            os.close(before)
        os.close(os.open("far.txt", os.O_CREAT | os.O_WRONLY, dir_fd=at))
        os.close(at)
        into = tmp_path / f"outputs-{levels}"
        folder.take_outputs(["**"], into)
        assert [path.name for path in into.rglob("*")] == ["near.txt"]
        with pytest.raises(TooDeep):
            folder.restore()
        with pytest.raises(TooDeep):
            clear(folder.path)
        subprocess.run(["rm", "-rf", folder.path], check=True)  # as the workplace does


def test_outputs_are_files_that_the_program_wrote_and_never_links(folder: Folder, tmp_path: Path) -> None:
    (folder.path / "out").mkdir()
    (folder.path / "out/new.txt").write_text("new")
    (folder.path / "out/link.txt").symlink_to("/etc/passwd")
    (folder.path / "out/folder.txt").symlink_to("/etc")
    (folder.path / "sub/b.txt").write_bytes(b"changed")
    (folder.path / RESULT).write_text("1")
    folder.take_outputs(["**"], tmp_path / "outputs")
    outputs = tmp_path / "outputs"
    taken = {str(path.relative_to(outputs)) for path in outputs.rglob("*") if path.is_file()}
    assert taken == {"out/new.txt", "sub/b.txt"}


def test_nothing_is_taken_through_a_link_that_stands_for_the_folder(folder: Folder, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "theirs").write_bytes(b"x")
    shutil.rmtree(folder.path)
    folder.path.symlink_to(other)
    folder.take_outputs(["**"], tmp_path / "kept")
    assert (other / "theirs").exists() and not (tmp_path / "kept").exists()


def test_a_value_is_a_plain_file_of_bounded_size(folder: Folder) -> None:
    assert folder.value() is None
    (folder.path / RESULT).write_text("[1]")
    assert folder.value() == b"[1]"
    (folder.path / RESULT).write_bytes(bytes(LARGEST_VALUE + 1))
    with pytest.raises(BadValue, match="the maximum is"):
        folder.value()
    (folder.path / RESULT).unlink()
    (folder.path / RESULT).symlink_to("/etc/passwd")
    with pytest.raises(BadValue, match="cannot read the file"):
        folder.value()
    (folder.path / RESULT).unlink()
    os.mkfifo(folder.path / RESULT)
    with pytest.raises(BadValue, match="not a regular file"):
        folder.value()
    (folder.path / RESULT).unlink()
    (folder.path / RESULT).mkdir()
    with pytest.raises(BadValue, match="not a regular file"):
        folder.value()


# -- the cache -----------------------------------------------------------------------------------------------------


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Source:
    """Downloadable files; records which were downloaded."""

    def __init__(self, *files: bytes) -> None:
        self.files = {sha(data): data for data in files}
        self.fetched: list[str] = []

    def __call__(self, shas: list[str], write: Callable[[str, Iterator[bytes]], None]) -> None:
        for each in shas:
            self.fetched.append(each)
            write(each, iter([self.files[each]]))


def test_a_file_is_fetched_once_and_the_longest_unused_goes_first(tmp_path: Path) -> None:
    old, used, new = b"o" * 400, b"u" * 400, b"n" * 400
    source, cache = Source(old, used, new), FileCache(tmp_path / "cache", 1000)
    cache.have([sha(old)], source)
    cache.have([sha(used)], source)
    cache.have([sha(used)], source)
    cache.have([sha(new)], source)
    assert source.fetched == [sha(old), sha(used), sha(new)]
    assert cache.missing([sha(old), sha(used), sha(new)]) == [sha(old)]
    again = FileCache(tmp_path / "cache", 1000)
    assert again.missing([sha(used), sha(new)]) == [], "a runner that starts again has them still"


def test_what_a_job_needs_at_once_stays_although_it_is_more_than_the_cache_holds_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = [bytes([number]) * 600 for number in range(3)]
    cache = FileCache(tmp_path / "cache", 1000)
    cache.have([sha(files[0])], Source(*files))
    assert not caplog.text
    for _ in range(2):
        cache.have([sha(data) for data in files], Source(*files))
    assert cache.missing([sha(data) for data in files]) == []
    assert caplog.text.count("the files of one job have 1800 bytes, but CACHE_BYTES is 1000") == 1


def test_a_copy_is_no_hard_link_and_damage_is_noticed(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache", 1000)
    cache.have([sha(b"data")], Source(b"data"))
    cache.copy(sha(b"data"), tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"data"
    assert (tmp_path / "copy").stat().st_nlink == 1
    cache.path(sha(b"data")).write_bytes(b"DATA")
    with pytest.raises(DamagedFile):
        cache.copy(sha(b"data"), tmp_path / "other")
    assert cache.missing([sha(b"data")]) == [sha(b"data")]
    assert not (tmp_path / "other").exists()


def test_what_was_being_fetched_when_the_runner_died_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / f"{sha(b'data')}.part").write_bytes(b"da")
    assert FileCache(tmp_path / "cache", 1000).missing([sha(b"data")]) == [sha(b"data")]


def test_an_open_file_outlives_the_cache_and_is_verified_after_a_restart(tmp_path: Path) -> None:
    whole, damaged = b"whole", b"damaged"
    source, first = Source(whole, damaged), FileCache(tmp_path / "cache", 1000)
    first.have([sha(whole), sha(damaged)], source)
    (tmp_path / "cache" / sha(damaged)).write_bytes(b"changed")
    cache = FileCache(tmp_path / "cache", 1000)
    for _ in range(2):
        descriptor = cache.open(sha(whole))
        assert os.read(descriptor, 100) == whole
        os.close(descriptor)
    descriptor = cache.open(sha(whole))
    cache.drop(sha(whole))
    assert os.read(descriptor, 100) == whole
    os.close(descriptor)
    with pytest.raises(DamagedFile):
        cache.open(sha(damaged))
    with pytest.raises(FileNotFoundError):
        cache.open(sha(damaged))
    assert not list((tmp_path / "cache").iterdir())
