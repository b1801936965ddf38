"""Tests the audit log's file in a backup: it is restored if it is missing, but never overwritten."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.monitoring import ROOT

SCRIPT = ROOT / "deploy" / "docker" / "audit_file.py"


def ask(command: str, file: Path, given: bytes = b"") -> bytes:
    """Run the script like a container, which has no checkout."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.read_text(), command, str(file)],
        input=given,
        capture_output=True,
        cwd=file.parent,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("text", [b"", b"1\n2\n", b"x" * (1 << 20) + b"\n" + b"y" * (3 << 20)])
def test_a_copy_has_whole_lines_only(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "audit.jsonl"
    assert ask("dump", file) == b""
    file.write_bytes(text + b"torn")
    assert ask("dump", file) == text[: text.rfind(b"\n") + 1]


@pytest.mark.parametrize(
    ("present", "answer", "after"),
    [
        (None, b"put back", b"1\n2\n"),
        (b"", b"put back", b"1\n2\n"),
        (b"1\n", b"put back", b"1\n2\n"),
        (b"1\n2\n", b"kept", b"1\n2\n"),
        (b"1\n2\n3\n4", b"kept", b"1\n2\n3\n4"),
    ],
)
def test_a_file_of_the_same_log_loses_nothing(
    tmp_path: Path, present: bytes | None, answer: bytes, after: bytes
) -> None:
    file = tmp_path / "audit.jsonl"
    if present is not None:
        file.write_bytes(present)
    assert ask("load", file, b"1\n2\n") == answer
    assert file.read_bytes() == after
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("present", [b"9\n", b"1\n9\n3\n"])
def test_a_file_of_another_log_is_kept_beside(tmp_path: Path, present: bytes) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_bytes(present)
    word, name = ask("load", file, b"1\n2\n").decode().split()
    assert word == "aside"
    assert (tmp_path / name).read_bytes() == present
    assert file.read_bytes() == b"1\n2\n" and file.stat().st_mode & 0o777 == 0o600


def test_lines_that_end_within_one_change_nothing(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_bytes(b"9\n")
    with pytest.raises(AssertionError, match="nothing was changed"):
        ask("load", file, b"1\n2")
    assert file.read_bytes() == b"9\n" and list(tmp_path.iterdir()) == [file]
