"""Tests that manual lists of packages are complete, and that CONTRIBUTING.md names every import-linter contract."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml

from tests.packages import ALL, SERVERS, SERVICES, TOP

CONFIGURATION: dict[str, Any] = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]
CONTRACTS = CONFIGURATION["importlinter"]["contracts"]


def contract(beginning: str) -> dict[str, Any]:
    [found] = [each for each in CONTRACTS if each["name"].startswith(beginning)]
    return dict(found)


def test_the_packages_are_those_that_are_known() -> None:
    assert set(ALL) >= {"jobs", "coordinator", "cpu_worker", "gpu_worker", "threads_cluster", "deploy"}


def test_types_and_imports_are_checked_in_every_package() -> None:
    checked = {path.parent.name for path in TOP.glob("*/*.py")}
    assert set(CONFIGURATION["mypy"]["packages"]) == checked >= set(ALL)
    assert set(CONFIGURATION["importlinter"]["root_packages"]) == set(ALL)


def test_contracts_name_every_service() -> None:
    assert set(contract("The shared package")["forbidden_modules"]) == set(SERVICES)
    assert set(contract("A service never imports another service")["modules"]) == set(SERVICES)
    assert set(contract("Production code never imports tests")["source_modules"]) == {
        "jobs",
        "engines",
        "threads_protocol",
        *SERVICES,
    }


@pytest.mark.parametrize("server", SERVERS)
def test_an_image_is_built_of_what_may_be_copied(server: str) -> None:
    copied = set(re.findall(r"^COPY ([a-z_]+) ", (TOP / server / "Dockerfile").read_text(), re.MULTILINE))
    assert copied == {"jobs", "threads_protocol", server} | (
        {"engines"} if server in ("coordinator", "runner") else set()
    )
    let_through = {line[1:] for line in (TOP / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied <= let_through, "an empty folder would be copied"
    assert let_through & set(ALL) == {"jobs", "threads_protocol", "engines", *SERVERS}, (
        "what no image copies is not sent to the engine"
    )


def test_compose_runs_every_server() -> None:
    services = yaml.safe_load((TOP / "docker-compose.yml").read_text())["services"]
    built = {service["build"]["dockerfile"].partition("/")[0] for service in services.values() if "build" in service}
    assert set(SERVERS) <= built


def test_contributing_names_every_contract() -> None:
    text = (TOP / "CONTRIBUTING.md").read_text()
    named = re.findall(r"^- (.+)\.$", text.partition("keeps these contracts")[2].partition("\n\n|")[0], re.MULTILINE)
    assert sorted(named) == sorted(each["name"] for each in CONTRACTS)


def test_there_is_a_check_of_every_folder_of_tests() -> None:
    """Without this check, the tests in a new folder would never run."""
    folders = {path.parent.relative_to(TOP).as_posix() for path in TOP.glob("tests/*/test_*.py")}
    # make gpu-test, make kubernetes-test, make openapi-test
    elsewhere = {"tests/gpu", "tests/kubernetes", "tests/openapi"}
    assert set(CONFIGURATION["pytest"]["ini_options"]["testpaths"]) == folders - elsewhere
    makefile = (TOP / "Makefile").read_text()
    lists = dict(re.findall(r"^(\w+) := (tests/.*)$", makefile, re.MULTILINE))
    recipe = re.search(r"^python-test: .*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert recipe
    run = re.sub(r"\$\((\w+)\)", lambda name: lists.get(name[1], ""), recipe[1])
    assert set(re.findall(r"tests/\w+", run)) == folders - elsewhere
