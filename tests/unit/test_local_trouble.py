"""Tests the local cluster's error messages, which name the problem and the remedy without a traceback."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from deploy.local import __main__ as local
from deploy.local import commands, shape, units
from deploy.local.outcome import CommandError
from jobs.settings import Settings
from tests.unit.test_redis_server import write_data


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, ("the disk is full", "df -h")),
        (errno.EACCES, ("this user has no access to", "Run the command as the owner of the folder")),
        (errno.EROFS, ("Read-only file system", "clone the project into a folder of your own")),
        (errno.EIO, ("the operating system reported an error", ".cluster/logs")),
    ],
)
def test_an_error_of_the_disk_is_told_with_its_place_and_what_to_do(
    number: int, said: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: Any) -> int:
        raise OSError(number, os.strerror(number), "/checkout/.cluster/lock")

    monkeypatch.setattr(commands, "run", refuse)
    monkeypatch.setattr("sys.argv", ["local", "run"])
    assert local.main() == 1
    told = capsys.readouterr().err
    for words in ("error: ", "/checkout/.cluster/lock", *said):
        assert words in told


def test_nothing_starts_on_a_disk_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", ("total", "used", "free"))
    left = [shape.MIN_FREE_BYTES - 1]
    monkeypatch.setattr("deploy.local.shape.shutil.disk_usage", lambda _: usage(1 << 40, 0, left[0]))
    monkeypatch.setattr(shape, "LOCAL_FOLDER", tmp_path)
    with pytest.raises(CommandError, match=f"{tmp_path} has 99 MiB free, but a cluster needs 100") as refused:
        shape.plan(Settings(), None, 1)
    assert refused.value.code == 1 and "df -h" in str(refused.value)
    left[0] += 1
    shape.check_free_space(tmp_path)


def written(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return the size and modification time of all files below a folder, which reading does not change."""
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")}


def test_nothing_starts_on_data_that_no_redis_here_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_data(tmp_path / "redis")
    before = written(data)
    monkeypatch.setattr(shape, "LOCAL_FOLDER", tmp_path)
    with pytest.raises(CommandError, match=r"Redis 99\.1\.0 wrote the data") as refused:
        shape.plan(Settings(), None, 1)
    assert refused.value.code == 3 and str(refused.value).endswith("Nothing was changed.")
    assert written(data) == before


def test_a_user_without_a_home_joins_and_leaves_and_is_told_what_a_unit_of_systemd_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", none)
    monkeypatch.setattr("deploy.local.units.shutil.which", lambda _: "/usr/bin/systemctl")
    assert units.list_worker_units() == []
    with pytest.raises(CommandError, match="set HOME"):
        units.write_worker_unit("attic")


def test_ctrl_c_during_the_imports_prints_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "redis.py").write_text(
        f"import pathlib, time\npathlib.Path({str(tmp_path / 'imported')!r}).touch()\ntime.sleep(60)"
    )
    command = subprocess.Popen(
        [sys.executable, "-m", "deploy.local", "status"],
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "imported").exists():
        assert command.poll() is None
        time.sleep(0.02)
    command.send_signal(signal.SIGINT)
    assert command.communicate(timeout=20)[1] == ""
    assert command.returncode == -signal.SIGINT
