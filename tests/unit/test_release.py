"""Tests the files of a release: licenses, the bill of materials, release notes and checksums."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from deploy.release import licenses, publication, sbom, wheel

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = licenses.python_packages()
MADE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


# -- licenses ---------------------------------------------------------------------------------------------------------


def test_every_package_has_an_allowed_or_an_accepted_license() -> None:
    assert len(PACKAGES) > 100
    refused = {
        each.name: text
        for each in PACKAGES
        if not licenses.is_accepted(each.name, text := licenses.expression(each.name))
    }
    refused |= {
        each["name"]: each["license"] for each in licenses.scripts() if not licenses.is_allowed(each["license"])
    }
    assert refused == {}


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("MIT AND GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("(MIT OR GPL-3.0-only) AND Apache-2.0 WITH LLVM-exception", True),
        ("GPL-3.0-only WITH LLVM-exception", False),
    ],
)
def test_all_parts_of_an_expression_and_one_alternative_must_be_allowed(expression: str, allowed: bool) -> None:
    assert licenses.is_allowed(expression) is allowed


def test_a_package_without_a_known_license_is_refused() -> None:
    with pytest.raises(licenses.UnknownLicense, match=r"license of no-such-package is unknown.*make setup"):
        licenses.expression("no-such-package")


def test_copyleft_and_proprietary_packages_are_only_in_the_groups_that_their_exception_names() -> None:
    groups = {each.name: set(each.groups) for each in PACKAGES}
    for name, row in licenses.TABLE["accepted"].items():
        assert groups[name] == set(row["groups"]), f"{name} is in other groups than licenses.toml says"
    assert "zeroconf" not in (ROOT / "requirements/local.txt").read_text()


def test_the_table_names_no_package_needlessly() -> None:
    names = {each.name for each in PACKAGES}
    for part in ("packages", "accepted", "contents"):
        assert licenses.TABLE[part].keys() <= names, f"remove packages that are not pinned from [{part}]"
    assert [name for name in licenses.TABLE["packages"] if licenses.declared(name)] == [], "metadata names these"
    assert [name for name, row in licenses.TABLE["accepted"].items() if licenses.is_allowed(row["license"])] == []


def test_every_image_of_others_has_a_license() -> None:
    text = (ROOT / "docker-compose.yml").read_text() + "".join(path.read_text() for path in ROOT.glob("*/Dockerfile"))
    used = {found.partition(":")[0] for found in re.findall(r"(?:image: |_IMAGE=)([^$\s]+)", text)}
    assert used == licenses.TABLE["images"].keys()


def test_the_page_is_what_make_licenses_writes() -> None:
    assert (ROOT / "docs/licenses.md").read_text() == licenses.page(), "run make licenses"


# -- the bill of materials --------------------------------------------------------------------------------------------


def test_the_bill_is_valid_equal_each_time_and_names_a_license_for_every_package() -> None:
    text = sbom.write("1.2.3", "0" * 40, MADE)
    assert text == sbom.write("1.2.3", "0" * 40, MADE)
    bill = json.loads(text)
    assert bill["metadata"]["timestamp"] == MADE.isoformat() and bill["metadata"]["component"]["version"] == "1.2.3"
    assert len(bill["components"]) == len(PACKAGES) + len(licenses.scripts())
    for component in bill["components"]:
        [license_choice] = component["licenses"]
        assert licenses.is_accepted(component["name"], license_choice["expression"])


def test_a_bill_that_does_not_match_the_schema_is_refused() -> None:
    with pytest.raises(sbom.Invalid, match="does not match the schema"):
        sbom.check('{"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{"name": "x"}]}')


def test_a_bill_with_a_license_that_is_not_allowed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(licenses, "expression", lambda name: "GPL-3.0-only")
    with pytest.raises(sbom.Invalid, match=r"has the license GPL-3\.0-only"):
        sbom.write("1.2.3", "0" * 40, MADE)


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a small checkout with one commit, in which the wheel is a text file and the bill is not computed."""
    root = tmp_path / "checkout"
    (root / "jobs").mkdir(parents=True)
    (root / "jobs/VERSION").write_text("1.2.3\n")
    (root / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]\n\n- New\n\n## [1.2.3] - 2026-01-01\n\n- Fast\n\n## [1.0.0]\n"
    )
    run = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "tests: commit"]):
        subprocess.run([*run, *words], cwd=root, check=True)
    monkeypatch.setattr(wheel, "build", lambda folder, _root: (folder / "a.whl").write_text("a wheel"))
    monkeypatch.setattr(publication, "write_bundle", lambda file, _root: file.write_text("a bundle"))
    monkeypatch.setattr(sbom, "write", lambda *arguments: repr(arguments))
    return root


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_two_releases_of_a_commit_are_equal_and_have_their_checksums(checkout: Path, tmp_path: Path) -> None:
    publication.publish(tmp_path / "one", checkout)
    (tmp_path / "one/old").write_text("a file of an earlier build")
    shutil.copytree(checkout, tmp_path / "clone")
    publication.publish(tmp_path / "one", checkout)
    publication.publish(tmp_path / "two", tmp_path / "clone")
    one = contents(tmp_path / "one")
    assert one == contents(tmp_path / "two")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkout", "clone", "one", "two"]
    sums = one.pop("SHA256SUMS").decode().splitlines()
    assert sums == [f"{hashlib.sha256(data).hexdigest()}  {name}" for name, data in sorted(one.items())]
    assert one["RELEASE_NOTES.md"] == b"# Threads Cluster 1.2.3\n\n- Fast\n"
    with tarfile.open(tmp_path / "one/threads-cluster-1.2.3-image-contexts.tar.gz") as archive:
        assert {"CHANGELOG.md", "jobs/VERSION"} <= set(archive.getnames())


def test_the_notes_are_the_unreleased_changes_until_the_version_has_a_section(checkout: Path) -> None:
    assert publication.release_notes(checkout, "2.0.0") == "# Threads Cluster 2.0.0\n\n- New\n"
    (checkout / "CHANGELOG.md").write_text("# Changelog\n")
    with pytest.raises(publication.NoRelease, match="no section"):
        publication.release_notes(checkout, "2.0.0")


@pytest.mark.parametrize("name", ["new", "CHANGELOG.md"])
def test_a_checkout_with_changes_is_refused(checkout: Path, tmp_path: Path, name: str) -> None:
    (checkout / name).write_text("a change\n")
    with pytest.raises(publication.NoRelease, match=rf"not committed:\n.*{name}"):
        publication.publish(tmp_path / "release", checkout)
    assert not (tmp_path / "release").exists()


def test_the_command_prints_the_files_or_the_reason(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def publish(folder: Path) -> Any:
        return real(folder, checkout)

    real = publication.publish
    monkeypatch.setattr(publication, "publish", publish)
    assert publication.main([str(tmp_path / "release")]) == 0
    assert f"{tmp_path}/release/SHA256SUMS" in capsys.readouterr().out
    (checkout / "new").touch()
    assert publication.main([str(tmp_path / "release")]) == 1
    assert "error: A release is built from a commit" in capsys.readouterr().err
    assert publication.main([]) == 2
