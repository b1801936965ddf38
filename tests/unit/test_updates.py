"""Tests update and rollback of a local cluster without running one: wheels, selected releases, order and failures."""

from __future__ import annotations

import errno
import io
import json
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.local import (
    commands,
    cpu_workers,
    data_version,
    program_control,
    redis_users,
    release_file,
    running_cluster,
    switching,
    updating,
    wheel_file,
)
from deploy.local.outcome import FAILED, MISSING, OK, RUNNING, USAGE, CommandError
from deploy.local.program_control import ProgramState
from deploy.local.release_file import Selection
from jobs import releases
from jobs.releases import Release
from jobs.settings import CHECKOUT
from threads_cluster import installation, settings

A, B, C = (Path(f"/releases/{name}") for name in "abc")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of an installation that has no cluster yet."""
    folder = tmp_path / "home" / ".cluster"
    folder.mkdir(parents=True)
    for module in (release_file, data_version, running_cluster):
        monkeypatch.setattr(module, "LOCAL_FOLDER", folder)
    monkeypatch.setattr(wheel_file, "STATE_FOLDER", folder.parent)
    for module in (switching, updating):
        monkeypatch.setattr(module, "STATE_FOLDER", folder.parent)
        monkeypatch.setattr(module, "raise_on_stop_signals", lambda: None)
    monkeypatch.setattr(release_file, "FILE", folder / "release")
    monkeypatch.setattr(data_version, "FILE", folder / "data_format")
    monkeypatch.setattr(commands, "is_running", lambda: False)
    return folder.parent


def write_wheel(path: Path, version: str = "0.1.0", data_format: str = "", **others: str) -> Path:
    """Write a wheel with a release that consists of its description and `others`."""
    texts = {releases.VERSION_FILE: version, **({releases.FORMAT_FILE: data_format} if data_format else {}), **others}
    tree = io.BytesIO()
    with tarfile.open(fileobj=tree, mode="w") as archive:
        for name, text in texts.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(wheel_file.TREE, tree.getvalue())
    return path


# -- the selected release ---------------------------------------------------------------------------------------------


def test_the_last_release_is_the_one_before() -> None:
    first = Selection(python=A / "python", folder=A)
    third = first.followed_by(B / "python", B).followed_by(C / "python", C)
    assert third == Selection(python=C / "python", folder=C, earlier=(A, B))
    assert third.followed_by(C / "other", C).earlier == (A, B), "a repeated update forgets nothing"
    assert third.followed_by(B / "python", B).earlier == (A,), "a rollback leads back another step the next time"


def test_a_selection_is_read_as_it_was_written() -> None:
    assert release_file.read() is None
    release_file.select(A / "python", A)
    release_file.select(B / "python", B)
    assert release_file.read() == Selection(python=B / "python", folder=B, earlier=(A,))


def test_a_program_runs_the_release_that_is_selected_when_it_starts(home: Path) -> None:
    for name in ("a", "b"):
        folder = home / f"release {name}"
        (folder / "web/dist").mkdir(parents=True)
        (folder / "web/dist/index.html").touch()
        python = folder / "python"
        python.write_text(f'#!/bin/sh\necho {name} "$@" "$PAGES_DIR"\n')
        python.chmod(0o755)
        release_file.select(python, folder)
        environment = {"NODE_TYPE": "coordinator", "PATH": "/usr/bin:/bin"}
        command = release_file.command("-m", "coordinator", "two words")
        done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == f"{name} -m coordinator two words {folder}/web/dist\n"


# -- data formats -----------------------------------------------------------------------------------------------------


def test_newer_data_stop_a_start_and_older_ones_are_recorded() -> None:
    data_version.record()
    data_version.check()
    assert str(data_version.read()) == f"{releases.OWN.writes} {releases.OWN.version}"
    data_version.FILE.write_text("99 9.1.0\n")
    with pytest.raises(CommandError, match=r"Start version 9\.1\.0 or later") as refused:
        data_version.check()
    assert refused.value.code == MISSING
    assert data_version.FILE.read_text() == "99 9.1.0\n"


# -- wheels -----------------------------------------------------------------------------------------------------------


def test_a_wheel_is_unpacked_once_next_to_other_releases(tmp_path: Path, home: Path) -> None:
    described = json.dumps({"writes": 2, "oldest": 1, "newest": 3})
    wheel = write_wheel(tmp_path / "new.whl", "0.2.0\n", described, extra="text")
    assert wheel_file.describe(wheel) == Release(version="0.2.0", writes=2, oldest=1, newest=3)
    folder = wheel_file.unpack(wheel)
    assert folder.parent == home / "releases" and folder.name.startswith("0.2.0-")
    (folder / "extra").write_text("changed")
    assert wheel_file.unpack(wheel) == folder and (folder / "extra").read_text() == "changed"
    assert sorted(path.name for path in folder.parent.iterdir()) == [".lock", folder.name]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def text(path: Path) -> None:
    path.write_text("<html>Not found</html>")


def without_tree(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("threads_cluster/__init__.py", "")


def without_release(path: Path) -> None:
    write_wheel(path, "no version")


@pytest.mark.parametrize("damage", [cut, text, without_tree, without_release, Path.unlink])
def test_a_file_that_is_no_wheel_changes_nothing(tmp_path: Path, home: Path, damage: Callable[[Path], None]) -> None:
    wheel = write_wheel(tmp_path / "new.whl")
    damage(wheel)
    for command in (updating.update, lambda source, _: updating.check(source)):
        with pytest.raises(CommandError) as refused:
            command(str(wheel), 0.0)
        assert refused.value.code == USAGE and str(wheel) in str(refused.value)
    assert [path.name for path in home.iterdir()] == [".cluster"]


def test_a_full_disk_leaves_no_partial_release(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = write_wheel(tmp_path / "new.whl")

    def extract(self: tarfile.TarFile, path: Path, **_: Any) -> None:
        (path / "part").touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(tarfile.TarFile, "extractall", extract)
        with pytest.raises(OSError, match="No space"):
            wheel_file.unpack(wheel)
    assert [path.name for path in (home / "releases").iterdir()] == [".lock"]
    assert wheel_file.unpack(wheel).is_dir()


# -- update and rollback ----------------------------------------------------------------------------------------------


@pytest.fixture
def running(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the release that a running cluster uses, which has version 0.2.0."""
    folder = home / "releases/0.2.0-running"
    (folder / "jobs").mkdir(parents=True)
    (folder / releases.VERSION_FILE).write_text("0.2.0\n")
    monkeypatch.setattr(commands, "is_running", lambda: True)
    release_file.select(folder / "python", folder)
    data_version.FILE.write_text("1 0.2.0\n")
    return folder


@pytest.mark.parametrize(
    ("version", "data_format", "why"),
    [
        ("0.4.0", "", "works together with versions 0.3 to 0.5, but not with 0.2.0"),
        ("0.3.0", '{"writes": 2, "oldest": 1, "newest": 2}', "version 0.2.0 reads 1 to 1"),
        (
            "0.3.0",
            '{"writes": 2, "oldest": 2, "newest": 2}',
            "reads formats only from 2. First start a version between",
        ),
    ],
)
@pytest.mark.usefixtures("running")
def test_an_update_that_is_not_possible_names_the_reason(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str], version: str, data_format: str, why: str
) -> None:
    wheel = write_wheel(tmp_path / "new.whl", version, data_format)
    before = release_file.FILE.read_text()
    assert updating.check(str(wheel)) == FAILED
    assert f"Update:          not possible: version {version}"[:30] in (said := capsys.readouterr().out) and why in said
    with pytest.raises(CommandError, match=r"Nothing was changed") as refused:
        updating.update(str(wheel), 0.0)
    assert why in str(refused.value) and release_file.FILE.read_text() == before
    assert not any(path.name.startswith(version) for path in (home / "releases").iterdir())


@pytest.mark.usefixtures("running")
def test_a_check_names_the_programs_that_would_restart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], programs: Programs
) -> None:
    assert updating.check(str(write_wheel(tmp_path / "new.whl", "0.3.0"))) == OK
    said = capsys.readouterr().out
    assert "possible, from 0.2.0 to 0.3.0, and back with rollback" in said
    assert "coordinator, cpu-worker-1, cpu-worker-2, runner-1, one after the other. Redis keeps running." in said
    assert programs.calls == []


def test_a_rollback_needs_an_earlier_release_that_reads_the_data(
    running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CommandError, match="has not run another release before"):
        updating.rollback(0.0)
    later = running.with_name("later")
    release_file.select(later / "python", later)
    data_version.FILE.write_text("2 0.3.0\n")
    with pytest.raises(CommandError, match=r"version 0\.3\.0 wrote the cluster's data in format 2") as refused:
        updating.rollback(0.0)
    assert "restore a backup that an earlier version wrote" in str(refused.value)
    monkeypatch.setattr(updating, "STATE_FOLDER", CHECKOUT)
    with pytest.raises(CommandError, match="with git"):
        updating.rollback(0.0)


def test_a_release_that_cannot_be_loaded_is_never_used(running: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = running.with_name("0.2.1-new")
    (new / "jobs").mkdir(parents=True)
    (new / releases.VERSION_FILE).write_text("0.2.1\n")
    (new / "deploy").mkdir()
    script = new / "deploy/environment.sh"
    script.write_text("#!/bin/sh\nexit ${CODE:-0}\n")
    script.chmod(0o755)
    python = new / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'fastapi'\" >&2\nexit 1\n")
    python.chmod(0o755)
    before = release_file.FILE.read_text()
    with pytest.raises(CommandError, match="cannot be loaded: ModuleNotFoundError: No module named 'fastapi'"):
        updating.update(str(new), 0.0)
    monkeypatch.setenv("CODE", "1")
    with pytest.raises(CommandError, match="environment of the new release could not be created"):
        updating.update(str(new), 0.0)
    assert release_file.FILE.read_text() == before


# -- restart of the programs ------------------------------------------------------------------------------------------


class Programs:
    """Supervised programs and API of a cluster. It records the calls that change something."""

    def __init__(self, *names: str) -> None:
        self.states = dict.fromkeys(("guard", "redis", *names), "RUNNING")
        self.calls: list[str] = []
        #: Programs that run this release.
        self.updated: set[str] = set()
        #: True if the coordinator of this release does not start.
        self.is_broken = False
        self.selected: list[Path] = []

    def list_programs(self) -> dict[str, ProgramState]:
        return {
            name: ProgramState(name=name, group="all", state=state, pid=number, description="")
            for number, (name, state) in enumerate(self.states.items())
        }

    def runs_release(self, pid: int) -> bool:
        return list(self.states)[pid] in self.updated

    def stop(self, names: list[str]) -> None:
        self.calls += [f"stop {name}" for name in names]

    def start(self, names: list[str]) -> None:
        selected = release_file.read()
        assert selected
        self.calls += [f"start {name}" for name in names]
        self.selected.append(selected.folder)
        if selected.folder == CHECKOUT:
            self.updated |= set(names)
        else:
            self.updated -= set(names)

    def get(self, path: str, timeout: float = 5.0) -> Any:
        if path == "/ready" and self.is_broken and "coordinator" in self.updated:
            raise OSError("no answer")
        workers = [{"id": switching.worker_of(name), "state": self.worker_state(name)} for name in self.states]
        return {"workers": workers}

    def worker_state(self, name: str) -> str:
        drained = [call for call in self.calls if call.startswith(f"drain {switching.worker_of(name)}")]
        return "drained" if drained and drained[-1].endswith("True") else "idle"

    def post(self, path: str, body: Any) -> None:
        self.calls.append(f"drain {path.split('/')[3]} {body['on']}")


@pytest.fixture
def programs(running: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    fake = Programs("runner-1", "cpu-worker-2", "cpu-worker-1", "coordinator")
    monkeypatch.setattr(program_control, "list_programs", fake.list_programs)
    monkeypatch.setattr(program_control, "stop", fake.stop)
    monkeypatch.setattr(program_control, "start", fake.start)
    monkeypatch.setattr(switching, "runs_release", fake.runs_release)
    monkeypatch.setattr(switching, "COORDINATOR_SECONDS", 0.3)
    monkeypatch.setattr(commands, "was_started_by", lambda _: False)
    monkeypatch.setattr(running_cluster, "find_api", lambda: fake)
    monkeypatch.setattr(redis_users, "renew", lambda: fake.calls.append("renew users"))
    return fake


def test_the_coordinator_is_replaced_first_and_a_runner_is_drained(programs: Programs, home: Path) -> None:
    assert switching.switch(5.0) == OK
    assert programs.calls == [
        *("renew users", "stop coordinator", "start coordinator"),
        *("stop cpu-worker-1", "start cpu-worker-1", "stop cpu-worker-2", "start cpu-worker-2"),
        *("drain runner-1 True", "stop runner-1", "drain runner-1 False", "stop runner-1", "start runner-1"),
    ]
    assert (home / "current").readlink() == CHECKOUT
    assert str(data_version.read()) == f"1 {releases.OWN.version}"


def test_a_repeated_switch_restarts_only_what_runs_another_release(programs: Programs) -> None:
    programs.updated = {"coordinator", "cpu-worker-1"}
    assert switching.switch(0.0) == OK
    assert programs.calls == [
        *("renew users", "stop cpu-worker-2", "start cpu-worker-2"),
        *("drain runner-1 True", "stop runner-1", "drain runner-1 False", "stop runner-1", "start runner-1"),
    ]
    programs.calls.clear()
    assert switching.switch(0.0) == OK and programs.calls == ["renew users"]


def test_a_program_that_an_interrupted_switch_stopped_is_started(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs.states |= {"cpu-worker-2": "STOPPED", "cpu-worker-9": "STOPPED"}
    monkeypatch.setattr(cpu_workers, "is_wanted", lambda name: name != "cpu-worker-9")
    assert switching.wanted_programs() == ["coordinator", "cpu-worker-1", "cpu-worker-2", "runner-1"]


def test_a_coordinator_that_does_not_start_returns_to_the_release_before(
    running: Path, programs: Programs, home: Path
) -> None:
    programs.is_broken = True
    with pytest.raises(CommandError, match="The release before keeps running"):
        switching.switch(0.0)
    assert programs.selected == [CHECKOUT, running] and programs.updated == set()
    selected = release_file.read()
    assert selected and selected.folder == running and not (home / "current").is_symlink()
    assert not any("worker" in call or "runner" in call for call in programs.calls)


def test_a_stop_during_the_drain_ends_the_drain(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    programs.updated = {"coordinator", "cpu-worker-1", "cpu-worker-2"}

    def stop(names: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(program_control, "stop", stop)
    with pytest.raises(KeyboardInterrupt):
        switching.switch(5.0)
    assert programs.calls[1:] == ["drain runner-1 True", "drain runner-1 False"]


def test_a_second_update_at_the_same_time_is_refused(programs: Programs) -> None:
    with running_cluster.hold_change_lock(), pytest.raises(CommandError) as refused:
        switching.switch(0.0)
    assert refused.value.code == RUNNING and programs.calls == []


def test_a_client_updates_to_its_own_release_and_a_rollback_lasts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cluster start` once returned from a rollback to the release of the client."""
    with zipfile.ZipFile(write_wheel(home / "new.whl", "0.3.0\n", **{"deploy-cluster.sh": "#"})) as wheel:
        (home / "server.tar").write_bytes(wheel.read(wheel_file.TREE))
    monkeypatch.setattr(settings, "IS_CHECKOUT", False)
    monkeypatch.setattr(settings, "STATE_FOLDER", home)
    monkeypatch.setattr(installation, "ARCHIVE", home / "server.tar")
    old = home / "releases/0.2.0-old"
    old.mkdir(parents=True)
    (old / "deploy-cluster.sh").touch()
    [folder] = installation.unpack_own_release()
    assert Path(folder) == wheel_file.unpack(home / "new.whl"), "the server uses the same name for the release"
    installation.make_current(home, Path(folder))
    installation.make_current(home, old)
    installation.use_own_release(home)
    assert (home / "current").resolve() == old and not (home / "current").readlink().is_absolute()
