"""Tests which parts of the folders left by programs are stored, with any contents."""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path

import pytest

from jobs.worker.api import folders
from tests.unit.artifact_bench import sha_of
from threads_protocol.folders import open_file

DATA = b"what was left"


def kept(root: Path) -> dict[str, str]:
    return {entry.path: entry.kind for entry in folders.scan(root).entries}


def test_what_no_manifest_has_is_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA)
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 1 << 42)  # sparse: it needs no space, but reading it would take hours
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "out").symlink_to("/etc/passwd")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "up").symlink_to("..")
    (tmp_path / "deep" / "a").touch()
    (tmp_path / "deep" / "round").symlink_to("up/../a")
    tree = folders.scan(tmp_path)
    assert [(entry.path, entry.kind) for entry in sorted(tree.entries, key=lambda entry: entry.path)] == [
        ("a", "f"),
        ("deep/a", "f"),
        ("deep/up", "l"),
    ]
    assert sorted(name.strip("'") for name in tree.left_out) == ["deep/round", "huge", "out", "pipe"]


def test_what_nobody_may_read_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(DATA)
    (tmp_path / "closed").mkdir()
    (tmp_path / "hidden").touch()
    really = os.open

    def opens(name: str | Path, *flags: int, dir_fd: int | None = None) -> int:
        if name in ("closed", "hidden"):
            raise PermissionError(13, "Permission denied")
        return really(name, *flags, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", opens)  # tests may run as root, which can read everything
    assert kept(tmp_path) == {"a": "f"}


def test_a_folder_of_any_depth_is_read(tmp_path: Path) -> None:
    (tmp_path / "/".join("a" * 300)).mkdir(parents=True)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 150)
    try:
        assert kept(tmp_path) == {"/".join("a" * 300): "d"}
    finally:
        sys.setrecursionlimit(limit)


def test_what_takes_the_place_of_a_file_meanwhile_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(DATA)
    root = tmp_path / "left"
    (root / "folder").mkdir(parents=True)
    for name in ("folder/secret", "link", "pipe"):
        (root / name).write_bytes(DATA)
    tree = folders.scan(root)
    assert {entry.sha for entry in tree.entries} == {sha_of(DATA)}
    for name in ("folder/secret", "link", "pipe"):
        (root / name).unlink()
    (root / "folder").rmdir()
    (root / "folder").symlink_to(tmp_path)
    (root / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(root / "pipe")
    for entry in tree.entries:
        with pytest.raises(OSError, match=r"pipe|link|folder"):
            open_file(tree.root, entry.path)
