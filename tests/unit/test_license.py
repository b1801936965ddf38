"""Tests that the source tree, the pages' npm package and all images name the project's license."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from pathlib import Path

import pytest

from tests.packages import TOP

#: SPDX identifier of the license.
LICENSE = "Apache-2.0"
DOCKERFILES = sorted(TOP.glob("*/Dockerfile")) + sorted(TOP.glob("deploy/*/Dockerfile"))


def test_the_license_is_the_published_text() -> None:
    published = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
    assert hashlib.sha256((TOP / "LICENSE").read_bytes()).hexdigest() == published


def test_packages_name_the_license() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    assert (project["license"], project["license-files"]) == (LICENSE, ["LICENSE", "NOTICE"])
    assert json.loads((TOP / "web/package.json").read_text())["license"] == LICENSE
    assert json.loads((TOP / "web/package-lock.json").read_text())["packages"][""]["license"] == LICENSE


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.parent.name)
def test_images_name_the_license(dockerfile: Path) -> None:
    text = dockerfile.read_text()
    assert re.findall(r'org\.opencontainers\.image\.licenses="([^"]*)"', text) == [LICENSE]
    last_stage = text.rpartition("\nFROM ")[2]
    assert "\nCOPY LICENSE NOTICE /usr/share/doc/threads-cluster/\n" in last_stage
