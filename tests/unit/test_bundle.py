"""Tests bundles: which packages they contain, that they are reproducible, and that damaged ones are not installed."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from deploy.bundle import __main__ as bundle
from deploy.bundle import targets
from deploy.bundle.targets import Target
from deploy.local.outcome import FAILED, INTERRUPTED, OK, USAGE
from deploy.release import wheel
from jobs.settings import CHECKOUT, installer_settings

LINUX, MAC = Target("linux-x86_64", "3.11"), Target("macos-arm64", "3.13")


def make_wheel(folder: Path, name: str, tag: str) -> str:
    """Write a wheel that contains nothing, and return its SHA-256 sum."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-1.0-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        info = f"{name}-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")
    return sha256(path.read_bytes()).hexdigest()


#: Options for bundles that these tests write, which have one selection of packages.
WORDS = ("--platform", "linux-x86_64", "--python", "3.11")
REQUIREMENTS = """\
everywhere==1.0 ; sys_platform == 'linux' or sys_platform == 'darwin' \\
    --hash=sha256:{}
windows==1.0 ; sys_platform == 'win32' \\
    --hash=sha256:{}
compiled==1.0 \\
    --hash=sha256:{} \\
    --hash=sha256:{}
"""


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a checkout with a few requirements, and an index with their wheels, which pip uses."""
    folder, root = tmp_path / "index", tmp_path / "checkout"
    sums = [
        make_wheel(folder, "everywhere", "py3-none-any"),
        make_wheel(folder, "windows", "py3-none-any"),
        make_wheel(folder, "compiled", "cp311-cp311-manylinux_2_17_x86_64"),
        make_wheel(folder, "compiled", "cp313-cp313-macosx_11_0_arm64"),
    ]
    make_wheel(tmp_path, "threads_cluster", "py3-none-any")
    (root / "requirements").mkdir(parents=True)
    (root / "requirements/local.txt").write_text(REQUIREMENTS.format(*sums))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setattr(bundle, "CHECKOUT", root)
    monkeypatch.setattr(wheel, "build", lambda _: tmp_path / "threads_cluster-1.0-py3-none-any.whl")
    return folder


def write(file: Path, *words: str) -> int:
    return bundle.main([str(file), *words])


def list_wheels(file: Path) -> list[str]:
    with tarfile.open(file) as archive:
        return [name.rpartition("/")[2] for name in archive.getnames() if name.endswith(".whl")]


def test_equal_bundles_contain_the_wheels_of_their_target(index: Path, tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar"
    assert write(file, *WORDS) == OK
    first = file.read_bytes()
    own, everywhere = "threads_cluster-1.0-py3-none-any.whl", "everywhere-1.0-py3-none-any.whl"
    assert list_wheels(file) == ["compiled-1.0-cp311-cp311-manylinux_2_17_x86_64.whl", everywhere, own]
    assert not (tmp_path / "bundle.tar.partial").exists()
    assert write(file, *WORDS) == OK
    assert file.read_bytes() == first
    assert write(file, "--platform", "macos-arm64", "--python", "3.13") == OK
    assert list_wheels(file) == ["compiled-1.0-cp313-cp313-macosx_11_0_arm64.whl", everywhere, own]


def test_a_package_with_another_hash_is_not_accepted(
    index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    linux = index / "compiled-1.0-cp311-cp311-manylinux_2_17_x86_64.whl"
    with linux.open("ab") as opened:
        opened.write(b"x")
    assert write(tmp_path / "bundle.tar", *WORDS) == FAILED
    assert "requirements/local.txt for linux-x86_64 with Python 3.11" in capsys.readouterr().err
    assert not (tmp_path / "bundle.tar").exists()


def test_an_interrupted_download_continues(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bundle.tar"

    def interrupt(_: Path) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(wheel, "build", interrupt)
        assert write(file, *WORDS) == INTERRUPTED
    assert not file.exists() and "The same command continues" in capsys.readouterr().err
    shutil.rmtree(index)  # The packages are already in the partial folder
    index.mkdir()
    for name in (tmp_path / "bundle.tar.partial").rglob("*.whl"):
        shutil.copy(name, index)
    assert write(file, *WORDS) == OK


def test_markers_are_evaluated_for_the_target() -> None:
    text = "a==1 ; sys_platform == 'darwin'\nb==1 ; python_full_version < '3.11.5'\n# c\nd==1 ; python_version < '3.12'"
    assert [each.text for each in targets.select(text, LINUX)] == ["b==1 \nd==1 \n", "d==1 \n"]
    assert [each.text for each in targets.select(text, MAC)] == ["a==1 \n"]
    assert "3.11.99" in targets.select(text, LINUX)[1].pip_options()


def test_tags_of_old_glibc_come_last() -> None:
    tags = list(LINUX.tags())
    assert tags[0] == "manylinux_2_28_x86_64" and "manylinux2014_x86_64" in tags
    assert list(MAC.tags())[:2] == ["macosx_14_0_arm64", "macosx_14_0_universal2"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--platform", "windows"], "choose from linux-x86_64, linux-aarch64, macos-arm64"),
        (["--python", "3.10"], "choose from 3.11, 3.12, 3.13"),
        (["--engine", "ollama"], "engine 'ollama' does not exist or has no packages"),
        (["--engine", "vllm", "--platform", "macos-arm64"], "does not pin its dependencies"),
    ],
)
def test_a_bundle_that_cannot_be_written_says_why(
    tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write(tmp_path / "bundle.tar", *words) == USAGE
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# -- installation ------------------------------------------------------------------------------------------------------


@pytest.fixture
def unpack(tmp_path: Path) -> Callable[[Path], subprocess.CompletedProcess[str]]:
    """Return a function that unpacks a bundle as `local --bundle` does, and prints pip's settings."""
    script = """
        CALLED_FROM=/ CLUSTER_HOME=$HOME DRY= WORK=
        source deploy/state.sh; source deploy/docker/talk.sh
        source deploy/local/commands.sh; source deploy/local/bundle.sh
        install_bundle --port 3100 --bundle "$1"
        echo "$PIP_NO_INDEX $PIP_FIND_LINKS ${OTHERS[*]}"
    """

    def run(file: Path) -> subprocess.CompletedProcess[str]:
        (tmp_path / "a home").mkdir(exist_ok=True)
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script, "bash", file],
            cwd=CHECKOUT,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "a home")},
            capture_output=True,
            text=True,
        )

    return run


def test_an_installation_uses_only_a_bundle_without_damage(
    index: Path, tmp_path: Path, unpack: Callable[[Path], subprocess.CompletedProcess[str]]
) -> None:
    file, folder = tmp_path / "bundle.tar", tmp_path / "a home/.cluster/bundle"
    assert write(file, *WORDS) == OK
    done = unpack(file)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"1 file://{str(folder).replace(' ', '%20')}/wheels --port 3100\n"
    assert (folder / "targets").read_text() == "linux-x86_64 with Python 3.11\n"
    whole = file.read_bytes()
    for damaged in (whole.replace(b"Root-Is-Purelib", b"Root-Is-Purelic", 1), whole[: len(whole) // 2], b"text"):
        file.write_bytes(damaged)
        done = unpack(file)
        assert done.returncode == 1 and "is damaged or not a bundle; nothing was installed" in done.stderr
    assert len(list((folder / "wheels").iterdir())) == 3, "the earlier bundle remains"
    assert not (folder.parent / "bundle.new").exists()


def test_programs_get_the_packages_of_the_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "file:///bundle")
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:password@index.example")
    assert installer_settings() == {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "file:///bundle"}
