"""Tests that docs/architecture.md names the existing folders, and that domains import in one direction."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text()
#: Domains of the coordinator, each of which can import the previous ones.
DOMAINS = (
    "access",
    "tenants",
    "secrets",
    "artifacts",
    "jobs",
    "fleet",
    "telemetry",
    "profiles",
    "events",
    "logs",
    "attachments",
    "audit",
    "usage",
    "webhooks",
    "services",
    "workflows",
    "models",
    "schedules",
    "work",
    "rpc",
)
#: Packages that CONTRIBUTING.md lists, and the packages of kinds and their benchmarks.
ELSEWHERE = ("tests", "benchmarks/")


def packages() -> set[str]:
    """Return the packages up to two levels deep, as in the table."""
    found = {path.parent.relative_to(ROOT).as_posix() + "/" for path in ROOT.glob("[a-z]*/__init__.py")}
    found |= {path.parent.relative_to(ROOT).as_posix() + "/" for path in ROOT.glob("[a-z]*/[a-z]*/__init__.py")}
    return {name for name in found if not name.startswith(ELSEWHERE)}


def test_the_table_lists_every_package_and_nothing_else() -> None:
    listed = re.findall(r"^\| `([a-z_/]+/)` \|", TEXT, re.MULTILINE)
    assert len(listed) == len(set(listed)) > 10
    assert packages() <= set(listed)
    assert not [name for name in listed if not (ROOT / name).is_dir()]


def test_the_picture_names_folders_that_exist() -> None:
    picture = TEXT.split("```")[1]
    named = set(re.findall(r"\b([a-z_]+(?:/[a-z_]+)*)/", picture))
    assert {"coordinator", "cpu_worker", "gpu_worker", "threads_cluster", "jobs/store", "jobs/kinds"} <= named
    assert set(DOMAINS) <= named
    for name in named:
        assert (ROOT / name).is_dir() or (ROOT / "coordinator" / name).is_dir(), name


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_domain_imports_those_before_it_alone(domain: str) -> None:
    later = DOMAINS[DOMAINS.index(domain) + 1 :]
    for path in (ROOT / "coordinator" / domain).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            assert not [name for name in later if f"{module}.".startswith(f"coordinator.{name}.")], (path, module)
