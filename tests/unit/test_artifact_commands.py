"""Tests the output of `cluster artifact` with a coordinator without a server, and that only changed files are sent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit import command_runs
from tests.unit.artifact_bench import Bench
from tests.unit.command_runs import Run
from threads_cluster.cli import session


@pytest.fixture
def bench(any_redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(any_redis_url, tmp_path / "store")
    monkeypatch.setattr(session.Session, "cluster", made.client)
    yield made
    made.close()


@pytest.fixture
def run(bench: Bench, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return the exit code, stdout and stderr of `cluster artifact ...`."""
    return command_runs.runner(capsys, "artifact")


def test_a_folder_is_put_listed_shown_fetched_and_deleted(run: Run, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "empty").mkdir(parents=True)
    for number in range(58):
        (work / f"{number:02}.txt").write_text("x" * number)
    (work / "run.sh").touch(mode=0o755)
    (work / "latest").symlink_to("57.txt")
    assert run("list") == (0, "", "No artifacts. Upload one with: cluster artifact put DIR\n")
    code, out, err = run("put", work, "--name", "results", "--exclude", "0*.txt")
    artifact_id = out.strip()
    assert code == 0 and re.fullmatch(r"[0-9a-f]{64}", artifact_id)
    assert re.fullmatch(r"49 files, 1\.57 KiB; uploaded 49 files, 1608 bytes, and a manifest of [0-9.]+ KiB\n", err), (
        err
    )
    (work / "57.txt").write_text("y" * 57)
    _, out, err = run("put", work, "--name", "results", "--exclude", "0*.txt")
    assert "uploaded 1 file, 57 bytes" in err and out.strip() != artifact_id
    code, listed, _ = run("list")
    assert [line.split()[:3] for line in listed.splitlines()] == [["id", "name", "files"], [out[:12], "results", "49"]]
    _, info, _ = run("info", "results")
    assert "  empty/\n" in info and "  latest -> 57.txt\n" in info and "and 1 more; print all with --json\n" in info
    assert "57 B  57.txt\n" in info
    paths = json.loads(run("info", "results", "--json")[1])["paths"]
    assert len(paths) == 51 and {"path": "run.sh", "bytes": 0} in paths
    got = tmp_path / "got"
    assert run("fetch", out[:8], got)[1] == f"{got} has 49 files; downloaded 49 files, 1.57 KiB\n"
    assert (got / "latest").read_text() == "y" * 57 and (got / "empty").is_dir()
    assert json.loads(run("fetch", "results", got, "--json")[1])["fetched_files"] == 0
    assert run("delete", "results") == (0, "results deleted\n", "")
    code, _, err = run("delete", "results")
    assert code == 2 and "artifact results does not exist" in err


def test_an_empty_folder_is_put_and_fetched(run: Run, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    code, out, err = run("put", tmp_path / "work", "--name", "nothing")
    assert code == 0 and err.startswith("0 files, 0 B; uploaded 0 files, 0 bytes")
    assert run("fetch", out.strip(), tmp_path / "got")[0] == 0
    assert list((tmp_path / "got").iterdir()) == []


def test_what_cannot_be_put_or_found_is_one_line_and_exit_code_2(run: Run, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "passwd").symlink_to("/etc/passwd")
    (tmp_path / "one").touch()
    for arguments, part in (
        (("put", tmp_path / "work"), "the link passwd leads to /etc/passwd"),
        (("put", tmp_path / "none"), "is neither a folder nor a file"),
        (("put", tmp_path / "one", "--name", "deadbeef"), "could be an abbreviated artifact ID"),
        (("info", "nobody"), "artifact nobody does not exist"),
        (("fetch", "nobody", tmp_path / "got"), "artifact nobody does not exist"),
    ):
        code, out, err = run(*arguments)
        assert (code, out) == (2, "") and part in err, err
    assert not (tmp_path / "got").exists()
