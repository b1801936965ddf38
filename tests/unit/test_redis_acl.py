"""Tests the Redis users: every key belongs to a role, and no worker function uses a key forbidden to workers."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from jobs.store import acl, keys
from tests import lua_names
from tests.unit.test_keys import in_python

ROOT = Path(__file__).resolve().parents[2]
#: Functions that workers call.
WORKERS = frozenset(
    (
        "next",
        "hold",
        "leave",
        "lease",
        "lease_when_full",
        "heartbeat",
        "commit",
        "done1",
        "release",
        "crash",
        "fail",
        "fold",
        "count_derive_crash",
        "finish",
        "abort",
        "worker",
        "claim",
        "quarantine",
        "read",
        "report_profile",
        "add_profile_part",
    )
)
#: Keys that only coordinators use.
COORDINATOR_KEYS = (
    keys.LEADER,
    keys.LIBRARIES,
    keys.sweep("*"),
    keys.HISTORY,
    keys.HISTORY_NOW,
    keys.ALERTS,
    keys.DESIRED,
    keys.TENANTS,
    keys.DURABLE,
    keys.idempotency("*", "*"),
    keys.TOKENS,
    keys.TOKENS_VERSION,
    keys.SESSIONS,
    keys.DRAINS,
    keys.token("*"),
    keys.session("*"),
    keys.login("*"),
    keys.AUDIT_LOG,
    keys.AUDIT_HEAD,
    keys.REWRITTEN,
    keys.logins("*"),
    keys.codes("*"),
    keys.secrets("*"),
    keys.secret("*"),
    keys.FILE_STORE,
    keys.FILE_SUMS,
    keys.LOOSE,
    keys.UPLOADS,
    keys.UNOWNED,
    keys.DOOMED,
    keys.UNHELD,
    keys.files("*"),
    keys.parts("*", "*"),
    keys.artifact("*", "*"),
    keys.artifacts("*"),
    keys.holders("*", "*"),
    keys.names("*"),
    keys.FOLLOWED,
    keys.output("*"),
    keys.outputs("*"),
    keys.SCHEDULES,
    keys.schedule("*"),
    keys.schedules_of("*"),
    keys.SERVICES,
    keys.service("*"),
    keys.services_of("*"),
    keys.service_replicas("*"),
    keys.replica("*"),
    keys.service_asked("*"),
    keys.replica_busy("*"),
    keys.inference_counted("*"),
    keys.service_figures("*"),
    keys.tunnel("*"),
    keys.UNSUPPORTED_PROGRAMS,
    keys.WAITING_REPLICAS,
    keys.SHAPES,
    keys.tenant_shapes("*"),
    keys.GRACE,
    keys.leased("*"),
    keys.UNSCHEDULABLE,
    keys.RESERVED,
    keys.claimed("*"),
    keys.stops("*"),
    keys.ATTACHMENTS,
    keys.ATTACHMENT_WAKES,
    keys.attachment("*"),
    keys.attachment_input("*"),
    keys.attachment_output("*"),
    keys.GENERATIONS,
    keys.WORKFLOWS_TAKEN,
    keys.WORKFLOW_FIGURES,
    keys.WORKFLOWS,
    keys.WORKFLOWS_LIVE,
    keys.WORKFLOW_EXPIRY,
    keys.WORKFLOW_BYTES,
    keys.workflow("*"),
    keys.workflow_document("*"),
    keys.workflow_jobs("*"),
    keys.workflow_records("*"),
    keys.workflow_retries("*"),
    keys.workflows_of("*"),
    keys.profiles_of("*"),
    keys.SUBMITTED,
)
#: Keys of programs, which run on machines without access to Redis.
NOT_WORKERS = {
    "shapes",
    "shapes:{}",
    "unsupported_programs",
    "waiting_replicas",
    "grace",
    "leased:{}",
    "unschedulable",
    "reserved",
    "claimed:{}",
}
#: Keys that no worker may read, whatever their names: permissions and secrets.
PRIVATE = (
    "token:x",
    "tokens",
    "tenant:x",
    "tenants",
    "secret:x",
    "files:x",
    "artifact:x",
    "artifacts:x",
    "names:x",
    "secrets:x",
    "logins:x",
    "session:x",
    "sessions",
    "login:x",
    "codes:x",
    "tokenset",
    "auditlog",
    "audithead",
    "idem:default:key",
)


def names(patterns: tuple[str, ...]) -> list[str]:
    return [pattern.removeprefix(keys.PREFIX) for pattern in patterns]


def allowed(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in names(acl.WORKER_KEYS))


def text_of(function: str) -> str:
    """Return the Lua code that a function of the library can run."""
    return "\n".join(definition.text for definition in lua_names.reached(function))


def spelled(text: str) -> set[str]:
    """Return the keys in Lua code, with {} for computed parts."""
    spelled = set(re.findall(r"PREFIX \.\. '([^']+)'", text)) | set(re.findall(r"observe\('(\w+)'", text))
    spelled |= set(re.findall(r"'(rq:\w+:)' \.\.", text))
    return {f"{name}{{}}" if name.endswith(":") else name for name in spelled}


def test_every_key_is_a_workers_or_a_coordinators() -> None:
    """Otherwise, a new key would be open or closed to workers by accident."""
    unclear = {
        key
        for key in in_python()
        if allowed(key.replace("{}", "x"))
        == any(fnmatchcase(key.replace("{}", "x"), pattern) for pattern in names(COORDINATOR_KEYS))
    }
    assert not unclear, f"name each in WORKER_KEYS of jobs/store/acl.py or in COORDINATOR_KEYS of this file: {unclear}"


@pytest.mark.parametrize("function", sorted(WORKERS))
def test_a_workers_function_touches_only_its_keys(function: str) -> None:
    denied = {name for name in spelled(text_of(function)) - NOT_WORKERS if not allowed(name.replace("{}", "x:x"))}
    assert not denied, "a function that is denied a key in its midst has written half of what it should"


@pytest.mark.parametrize("function", sorted(WORKERS))
def test_a_workers_function_writes_no_key_that_it_may_only_read(function: str) -> None:
    for name in names(acl.READ_BY_WORKERS):
        commands = re.findall(rf"call\('(\w+)', PREFIX \.\. '{name}'", text_of(function))
        assert set(commands) <= {"EXISTS", "HGET", "HMGET", "HGETALL"}


def test_workers_call_functions_and_load_none() -> None:
    """A user who can load a function can replace the code that others call."""
    worker, coordinator, *_ = (role.line(">x").split() for role in acl.ROLES)
    assert "+fcall" in worker and not [word for word in worker if word.startswith(("+function", "+script", "+eval"))]
    assert {"+fcall", "+function|load", "+function|list", "+function|delete"} <= set(coordinator)


def test_no_worker_sees_who_may_do_what() -> None:
    assert [name for name in PRIVATE if allowed(name)] == []


def test_what_workers_call_is_there() -> None:
    assert lua_names.registered().keys() >= WORKERS


@pytest.mark.parametrize(
    ("file", "lines", "asked"),
    [("redis-users.acl", acl.lines, ""), ("sentinel-users.acl", acl.lines_on_sentinels, " sentinels")],
)
def test_the_template_of_compose_is_what_the_roles_say(file: str, lines: Any, asked: str) -> None:
    rendered = "\n".join(lines({role.name: f"#@{role.name}@" for role in acl.ROLES})) + "\n"
    assert (ROOT / "deploy" / file).read_text() == rendered, (
        f"run .venv/bin/python -m jobs.store.acl{asked} > deploy/{file}"
    )


def test_sentinels_do_for_clients_no_more_than_name_the_master() -> None:
    users = {line.split()[1]: line for line in acl.lines_on_sentinels({role.name: ">x" for role in acl.ROLES})}
    assert users.keys() == {"default", "worker", "coordinator", "operator", "sentinel"}
    for role in ("worker", "coordinator"):
        assert users[role].endswith("-@all +ping +sentinel|masters +client|setname")


# -- the files of Compose -------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a checkout with the files that create secrets."""
    (tmp_path / "deploy").mkdir()
    for name in ("secrets.sh", "redis-users.acl", "sentinel-users.acl"):
        shutil.copy(ROOT / "deploy" / name, tmp_path / "deploy" / name)
    return tmp_path


def make_secrets(folder: Path) -> dict[str, str]:
    """Run secrets.sh, and return the lines of the Redis users, keyed by name."""
    subprocess.run(["bash", folder / "deploy" / "secrets.sh"], check=True, capture_output=True)
    lines = (folder / "secrets" / "redis.acl").read_text().splitlines()
    return {line.split()[1]: line for line in lines}


def digest(folder: Path, file: str) -> str:
    return hashlib.sha256((folder / "secrets" / file).read_text().strip().encode()).hexdigest()


def test_each_user_has_a_password_of_its_own_and_the_default_user_is_off(folder: Path) -> None:
    users = make_secrets(folder)
    assert users["default"].startswith("user default off ")
    files = {role: f"redis_{role}_password" for role in ("worker", "coordinator", "exporter", "replica", "sentinel")}
    digests = {role: digest(folder, file) for role, file in {**files, "operator": "redis_password"}.items()}
    assert len(set(digests.values())) == 6
    assert users == {
        "default": users["default"],
        **{role.name: role.line(f"#{digests[role.name]}") for role in acl.ROLES},
    }
    for role in ("worker", "coordinator"):
        password = (folder / "secrets" / files[role]).read_text().strip()
        assert (folder / "secrets" / f"redis_{role}_url").read_text() == f"redis://{role}:{password}@redis:6379/0\n"
        through = f"redis+sentinel://{role}:{password}@sentinel:26379/threads/0\n"
        assert (folder / "secrets" / f"redis_{role}_sentinel_url").read_text() == through
    sentinels = {role.name: role for role in acl.ROLES if role.on_sentinels}
    lines = (folder / "secrets" / "sentinel.acl").read_text().splitlines()
    assert lines[1:] == [role.line_on_sentinels(f"#{digests[name]}") for name, role in sentinels.items()]
    assert set(json.loads((folder / "secrets" / "redis_exporter.json").read_text()).values()) == {
        (folder / "secrets" / "redis_exporter_password").read_text().strip()
    }
    assert make_secrets(folder) == users, "what is there stays"


def test_users_that_somebody_added_stay_and_the_default_user_is_turned_off(folder: Path) -> None:
    (folder / "secrets").mkdir()
    mine = f"user mine on #{'1' * 64} ~mine:* +@read"
    (folder / "secrets" / "redis.acl").write_text(f"user default on #{'0' * 64} ~* &* +@all\n{mine}\n")
    users = make_secrets(folder)
    assert users["default"].startswith("user default off ") and users["mine"] == mine
    assert {role.name for role in acl.ROLES} < users.keys()


def test_a_password_that_is_deleted_is_made_anew_everywhere(folder: Path) -> None:
    users = make_secrets(folder)
    (folder / "secrets" / "redis_worker_password").unlink()
    changed = make_secrets(folder)
    assert changed["worker"] != users["worker"]
    assert {name: changed[name] for name in changed if name != "worker"} == {
        name: users[name] for name in users if name != "worker"
    }
    password = (folder / "secrets" / "redis_worker_password").read_text().strip()
    assert password in (folder / "secrets" / "redis_worker_url").read_text()
