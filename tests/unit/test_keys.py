"""Tests that Redis keys are spelled alike in `jobs/store/keys.py`, in Lua, and in the protocol's table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobs.store import keys

ROOT = Path(__file__).resolve().parents[2]
LUA = ROOT / "jobs" / "store" / "lua"
PROTOCOL = ROOT / "docs" / "lease-protocol.md"

#: Keys that only Python uses, and that the Lua functions ignore.
PYTHON_ALONE = {
    "history",
    "history:now",
    "alerts",
    "durable",
    "release",
    "rewritten",
    "desired",
    "filestore",
    "workflowfigures",
    "tunnel:{}",
    "rq:queues",
    "rq:job:{}",
}
#: Families of keys.py that name a field, or keys of another family.
READERS = {"unsupported_member", "caps"}


def shape(key: str) -> str:
    """Return a key without its prefix, with {} in place of IDs of jobs, queues, workers and so on."""
    return re.sub(r"\{[^}]*\}", "{}", key.removeprefix(keys.PREFIX)).replace("{}:{}|{}", "{}")


def is_family(name: str, value: object) -> bool:
    return isinstance(value, keys.Family) and name not in READERS


def in_python() -> set[str]:
    constants = {
        value
        for name, value in vars(keys).items()
        if name.isupper() and isinstance(value, str) and name not in ("PREFIX", "OF_RQ")
    }
    made = {family.pattern.replace("%s", "{}") for name, family in vars(keys).items() if is_family(name, family)}
    return {shape(key) for key in constants | made}


def in_lua() -> set[str]:
    """Return the keys in the Lua functions, with {} for parts that are computed or written after a first colon."""
    text = "\n".join(path.read_text() for path in sorted(LUA.glob("*.lua")))
    spelled = set(re.findall(r"PREFIX \.\. '([^']+)'", text))
    spelled.update(re.findall(r"'\^ct:(\w+:?)\$?'", text))  # patterns of indexes
    spelled.update(re.findall(r"observe\('(\w+)'", text))  # histograms
    spelled.update(re.findall(r"'(rq:\w+:)' \.\.", text))
    spelled.update(re.findall(r"PREFIX \.\. \(device == 'any' and '(\w+)' or '\w+:'", text))
    parts = {f"job:{{}}:{part}" for part in re.findall(r"job_key\([\w.]+, '(\w+)'\)", text)}
    return {re.sub(r"^((?:rq:)?\w+:)\w*$", r"\1{}", name) for name in spelled} | parts


def in_the_protocol() -> set[str]:
    """Return the keys in the table under "Keys"; a cell `:name` continues the job key of its row."""
    text = PROTOCOL.read_text()
    section = text[text.index("## Keys") : text.index("## Functions")]
    listed = set()
    for row in re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE):
        for key in re.findall(r"`([^`]+)`", row.replace("\\|", "|")):
            listed.add(shape(f"job:{{id}}{key}" if key.startswith(":") else key))
    return listed


def joined(shapes: set[str]) -> set[str]:
    """Merge several {} into one, because the functions join names with a colon inside before they build a key."""
    return {re.sub(r"\{\}(:\{\})+", "{}", each) for each in shapes}


def differences(python: set[str], lua: set[str], protocol: set[str]) -> list[str]:
    python, lua, protocol = joined(python), joined(lua), joined(protocol)
    found = [f"{key}: only Python has it; use it in a script, or list it as Python's" for key in python - lua]
    found = [line for line in found if line.partition(": only")[0] not in PYTHON_ALONE]
    found += [f"{key}: a script has it; add it to jobs/store/keys.py" for key in lua - python]
    found += [f"{key}: add it to the table in docs/lease-protocol.md" for key in python - protocol]
    found += [
        f"{key}: the table in docs/lease-protocol.md has it, jobs/store/keys.py has not" for key in protocol - python
    ]
    return found


def test_python_lua_and_the_protocol_have_the_same_keys() -> None:
    assert len(in_python()) > 40
    assert not (found := differences(in_python(), in_lua(), in_the_protocol())), "\n".join(found)


@pytest.mark.parametrize(
    ("place", "complaint"),
    [
        (0, "a script has it"),
        (1, "only Python has it"),
        (2, "add it to the table"),
    ],
)
def test_a_key_that_one_place_lacks_is_named(place: int, complaint: str) -> None:
    places = [in_python(), in_lua(), in_the_protocol()]
    places[place].discard("recheck")
    assert any(line.startswith("recheck: ") and complaint in line for line in differences(*places))


def test_a_key_that_only_the_protocol_has_is_named() -> None:
    found = differences(in_python(), in_lua(), in_the_protocol() | {"gone:{}"})
    assert found == ["gone:{}: the table in docs/lease-protocol.md has it, jobs/store/keys.py has not"]


def test_the_prefix_is_that_of_the_library() -> None:
    [prefix] = re.findall(r"^local PREFIX = '(.*)'$", (LUA / "library.lua").read_text(), re.MULTILINE)
    assert prefix == keys.PREFIX


def test_a_jobs_id_is_read_from_the_name_of_its_hash_alone() -> None:
    assert keys.job_id(keys.job("a1").encode()) == b"a1"
    assert keys.job_id(keys.job_parts("a1").encode()) is None
    assert keys.job_id(keys.LOAD.encode()) is None
