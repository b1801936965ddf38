"""Tests that deploy/pages.sh builds the pages only when necessary, and explains why a build is impossible."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NPM = """#!/bin/bash
echo "$*" >> called
case "$*" in
  *" ci "*) [[ ! -e broken-registry ]] || { echo "npm error network"; exit 1; }; mkdir -p web/node_modules ;;
  *"run build")
    [[ ! -e broken-code ]] || { echo "error TS2304"; exit 1; }
    mkdir -p web/dist && cp web/index.html web/dist ;;
  *"$(cat fails 2>/dev/null || echo nothing-fails)") exit 1 ;;
esac
"""


class Checkout:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("deploy", "web", "bin", "tests"):
            (folder / name).mkdir()
        shutil.copy(ROOT / "deploy/pages.sh", folder / "deploy")
        (folder / "web/package.json").write_text("{}")
        (folder / "web/package-lock.json").write_text("{}")
        (folder / "web/index.html").write_text("one")
        self.program("npm", NPM)
        self.program("node", "#!/bin/bash\n")

    def program(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.folder / 'bin'}:/usr/bin:/bin"
        return subprocess.run(
            [self.folder / "deploy/pages.sh", *arguments],
            cwd="/",
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": path},
        )

    def called(self) -> list[str]:
        """Return npm's arguments since the last call."""
        log = self.folder / "called"
        found = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return found

    def page(self) -> str:
        return (self.folder / "web/dist/index.html").read_text()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_pages_are_built_once_and_again_when_a_source_changes(checkout: Checkout) -> None:
    assert checkout.run().returncode == 0
    assert [line.partition(" --no")[0] for line in checkout.called()] == ["--prefix web ci", "--prefix web run build"]
    assert checkout.run().returncode == 0
    assert checkout.called() == []
    (checkout.folder / "web/index.html").write_text("two")
    assert checkout.run().returncode == 0
    assert checkout.called() == ["--prefix web run build"] and checkout.page() == "two"
    (checkout.folder / "web/package-lock.json").write_text('{"packages": {}}')
    assert checkout.run().returncode == 0
    assert len(checkout.called()) == 2


def test_without_a_registry_it_says_so_and_keeps_what_is_there(checkout: Checkout) -> None:
    assert checkout.run().returncode == 0
    (checkout.folder / "web/package-lock.json").write_text("changed")
    (checkout.folder / "broken-registry").touch()
    done = checkout.run()
    assert done.returncode == 1
    assert "npm error network" in done.stderr and "NPM_CONFIG_REGISTRY" in done.stderr
    assert checkout.page() == "one"


def test_a_build_that_fails_is_shown_and_tried_again(checkout: Checkout) -> None:
    (checkout.folder / "broken-code").touch()
    done = checkout.run()
    assert done.returncode == 1 and "error TS2304" in done.stderr
    (checkout.folder / "broken-code").unlink()
    assert checkout.run().returncode == 0 and checkout.page() == "one"


def test_without_node_and_environment_it_says_what_to_do(checkout: Checkout) -> None:
    checkout.program("node", "#!/bin/bash\nexit 1\n")
    done = checkout.run()
    assert done.returncode == 3 and "make setup" in done.stderr


def test_an_old_node_is_passed_over_for_the_environments(checkout: Checkout) -> None:
    checkout.program("node", "#!/bin/bash\nexit 1\n")
    environment = checkout.folder / ".venv/bin"
    environment.mkdir(parents=True)
    for name in ("node", "python"):
        shutil.copy("/bin/true", environment / name)
    shutil.copy(checkout.folder / "bin/npm", environment / "npm")
    assert checkout.run().returncode == 0 and checkout.page() == "one"


def test_the_pages_own_tests_decide(checkout: Checkout) -> None:
    assert checkout.run("test").returncode == 0
    assert [line.rpartition(" ")[2] for line in checkout.called()[-3:]] == ["check", "test", "size"]
    (checkout.folder / "fails").write_text("test")
    assert checkout.run("test").returncode == 1


@pytest.mark.parametrize("what", ["lint", "format"])
def test_style_is_looked_at_without_building(checkout: Checkout, what: str) -> None:
    assert checkout.run(what).returncode == 0
    assert [line.partition(" --no")[0] for line in checkout.called()] == [
        "--prefix web ci",
        f"--prefix web run --silent {what}",
    ]
    (checkout.folder / "fails").write_text(what)
    assert checkout.run(what).returncode == 1


def test_without_pages_in_the_checkout_there_is_nothing_to_do(checkout: Checkout) -> None:
    shutil.rmtree(checkout.folder / "web")
    assert checkout.run().returncode == 0 and checkout.called() == []
    assert checkout.run("nonsense").returncode == 2
