"""Tests the names, aliases and addresses of settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from jobs import settings
from jobs.settings import Settings, usable_cores
from threads_cluster import settings as client_settings


def test_the_client_reads_secrets_from_files_unless_variables_are_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(client_settings, "SECRETS_FOLDER", tmp_path)
    (tmp_path / "cluster_token").write_text("from-a-file\n")
    monkeypatch.setenv("CLUSTER_TOKEN", "")  # Compose sets unused variables to empty texts
    stated = client_settings.Settings()
    assert stated.cluster_token == "from-a-file" and "from-a-file" not in repr(stated)
    monkeypatch.setenv("CLUSTER_TOKEN", "from-a-variable")
    assert client_settings.Settings().cluster_token == "from-a-variable"


def test_lanes_are_the_cores_this_process_may_use_unless_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 3, 5})
    assert Settings().lanes() == 3
    monkeypatch.setenv("WORKER_THREADS", "7")
    assert Settings().lanes() == 7


def test_a_runner_has_a_slot_for_each_core_unless_stated_and_a_user_for_each_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 3, 5})
    assert Settings().slots() == 3 and not Settings().program_uids()
    assert Settings(runner_labels="ssd, licence-x,ssd").labels() == ["licence-x", "ssd"]
    monkeypatch.setenv("RUNNER_UIDS", "20001-20003")
    assert list(Settings().program_uids()) == [20001, 20002, 20003]
    for slots, uids in (("4", "20001-20003"), ("1", "3-2")):
        monkeypatch.setenv("RUNNER_SLOTS", slots)
        monkeypatch.setenv("RUNNER_UIDS", uids)
        with pytest.raises(ValueError, match="each slot needs one"):
            Settings()
    monkeypatch.setenv("RUNNER_UIDS", "0-7")
    with pytest.raises(ValueError, match="runner_uids"):
        Settings()


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "1600000 100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({}, 8),
    ],
)
def test_a_containers_cpu_limit_bounds_the_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, str], cores: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert usable_cores(tmp_path) == cores


@pytest.mark.parametrize(
    ("files", "mib"),
    [
        ({"memory.max": "4294967296\n"}, 4096),
        ({"memory.max": "max\n"}, 16384),
        ({"memory/memory.limit_in_bytes": "536870912\n"}, 512),
        ({"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 16384),
        ({}, 16384),
    ],
)
def test_a_containers_limit_bounds_the_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, str], mib: int
) -> None:
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 16384 << 8}.__getitem__)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert settings.usable_memory_mib(tmp_path) == mib


def test_secrets_come_from_files_and_a_variable_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "redis_url").write_text("redis://:hush@redis:6379/0\n")
    (tmp_path / "cluster_token").write_text("\n")
    secrets: dict[str, Any] = {"_secrets_dir": tmp_path}
    assert Settings(**secrets).redis_url == "redis://:hush@redis:6379/0"
    assert Settings(**secrets).cluster_token == ""
    monkeypatch.setenv("REDIS_URL", "redis://other:1/0")
    assert Settings(**secrets).redis_url == "redis://other:1/0"


@pytest.mark.parametrize(
    ("name", "value"),
    [("COORDINATOR_PORT", "0"), ("GPU_ENABLED", "maybe"), ("WORKER_ID", "a b"), ("NODE_ID", "a b"), ("HOST_ID", "a/b")],
)
def test_a_wrong_setting_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"(?i){name}|worker_id"):
        Settings()


def test_a_worker_is_named_by_worker_id_and_node_id_means_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_ID", "old")
    assert Settings().worker_name() == "old"
    monkeypatch.setenv("WORKER_ID", "new")
    assert Settings().worker_name() == "new"


def test_a_host_is_named_by_its_setting_else_its_name_and_machine_id(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "desk one")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    number, mark = tmp_path / "machine-id", tmp_path / "mark"
    number.write_text("0123456789abcdef0123456789abcdef\n")
    here = settings.default_host(number, [mark])
    assert re.fullmatch(r"desk-one-[0-9a-f]{8}", here) and here[9:] not in number.read_text()
    number.write_text("fedcba9876543210fedcba9876543210\n")
    assert settings.default_host(number, [mark]) != here, "two machines of one name"
    for empty in ("", "\n"):
        number.write_text(empty)
        assert settings.default_host(number, [mark]) == "desk-one"
    number.unlink()
    assert settings.default_host(number, [mark]) == "desk-one"
    monkeypatch.setenv("HOST_ID", "rack-7")
    assert Settings().host_name() == "rack-7"


def test_a_machine_id_inside_a_container_names_no_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "4f1c")
    number, mark = tmp_path / "machine-id", tmp_path / "mark"
    number.write_text("0123456789abcdef0123456789abcdef\n")
    mark.touch()
    assert settings.default_host(number, [mark]) == "4f1c"
    mark.unlink()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert settings.default_host(number, [mark]) == "4f1c"


@pytest.mark.parametrize(("text", "wanted"), [("7\n", 7), ("0", 0), ("", 3), ("seven", 3), ("-1", 3), (None, 3)])
def test_the_number_of_workers_may_change_while_a_coordinator_runs(
    tmp_path: Path, text: str | None, wanted: int
) -> None:
    path = tmp_path / "workers"
    settings = Settings(cluster_size=3, cluster_size_file=str(path))
    assert settings.expected_workers() == 3
    if text is not None:
        path.write_text(text)
    assert settings.expected_workers() == wanted


@pytest.mark.parametrize("address", ["localhost", "0.0.0.0", "::", "10.0.0.7/24", "10.0.0.256"])
def test_replicas_of_services_listen_at_one_address_of_their_host(address: str) -> None:
    with pytest.raises(ValueError, match="SERVICE_ADDRESS"):
        Settings(service_address=address)
    for good in ("", "tunnel", "127.0.0.1", "10.0.0.7", "fd12::7", "::1"):
        assert Settings(service_address=good).service_address == good
