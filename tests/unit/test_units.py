"""Tests the systemd units of a local cluster, with fakes of systemd's programs."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.local import boot, commands, notification, shape, units, user_contexts
from deploy.local.outcome import FAILED, OK, RUNNING, USAGE, CommandError
from deploy.local.units import SYSTEM, USER
from jobs.settings import CHECKOUT, STATE_FOLDER, Settings

ANALYZE = shutil.which("systemd-analyze")
#: Highest accepted exposure of the unit with --system. The scale of systemd-analyze is from 0 to 10.
EXPOSURE = 2.0
#: Program that records its calls, and fails if a file `fail` contains one of its arguments.
FAKE = """#!/bin/sh
echo "${0##*/} $*" >>"$FAKES/calls"
case "$*" in *show-user*) echo Linger=no ;; esac
[ ! -e "$FAKES/fail" ] || ! echo "$*" | grep -qf "$FAKES/fail" || { echo "it broke" >&2; exit 1; }
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Put fakes of systemd's programs on PATH, and use a home folder and folders for units below tmp_path."""
    for name in ("systemctl", "loginctl", "journalctl"):
        (tmp_path / name).write_text(FAKE)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKES", str(tmp_path))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    (tmp_path / "url").write_text("http://127.0.0.1:3000\n")
    monkeypatch.setattr(boot, "ADDRESS", tmp_path / "url")
    monkeypatch.setattr(user_contexts, "keep_local", lambda _: None)
    monkeypatch.setattr(commands, "is_running", lambda: False)

    def read() -> list[str]:
        file = tmp_path / "calls"
        return file.read_text().splitlines() if file.exists() else []

    return read


# -- text of units -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("scope", [SYSTEM, USER])
def test_systemd_accepts_the_units(tmp_path: Path, scope: units.Scope) -> None:
    unit = tmp_path / "threads-cluster.service"
    unit.write_text(units.cluster_unit(scope, ["--port", "3100"]))
    done = subprocess.run([str(ANALYZE), "verify", "--man=no", unit], capture_output=True, text=True)
    ours = [line for line in done.stderr.splitlines() if unit.name in line]
    assert ours == []


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
def test_the_unit_of_the_system_is_little_exposed(tmp_path: Path) -> None:
    unit = tmp_path / "threads-cluster.service"
    unit.write_text(units.cluster_unit(SYSTEM, []))
    command = [str(ANALYZE), "security", "--offline=true", "--no-pager", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    if "Unknown" in done.stderr or "unrecognized" in done.stderr:
        pytest.skip("this systemd-analyze cannot read a unit that is not loaded")
    found = re.search(r"exposure level for threads-cluster.service: ([\d.]+)", done.stdout)
    assert found and float(found[1]) <= EXPOSURE, done.stdout + done.stderr


def test_only_the_unit_of_the_system_changes_the_user_and_hides_folders() -> None:
    system, user = units.cluster_unit(SYSTEM, []), units.cluster_unit(USER, [])
    for text in (system, user):
        assert "NoNewPrivileges=yes" in text and "OOMPolicy=continue" in text and "Type=notify" in text
    for line in ("User=threads-cluster", "ProtectSystem=strict", "ProtectHome=tmpfs", "PrivateTmp=yes"):
        assert line in system.splitlines() and line not in user.splitlines()
    assert "WantedBy=multi-user.target" in system and "WantedBy=default.target" in user


def test_code_in_a_home_folder_is_visible_to_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(units, "CHECKOUT", Path("/opt/threads"))
    assert "BindReadOnlyPaths" not in units.cluster_unit(SYSTEM, [])
    monkeypatch.setattr(units, "CHECKOUT", Path("/home/ann/threads"))
    assert 'BindReadOnlyPaths="/home/ann/threads"\n' in units.cluster_unit(SYSTEM, [])
    assert "BindReadOnlyPaths" not in units.cluster_unit(USER, [])


def test_only_the_unit_of_a_user_follows_the_current_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = tmp_path / "releases" / "1.0"
    release.mkdir(parents=True)
    (tmp_path / "current").symlink_to(release)
    monkeypatch.setattr(units, "CHECKOUT", release)
    assert f'ExecStart="{tmp_path}/current/deploy-cluster.sh" "local"' in units.cluster_unit(USER, [])
    assert f'ExecStart="{release}/deploy-cluster.sh" "local"' in units.cluster_unit(SYSTEM, [])


def test_special_characters_in_paths_are_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "CHECKOUT", Path('/opt/a b/100%/$x/"y"'))
    text = units.cluster_unit(USER, ["--port", "3100"])
    assert 'WorkingDirectory=/opt/a b/100%%/$x/"y"\n' in text
    assert r'ExecStart="/opt/a b/100%%/$$x/\"y\"/deploy-cluster.sh" "local" "--port" "3100"' in text


# -- start and stop ----------------------------------------------------------------------------------------------------


def test_a_start_writes_the_unit_and_starts_it_now_and_at_each_boot(
    calls: Callable[[], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert boot.start(USER, ["--port", "3100"]) == OK
    assert '"local" "--port" "3100"' in USER.unit.read_text()
    assert [call for call in calls() if "systemctl" in call] == [
        "systemctl --user show --property=Version",
        "systemctl --user daemon-reload",
        "systemctl --user enable --quiet threads-cluster",
        "systemctl --user restart threads-cluster",
    ]
    assert any(call.startswith("loginctl --no-ask-password enable-linger") for call in calls())
    said = capsys.readouterr().err
    assert "starts at each boot: http://127.0.0.1:3000" in said and "stop --user" in said
    assert "stop --user" in units.describe_boot()


def test_a_user_who_may_not_linger_gets_the_command(
    calls: Callable[[], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fail").write_text("enable-linger")
    assert boot.start(USER, []) == OK
    assert "sudo loginctl enable-linger" in capsys.readouterr().err


def test_a_start_that_fails_returns_the_message_of_systemd(calls: Callable[[], list[str]], tmp_path: Path) -> None:
    (tmp_path / "fail").write_text("restart")
    with pytest.raises(CommandError, match="restart threads-cluster failed: it broke") as failed:
        boot.start(USER, [])
    assert failed.value.code == FAILED
    assert "journalctl --user-unit=threads-cluster" in calls()[-1]


def test_without_a_session_of_systemd_nothing_is_written(calls: Callable[[], list[str]], tmp_path: Path) -> None:
    (tmp_path / "fail").write_text("Version")
    with pytest.raises(CommandError, match="it broke"):
        boot.start(USER, [])
    assert not USER.unit.exists()


def test_a_start_leaves_a_cluster_in_a_terminal_running(
    calls: Callable[[], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "is_running", lambda: True)
    (tmp_path / "fail").write_text("is-active")
    with pytest.raises(CommandError, match="already running") as refused:
        boot.start(USER, [])
    assert refused.value.code == RUNNING and not USER.unit.exists()


def test_a_stop_deletes_only_the_unit_of_this_cluster(
    calls: Callable[[], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert boot.stop(USER) == OK and calls() == []
    units.write(USER.unit, units.cluster_unit(USER, []).replace(str(STATE_FOLDER), "/elsewhere"))
    with pytest.raises(CommandError, match="starts another cluster"):
        boot.stop(USER)
    with pytest.raises(CommandError, match="starts another cluster"):
        boot.start(USER, [])
    assert units.describe_boot() == ""
    units.write(USER.unit, units.cluster_unit(USER, []))
    assert boot.stop(USER) == OK and not USER.unit.exists()
    assert calls()[-2:] == [
        "systemctl --user disable --quiet --now threads-cluster",
        "systemctl --user daemon-reload",
    ]
    assert "Jobs and results remain" in capsys.readouterr().err


# -- the service -------------------------------------------------------------------------------------------------------


def test_a_service_reports_that_it_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not notification.notify_ready()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        assert notification.notify_ready()
        assert manager.recv(100) == b"READY=1"


def test_programs_of_other_users_need_root(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(runner_uids="20001-20012", runner_dir="/var/lib/runner")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    shape.check_folder(settings, runner=True)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CommandError, match="RUNNER_UIDS needs root") as refused:
        shape.check_folder(settings, runner=True)
    assert refused.value.code == USAGE
    shape.check_folder(settings, runner=False)


# -- the script --------------------------------------------------------------------------------------------------------


def run_script(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([CHECKOUT / "deploy-cluster.sh", *words], capture_output=True, text=True)


def test_the_script_shows_how_systemd_gets_a_cluster() -> None:
    user = run_script("local", "--user", "--port", "3100", "--dry-run")
    assert user.stdout.endswith(".venv/bin/python -m deploy.local start-unit user --port 3100\n")
    system = run_script("local", "--system", "--dry-run")
    assert system.stdout.endswith(".venv/bin/python -m deploy.local start-unit system\n")
    assert "install -d -m 0700 -o threads-cluster -g threads-cluster /var/lib/threads-cluster" in system.stdout
    stopped = run_script("stop", "--system", "--dry-run")
    assert stopped.stdout == ".venv/bin/python -m deploy.local stop-unit system\n"


def test_once_cannot_be_combined_with_a_unit() -> None:
    refused = run_script("local", "--once", "--user")
    assert refused.returncode == USAGE and "--once cannot be combined with --user" in refused.stderr


@pytest.mark.skipif(Path("/run/systemd/system").is_dir(), reason="systemd manages this machine")
def test_without_systemd_the_script_names_other_ways() -> None:
    for words in (("local", "--user"), ("stop", "--user")):
        refused = run_script(*words)
        assert refused.returncode == 3
        assert "systemd does not manage this machine" in refused.stderr and "docker" in refused.stderr
