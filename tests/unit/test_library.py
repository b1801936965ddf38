"""Tests the names, files and flags of the Redis Functions library."""

from __future__ import annotations

import re

import pytest

from jobs.store.server.functions import LIMITS, WHEN_FULL, Limits, settings_of
from jobs.store.server.library import make_library
from tests import lua_names
from tests.lua_names import FOLDER, GIVEN, OFFERED, SHARED

#: By the flag that a function is registered with: functions that only read, and those that bring something new, which a
#: full Redis refuses. All others keep, end, show or free what is there, and so work in a full Redis.
READS = {"daily", "gather", "read", "unit"}
REFUSED_WHEN_FULL = {
    "add_code",
    "add_profile_part",
    "add_schedule",
    "add_service",
    "add_workflow",
    "decide_workflow",
    "attach",
    "attach_take",
    "attach_write",
    "begin_objects",
    "claim_by_hand",
    "claim_run",
    "commit_artifact",
    "create_token",
    "lease",
    "log_disclosure",
    "lose_file",
    "place_replica",
    "record_action",
    "report_profile",
    "reseal_secret",
    "set_secret",
    "start_profile",
    "submit",
    "tenant",
    "touch_files",
    "touch_token",
}


def test_each_function_has_the_flag_that_fits_what_it_does() -> None:
    flags = lua_names.registered()
    assert {name for name, flag in flags.items() if flag == "no-writes"} == READS
    assert {name for name, flag in flags.items() if flag == ""} == REFUSED_WHEN_FULL
    assert set(flags.values()) == {"no-writes", "", "allow-oom"}
    assert {flags[name] for name in WHEN_FULL.values()} == {"allow-oom"} and WHEN_FULL.keys() <= REFUSED_WHEN_FULL


@pytest.mark.parametrize("file", sorted(lua_names.files()))
def test_every_name_is_declared(file: str) -> None:
    """Lua detects a misspelled name only when it is used."""
    files = lua_names.files()
    shared = set(GIVEN) | OFFERED
    for name in SHARED if file not in SHARED else SHARED[: SHARED.index(file)]:
        shared |= files[name].declared
    unknown = [f"{file}.lua:{line}: {name}" for name, line in files[file].free if name not in shared]
    assert not unknown


def test_every_name_of_a_subject_is_defined_once_and_used() -> None:
    files = lua_names.files().values()
    defined = [name for names in files for name in names.defined]
    used = {name: f"{names.file}.lua:{line}" for names in files for name, line in names.used}
    assert sorted(set(defined)) == sorted(defined)
    assert not {name: place for name, place in used.items() if name not in defined}
    assert not set(defined) - used.keys()


def test_no_file_is_longer_than_what_one_reads() -> None:
    assert not {path.name for path in FOLDER.glob("*.lua") if path.read_text().count("\n") > 400}
    assert not [
        f"{path.name}:{number}"
        for path in FOLDER.glob("*.lua")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > 120
    ]


def test_names_carry_a_digest_of_the_text() -> None:
    """A library of another version or test can therefore be loaded at the same time."""
    ours, other = make_library(settings_of(LIMITS)), make_library(settings_of(Limits(expiries=1)))
    assert re.fullmatch(r"tc_[0-9a-f]{8}", ours.name) and ours.name != other.name
    assert ours.function("submit") == f"{ours.name}_submit"
    assert ours.text.startswith(f"#!lua name={ours.name}\n") and ours == make_library(settings_of(LIMITS))
