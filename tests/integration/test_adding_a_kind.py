"""Tests that the files in docs/adding-a-kind.md pass its checks in a copy of the checkout, and that its job runs."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jobs.kinds.contract import Kind
from tests import kernels
from tests.integration.live import TOP, Live, running

TEXT = (TOP / "docs" / "adding-a-kind.md").read_text()
#: A file as the page shows it: its name on a separate line, then its contents.
FILE = re.compile(r"^`(jobs/\S+)`\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: Files that a clone does not have, except the caches of mypy and import-linter: without them, checks take seconds.
MADE = shutil.ignore_patterns(
    ".git",
    ".venv",
    ".cluster",
    "*-pytest-*.pyc*",
    "*.pyc.*",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    "node_modules",
    "dist",
)


def not_copied(folder: str, names: list[str]) -> set[str]:
    """Omit generated files and the cluster's secrets."""
    return MADE(folder, names) | ({"secrets"} if folder == str(TOP) else set())


making, checking, computing, measuring = (block.splitlines() for block in COMMANDS.findall(TEXT))
#: Tests outside the contract of kinds that check every kind or all names of kinds.
TESTS = (
    "tests/unit/test_benchmarks.py tests/unit/test_command_jobs.py tests/unit/test_metrics.py "
    "tests/unit/test_registry.py tests/unit/test_titles.py tests/unit/test_web_sources.py "
    "tests/unit/test_workflow_texts.py "
    "-k 'kind or stored or begin_at_zero'"
)


def shell(command: str, checkout: Path, **environment: str) -> str:
    """Return the output of a command of the page in the checkout, with the tests' compiled code."""
    settings = {**os.environ, "NUMBA_CACHE_DIR": str(kernels.CACHE), **environment}
    # Options of this run, such as tests that it leaves out, are not for the checks of the copy.
    settings.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(["bash", "-c", command], cwd=checkout, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the checkout with the page's kind, added as the page describes."""
    copy = tmp_path_factory.mktemp("adding") / "checkout"
    shutil.copytree(TOP, copy, ignore=not_copied)
    (copy / ".venv").symlink_to(sys.prefix)
    for command in making:
        shell(command, copy)
    for name, content in FILE.findall(TEXT):
        (copy / name).write_text(content)
    return copy


@pytest.fixture(scope="module")
def cluster(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with running(tmp_path_factory.mktemp("live"), top=checkout) as live:
        yield live


def test_the_page_shows_every_file_that_the_kind_needs() -> None:
    names = {Path(name).name for name, _ in FILE.findall(TEXT)}
    assert {"definition.py", "reference.py", "cpu_kernel.py", "gpu_kernel.py", "golden.json", "README.md"} <= names


def test_its_checks_pass_and_run_on_its_kind(checkout: Path) -> None:
    with ThreadPoolExecutor(max_workers=2) as pool:
        said = dict(zip(checking, pool.map(lambda command: shell(command, checkout), checking), strict=True))
    [contract] = [text for command, text in said.items() if "every_kind" in command]
    passed = re.search(r"(\d+) passed", contract)
    assert passed and int(passed[1]) >= 14, contract


def test_tests_that_look_at_every_kind_pass_with_it(checkout: Path) -> None:
    """A manual list of kinds fails here, and so does a forbidden word that matches a kind's name."""
    shell(f".venv/bin/python -m pytest -q {TESTS}", checkout)


def test_its_benchmark_compares_it_with_its_reference(checkout: Path) -> None:
    [command] = measuring
    without_setup = command.replace("make ", "make -o setup ")  # it would replace the environment, which is ours
    assert "K1@pi" in shell(without_setup, checkout)


def test_the_page_names_every_hook_of_a_kind() -> None:
    hooks = {name for name in {**vars(Kind), **vars(Kind)["__annotations__"]} if not name.startswith("_")}
    assert hooks <= set(re.findall(r"\w+", TEXT))


def test_it_may_live_outside_the_repository(checkout: Path, tmp_path: Path) -> None:
    shutil.copytree(checkout / "jobs" / "kinds" / "pi", tmp_path / "jobs" / "kinds" / "pi")
    for package in (tmp_path / "jobs", tmp_path / "jobs" / "kinds"):
        (package / "__init__.py").touch()
    program = "from jobs.kinds import registry; print(registry.definition('pi').summary)"
    command = shlex.join([sys.executable, "-c", program])
    assert shell(command, TOP, PYTHONPATH=f"{tmp_path}:{TOP}") == "Estimates pi from random points in a square.\n"


def test_its_command_computes_on_a_cluster(cluster: Live, checkout: Path) -> None:
    [command] = computing
    shown = shell(command, checkout, CLUSTER_URL=cluster.url())
    assert re.search(r"inside\s+785\d\d\d", shown) and re.search(r"pi\s+3\.14", shown)


def test_its_published_answer_comes_back(cluster: Live) -> None:
    [text] = [content for name, content in FILE.findall(TEXT) if name.endswith("golden.json")]
    [case] = json.loads(text)["cases"]
    assert cluster.result(cluster.submit("pi", case["parameters"])) == case["result"]
