"""Releases of an installation: how they are unpacked, which one is used, and what happens if that fails."""

from __future__ import annotations

import io
import tarfile
import threading
from pathlib import Path

import pytest

from threads_cluster import command_names, errors, installation, settings
from threads_cluster.cli.main import run_command
from threads_cluster.client import checkouts


def write_archive(path: Path, version: str) -> None:
    """Write the archive of a server that consists of its version and a script which prints its arguments."""
    script = b'#!/bin/sh\necho "$0" "$CLUSTER_HOME" "$@"\n'
    with tarfile.open(path, "w") as archive:
        for name, content, mode in (("jobs/VERSION", version.encode(), 0o644), ("deploy-cluster.sh", script, 0o755)):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), mode
            archive.addfile(member, io.BytesIO(content))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pretend that this client is installed, with its state in a folder that does not exist yet."""
    home = tmp_path / "my data" / "threads-cluster"
    monkeypatch.setattr(settings, "IS_CHECKOUT", False)
    monkeypatch.setattr(settings, "IS_INSTALLED", True)
    monkeypatch.setattr(settings, "STATE_FOLDER", home)
    monkeypatch.setattr(settings, "LOCAL_FOLDER", home / ".cluster")
    install(tmp_path, monkeypatch, "1.0.0")
    return home


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Install another client, whose archive contains this version."""
    archive = folder / f"{version}.tar"
    write_archive(archive, version)
    monkeypatch.setattr(installation, "ARCHIVE", archive)


def find_version(*, installs: bool = True) -> str:
    return installation.find_server(installs=installs).name.partition("-")[0]


def test_the_first_start_unpacks_the_release_and_later_commands_use_it(home: Path) -> None:
    with pytest.raises(errors.Misconfigured, match="no cluster was started"):
        installation.find_server(installs=False)
    assert not home.exists()
    server = installation.find_server(installs=True)
    assert server.parent == home / "releases"
    assert (server / "deploy-cluster.sh").stat().st_mode & 0o100
    assert installation.find_server(installs=False) == server


def test_another_client_brings_its_release_but_an_update_or_rollback_lasts(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = installation.find_server(installs=True)
    install(tmp_path, monkeypatch, "2.0.0")
    assert find_version(installs=False) == "1.0.0"
    assert find_version() == "2.0.0"
    installation.make_current(home, first)
    assert find_version() == "1.0.0"
    install(tmp_path, monkeypatch, "3.0.0")
    assert find_version() == "3.0.0"


def test_a_running_cluster_keeps_its_release(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_version()
    install(tmp_path, monkeypatch, "2.0.0")
    monkeypatch.setattr(checkouts.Checkout, "is_locked", lambda _: True)
    assert find_version() == "1.0.0"


def test_a_killed_unpacking_leaves_nothing_that_is_used(home: Path) -> None:
    partial = home / "releases" / ".new-killed"
    partial.mkdir(parents=True)
    (partial / "deploy-cluster.sh").touch()
    assert find_version() == "1.0.0"
    assert not partial.exists()


def test_two_first_starts_at_once_use_the_same_release(home: Path) -> None:
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(installation.find_server(installs=True))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(set(found)) == 1
    assert {path.name for path in (home / "releases").iterdir()} == {".lock", found[0].name}


def test_a_full_disk_leaves_no_partial_release_and_names_the_remedy(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(tarfile.TarFile, "extractall", fill)
        with pytest.raises(errors.Misconfigured, match="No space left") as caught:
            find_version()
    assert "free some space" in caught.value.next
    assert [path.name for path in (home / "releases").iterdir()] == [".lock"]
    assert find_version() == "1.0.0"


def test_a_folder_that_is_not_writable_names_the_remedy(home: Path) -> None:
    home.parent.parent.joinpath("my data").touch()
    with pytest.raises(errors.Misconfigured, match="cannot be unpacked") as caught:
        find_version()
    assert "CLUSTER_HOME" in caught.value.next


@pytest.mark.parametrize(
    ("words", "passed"),
    [
        (["start", "--workers", "2"], "local --workers 2"),
        (["start", "--docker", "3", "1"], "docker 3 1"),
        (["start", "--dry-run", "--kubernetes", "3"], "kubernetes --dry-run 3"),
        (["join", "-"], "join -"),
    ],
)
def test_commands_replace_the_client_by_the_script_of_the_release(
    home: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], passed: str
) -> None:
    ran: list[tuple[list[str], str]] = []
    monkeypatch.setattr("os.execve", lambda _, command, variables: ran.append((command, variables["CLUSTER_HOME"])))
    run_command(words)
    [(command, variable)] = ran
    assert command[0] == str((home / "current").resolve() / "deploy-cluster.sh")
    assert " ".join(command[1:]) == passed
    assert variable == str(home)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Stop it: ./deploy-cluster.sh stop", "Stop it: cluster stop"),
        ("Start one: ./deploy-cluster.sh local", "Start one: cluster start"),
        ("Use containers: ./deploy-cluster.sh docker", "Use containers: cluster start --docker"),
        ("./deploy-cluster.sh status", "cluster status --processes"),
        ("./deploy-cluster.sh logs redis", "cluster logs --process redis"),
        ("its logs are in .cluster/logs.", "its logs are in {home}/.cluster/logs."),
        (".venv/bin/cluster status", "cluster status"),
    ],
)
def test_messages_name_commands_of_the_installation(home: Path, text: str, named: str) -> None:
    assert command_names.name_commands(text) == named.format(home=home)


def test_messages_in_a_checkout_are_not_changed() -> None:
    assert command_names.name_commands("./deploy-cluster.sh stop") == "./deploy-cluster.sh stop"
