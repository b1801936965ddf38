"""Tests which versions work together, and which releases can use which data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coordinator.server import program_versions
from jobs import VERSION, errors, releases
from jobs.releases import Release, Stored, UnreadableRelease
from threads_cluster.installed_version import installed_version
from threads_protocol import versions

ROOT = Path(__file__).resolve().parents[2]


def release(version: str, writes: int = 1, reads: tuple[int, int] = (1, 1)) -> Release:
    return Release(version=version, writes=writes, oldest=reads[0], newest=reads[1])


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("1.2.0", "1.2.9", True),
        ("1.2.0", "1.3.0", True),
        ("1.2.0", "1.1.7", True),
        ("1.2.0", "1.4.0", False),
        ("1.2.0", "1.0.0", False),
        ("1.9.0", "1.10.0rc1", True),
        ("1.2.0", "2.2.0", False),
    ],
)
def test_one_minor_version_of_difference_is_accepted(one: str, other: str, together: bool) -> None:
    assert versions.are_compatible(one, other) is together
    assert versions.are_compatible(other, one) is together


@pytest.mark.parametrize("text", ["", "1", "one.two", "v1.2", "1.9999999999"])
def test_a_text_without_a_version_is_refused(text: str) -> None:
    with pytest.raises(versions.NoVersion):
        versions.parse(text)


def test_the_accepted_versions_are_named() -> None:
    assert versions.describe_accepted("1.2.5") == "1.1 to 1.3" and versions.describe_accepted("1.0.0") == "1.0 to 1.1"


# -- data formats -----------------------------------------------------------------------------------------------------


def test_newer_data_is_refused_with_the_version_to_start() -> None:
    obstacle = release("1.1.0").data_obstacle(Stored(format=2, version="1.3.0"))
    assert "1.3.0 wrote the cluster's data in format 2" in obstacle and "reads formats only up to 1" in obstacle
    assert "Start version 1.3.0 or later, or restore a backup" in obstacle


def test_older_data_is_refused_with_the_version_to_start_first() -> None:
    obstacle = release("3.0.0", 3, (3, 3)).data_obstacle(Stored(format=1, version="1.3.0"))
    assert "reads formats only from 3. First start a version between 1.3.0 and 3.0.0 that reads format 1" in obstacle


def test_readable_data_is_accepted() -> None:
    for stored in (None, Stored(format=1, version="1.0.0"), Stored(format=2, version="1.1.0")):
        assert release("1.1.0", 1, (1, 2)).data_obstacle(stored) == ""


def test_the_recorded_format_never_decreases() -> None:
    older = release("1.1.0", 1, (1, 2))
    assert older.stored_after(Stored(format=2, version="1.2.0")) == Stored(format=2, version="1.1.0")
    assert older.stored_after(None) == Stored(format=1, version="1.1.0")
    assert Stored.parse(str(Stored(format=2, version="1.2.0"))) == Stored(format=2, version="1.2.0")


def test_a_worker_needs_a_coordinator_of_a_similar_version() -> None:
    stored = Stored(format=1, version="1.5.0")
    assert release("1.4.0").store_obstacle(stored, loads=False) == ""
    assert "works only with coordinators of the versions 1.2 to 1.4" in release("1.3.0").store_obstacle(
        stored, loads=False
    )
    assert release("1.3.0").store_obstacle(stored, loads=True) == "", "a stopped cluster can skip versions"


def test_releases_run_together_only_if_each_reads_the_format_of_the_other() -> None:
    assert release("1.1.0").next_obstacle(release("1.2.0", 1, (1, 2))) == ""
    assert "version 1.1.0 reads 1 to 1" in release("1.1.0").next_obstacle(release("1.2.0", 2, (1, 2)))
    assert "version 1.2.0 reads 2 to 2" in release("1.1.0").next_obstacle(release("1.2.0", 1, (2, 2)))
    assert "but not with 1.4.0" in release("1.1.0").next_obstacle(release("1.4.0"))


def test_this_release_describes_itself(tmp_path: Path) -> None:
    assert Release.read(ROOT) == releases.OWN and releases.OWN.version == VERSION == installed_version()
    assert releases.OWN.oldest <= releases.OWN.writes <= releases.OWN.newest
    (tmp_path / "jobs").mkdir()
    (tmp_path / releases.VERSION_FILE).write_text("0.1.0\n")
    assert Release.read(tmp_path) == release("0.1.0"), "the first releases have no file with the data format"


@pytest.mark.parametrize(
    ("version", "text"), [("", "{}"), ("1.0.0", "{}"), ("1.0.0", "[]"), ("1.0.0", "nothing"), ("x", '{"writes": 1}')]
)
def test_an_unreadable_release_is_refused(version: str, text: str) -> None:
    with pytest.raises(UnreadableRelease):
        Release.parse(version, text)


def test_the_documented_formats_are_those_of_this_release() -> None:
    described = json.loads((ROOT / releases.FORMAT_FILE).read_text())
    rows = [line.split("|") for line in (ROOT / "docs/upgrades.md").read_text().splitlines() if line.startswith("| ")]
    formats = [int(row[1]) for row in rows if row[1].strip().isdecimal()]
    assert formats == list(range(1, described["newest"] + 1))


# -- requests of other versions ---------------------------------------------------------------------------------------


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_versions, "VERSION", "1.4.0")
    program_versions.obstacle.cache_clear()


@pytest.mark.usefixtures("coordinator")
@pytest.mark.parametrize(
    ("agent", "advice"),
    [
        ("cluster-client/1.2.0", "update the client"),
        ("threads-cluster-worker/1.1.0", "update the worker or runner"),
        ("cluster-client/1.6.0", "update the cluster first"),
    ],
)
def test_a_program_of_another_version_is_refused(agent: str, advice: str) -> None:
    with pytest.raises(errors.IncompatibleVersion, match=f"works with versions 1.3 to 1.5: {advice}"):
        program_versions.require_compatible(agent)


@pytest.mark.usefixtures("coordinator")
@pytest.mark.parametrize(
    "agent",
    ["", "curl/8.1", "cluster-client", "cluster-client/1.5.0", "threads-cluster-worker/1.3.9", "cluster-client/1"],
)
def test_similar_and_other_programs_are_accepted(agent: str) -> None:
    program_versions.require_compatible(agent)
