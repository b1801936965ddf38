"""Tests the audit log: functions chain all changes, and the leader's export loses, repeats and forks nothing."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from coordinator.audit import export, file
from coordinator.audit.denials import Denials
from coordinator.audit.export_task import AuditExportTask
from jobs.models import Actor
from jobs.store import Store
from jobs.store.server import connection
from jobs.store.tenancy.audit_log import START, AuditLog, Denied
from jobs.store.tenancy.tenants import Tenant
from tests.contract.lease_model import Bench, new_job
from threads_cluster.cli import audit

ANN = Actor("physics", "abc")


def entries(log: AuditLog) -> list[dict[str, Any]]:
    return [json.loads(entry.line) for entry in log.read(0, 1000).entries]


def actions(log: AuditLog) -> list[tuple[str, str, str]]:
    return [(one["action"], one["subject"], one["outcome"]) for one in entries(log)]


def test_each_change_leaves_one_entry_and_a_repeated_call_none(bench: Bench) -> None:
    jobs, log = bench.store.jobs, bench.store.audit_log
    for _ in range(2):
        jobs.submit([new_job("a", 10, "any.normal")])
        jobs.pause("a", ANN)
        jobs.pause("a", ANN)
        jobs.resume("a", ANN)
        jobs.resume("a", ANN)
        jobs.cancel("a", ANN)
        jobs.cancel("a", ANN)
        jobs.retry("a", 1, ANN)
        jobs.retry("a", 1, ANN)
        jobs.cancel("a", ANN)
        assert jobs.retry("a", 2, ANN)[0] == "version"
        jobs.delete("a", ANN)
        assert jobs.delete("a", ANN) == ["missing"]
    once = [
        ("submit", "a", "queued"),
        ("pause", "a", "paused"),
        ("resume", "a", "queued"),
        ("cancel", "a", "cancelled"),
        ("retry", "a", "queued"),
        ("cancel", "a", "cancelled"),
        ("delete", "a", "cancelled"),
    ]
    assert actions(log) == once * 2
    assert {(one["tenant"], one["token"]) for one in entries(log)} == {("default", ""), ("physics", "abc")}
    assert [one["seq"] for one in entries(log)] == list(range(1, 15))


def test_each_entry_follows_the_one_before(bench: Bench) -> None:
    bench.store.jobs.submit([new_job(f"j{number}", 10, "any.normal") for number in range(5)])
    place = START
    for entry in bench.store.audit_log.read(0, 1000).entries:
        assert entry.follows(place)
        place = type(place)(entry.seq, entry.hash)
    assert place == bench.store.audit_log.read(0, 1).head


def test_a_drain_is_logged_when_it_changes_something(bench: Bench) -> None:
    store = bench.store
    store.fleet.heartbeat("cpu-1", store.fleet.birth(), {"device": "cpu"})
    for on in (True, True, False, False):
        store.fleet.drain("cpu-1", on, ANN)
    store.fleet.drain("cpu-2", True, ANN)
    assert actions(store.audit_log) == [("drain", "cpu-1", "ok"), ("undrain", "cpu-1", "ok")]


def test_a_tenant_is_logged_when_it_changes(bench: Bench) -> None:
    for weight in (2, 2, 3):
        bench.store.tenants.put(Tenant(name="physics", weight=weight), ANN)
    for _ in range(2):
        bench.store.tenants.remove("physics", ANN)
    assert [one["outcome"] for one in entries(bench.store.audit_log)] == [
        "weight 2, max_lanes 0, max_jobs 0",
        "weight 3, max_lanes 0, max_jobs 0",
        "removed",
    ]


def test_names_that_json_escapes_stay_one_line(bench: Bench) -> None:
    bench.store.audit_log.deny([Denied(Actor('a"\n\\', "é"), "::1", "forbidden", 3)])
    [entry] = entries(bench.store.audit_log)
    assert (entry["tenant"], entry["token"], entry["count"]) == ('a"\n\\', "é", 3)
    assert b"\n" not in bench.store.audit_log.read(0, 1).entries[0].line


def test_a_question_is_no_change(bench: Bench) -> None:
    bench.store.jobs.submit([new_job("a", 10, "any.interactive")])
    assert actions(bench.store.audit_log) == []


def test_a_lost_head_is_derived_from_the_last_entry(bench: Bench) -> None:
    log = bench.store.audit_log
    bench.store.jobs.submit([new_job("a", 10, "any.normal")])
    bench.client.delete("ct:audithead")
    bench.store.jobs.submit([new_job("b", 10, "any.normal")])
    first, second = log.read(0, 10).entries
    assert second.seq == 2 and second.follows(type(START)(1, first.hash))


def test_without_a_file_old_entries_go_and_an_entry_says_so(bench: Bench) -> None:
    log = bench.store.audit_log
    bench.store.jobs.submit([new_job(f"j{number}", 10, "any.normal") for number in range(30)])
    assert log.trim(20, slack=10) == 0
    assert log.trim(20, slack=9) == 10 - 1  # and one more that says so
    assert actions(log)[-1] == ("trimmed", "1-10", "dropped")
    assert log.read(0, 1).dropped.seq == 10
    assert audit.Chain(text(log)).verify().seq == 31


def text(log: AuditLog) -> list[bytes]:
    """Return all stored entries as the API sends them."""
    part = log.read(0, 10**6)
    before = b'{"after":%d,"hash":"%b"}' % (part.dropped.seq, part.dropped.hash.encode())
    return [*([before] if part.dropped.seq else []), *(entry.line for entry in part.entries)]


# -- export -----------------------------------------------------------------------------------------------------------


def note(log: AuditLog, *subjects: str) -> None:
    log.deny([Denied(ANN, subject, "forbidden", 1) for subject in subjects])


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")[:-1]


def subjects(path: Path) -> list[str]:
    return [json.loads(line)["subject"] for line in lines(path)]


class Snapshot:
    """The log's current state in Redis, which can be restored after later writes are lost."""

    def __init__(self, bench: Bench) -> None:
        self._client = bench.client
        self._kept = {key: bench.client.dump(key) for key in ("ct:auditlog", "ct:audithead")}

    def restore(self) -> None:
        for key, stored in self._kept.items():
            self._client.delete(key)
            if stored is not None:
                self._client.restore(key, 0, stored)


def test_entries_are_exported_once_and_in_order(bench: Bench, tmp_path: Path) -> None:
    log, path = bench.store.audit_log, tmp_path / "audit.jsonl"
    for round_ in range(3):
        note(log, *(f"{round_}.{number}" for number in range(5)))
        assert export.export(log, path) == 5
        assert export.export(log, path) == 0
    assert subjects(path) == [f"{round_}.{number}" for round_ in range(3) for number in range(5)]
    assert audit.Chain(lines(path)).verify().seq == 15
    assert log.read(0, 1).exported == 15
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_batch_that_redis_did_not_hear_of_is_not_written_again(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, path = bench.store.audit_log, tmp_path / "audit.jsonl"
    note(log, "a", "b")

    def unheard(*_: object, **__: object) -> int:
        raise ConnectionError

    monkeypatch.setattr(log, "trim", unheard)
    with pytest.raises(ConnectionError):
        export.export(log, path)
    monkeypatch.undo()
    note(log, "c")
    assert export.export(log, path) == 1
    assert subjects(path) == ["a", "b", "c"]


def test_a_torn_line_is_written_anew(bench: Bench, tmp_path: Path) -> None:
    log, path = bench.store.audit_log, tmp_path / "audit.jsonl"
    note(log, "a", "b")
    export.export(log, path)
    for cut in (1, 100, 200):
        whole = path.read_bytes()
        path.write_bytes(whole[:-cut])
        export.export(log, path)
        assert path.read_bytes() == whole


@pytest.mark.parametrize("content", [b"precious", b"a = 1\nb = 2", b'{"seq":1}\n{"seq":2', b'{"service":"x"}'])
def test_a_file_of_something_else_is_left_as_it_is(content: bytes, bench: Bench, tmp_path: Path) -> None:
    """AUDIT_FILE can name another file by mistake."""
    path = tmp_path / "audit.jsonl"
    path.write_bytes(content)
    note(bench.store.audit_log, "a")
    with pytest.raises(file.BrokenFile):
        export.export(bench.store.audit_log, path)
    assert path.read_bytes() == content


def test_zeros_that_a_lost_disk_cache_left_are_cut(bench: Bench, tmp_path: Path) -> None:
    log, path = bench.store.audit_log, tmp_path / "audit.jsonl"
    note(log, "a")
    export.export(log, path)
    whole = path.read_bytes()
    for left in (b"\0" * 300, b'{"se' + b"\0" * 10):
        path.write_bytes(whole + left)
        export.export(log, path)
        assert path.read_bytes() == whole


def test_a_line_without_its_sha256_after_those_that_have_one_is_noticed(bench: Bench, tmp_path: Path) -> None:
    log, path = bench.store.audit_log, tmp_path / "audit.jsonl"
    note(log, "a", "b", "c")
    export.export(log, path)
    first, second, third = lines(path)
    cut = third[: third.rindex(b',"sha256"')] + b"}"
    with pytest.raises(audit.Tampered, match="line 3: the SHA-256 is missing"):
        audit.Chain([first, second, cut]).verify()


def test_a_file_that_another_process_writes_is_left_alone(bench: Bench, tmp_path: Path) -> None:
    log, path = bench.store.audit_log, tmp_path / "audit.jsonl"
    note(log, "a")
    with file.open_locked(path):
        assert export.export(log, path) == 0
    assert export.export(log, path) == 1


def test_a_new_file_begins_with_what_redis_keeps(bench: Bench, tmp_path: Path) -> None:
    log = bench.store.audit_log
    note(log, *map(str, range(20)))
    log.trim(5)
    export.export(log, tmp_path / "second.jsonl")
    verified = audit.Chain(lines(tmp_path / "second.jsonl")).verify()
    assert (verified.first, verified.seq) == (16, 21)


def test_entries_that_were_dropped_before_their_export_are_missed(bench: Bench, tmp_path: Path) -> None:
    log, path = bench.store.audit_log, tmp_path / "audit.jsonl"
    note(log, "a", "b")
    export.export(log, path)
    note(log, *map(str, range(20)))
    log.trim(5)
    export.export(log, path)
    with pytest.raises(
        audit.MissingEntries, match=r"line 3: entries 3 to 17 are missing.*no existing line was altered"
    ):
        audit.Chain(lines(path)).verify()
    assert ("trimmed", "3-17", "dropped") in actions(log)
    damaged = [line.replace(b'"subject":"19"', b'"subject":"91"') for line in lines(path)]
    with pytest.raises(
        audit.Tampered, match=r"entry 22 or .* was changed; before this line, entries 3 to 17 are missing"
    ):
        audit.Chain(damaged).verify()


def test_coordinators_with_other_files_lose_nothing_between_them_and_say_what_is_not_here(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two coordinators lead one after the other; the third one has no entries."""
    log, one, two = bench.store.audit_log, tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    note(log, "a", "b")
    export.export(log, one)
    note(log, "c", "d")
    export.export(log, two)
    log.trim(2, exported=4)
    note(log, "e")
    assert export.export(log, one) == 3
    log.trim(0, exported=5)
    note(log, "f")
    export.export(log, two)
    with pytest.raises(
        audit.MissingEntries, match=r"line 5: entries 5 to 5 are missing.*another coordinator's AUDIT_FILE"
    ):
        audit.Chain(lines(two)).verify()
    assert audit.Chain(lines(one)).verify().seq == 5 and "lacks entries of the audit log" in caplog.text
    caplog.clear()
    exporter = AuditExportTask(log, Denials(), lambda: True, "")
    for _ in range(2):
        exporter.run_once()
    assert [record.message for record in caplog.records if "is the leader and has no AUDIT_FILE" in record.message]
    assert len(caplog.records) == 1
    note(log, *map(str, range(20)))
    log.trim(5)
    export.export(log, one)
    both = {json.loads(line).get("seq") for line in (*lines(one), *lines(two))}
    trimmed = next(subject for action, subject, _ in actions(log) if action == "trimmed")
    first, last = map(int, trimmed.split("-"))
    assert {*range(1, 28)} - both == {*range(first, last + 1)}


def test_lines_that_did_not_reach_the_disk_are_written_again(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk can fail during fsync, while the cache shows the lines for some time."""
    log, path = bench.store.audit_log, tmp_path / "audit.jsonl"
    note(log, "a")
    export.export(log, path)
    before = path.read_bytes()
    note(log, "b")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("coordinator.audit.file.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        export.export(log, path)
    assert path.read_bytes() == before and log.read(0, 1).exported == 1
    monkeypatch.undo()
    assert export.export(log, path) == 1 and subjects(path) == ["a", "b"]


def test_lines_of_a_writer_that_died_are_on_disk_before_redis_drops_them(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, path = bench.store.audit_log, tmp_path / "audit.jsonl"
    note(log, "a")
    done: list[str] = []
    with file.open_locked(path) as dying:
        assert dying
        monkeypatch.setattr(dying, "sync", lambda: None)
        dying.append(None, log.read(0, 1).entries)
    monkeypatch.setattr(file.AuditFile, "sync", lambda _: done.append("kept"))
    monkeypatch.setattr(log, "trim", lambda *_, **__: done.append("dropped"))
    export.export(log, path)
    assert done == ["kept", "dropped"]


def test_a_file_ahead_of_redis_says_what_is_void(bench: Bench, tmp_path: Path) -> None:
    log, path = bench.store.audit_log, tmp_path / "audit.jsonl"
    note(log, "a", "b")
    before = Snapshot(bench)
    note(log, "lost1", "lost2")
    export.export(log, path)
    before.restore()
    note(log, "c")
    export.export(log, path)
    assert subjects(path) == ["a", "b", "lost1", "lost2", "3-4", "c"]
    assert json.loads(lines(path)[4])["action"] == "rollback"
    assert audit.Chain(lines(path)).verify().seq == 6
    assert audit.Chain(text(log)).verify().seq == 6


def test_a_redis_that_lost_everything_goes_on_where_the_file_ends(bench: Bench, tmp_path: Path) -> None:
    log, path = bench.store.audit_log, tmp_path / "audit.jsonl"
    note(log, "a", "b")
    export.export(log, path)
    bench.client.delete("ct:auditlog", "ct:audithead")
    note(log, "c", "d", "e")
    export.export(log, path)
    assert subjects(path) == ["a", "b", "1-2", "c", "d", "e"]
    assert audit.Chain(lines(path)).verify().seq == 6


@pytest.mark.parametrize("seed", range(20))
def test_no_order_of_faults_breaks_the_chain(bench: Bench, tmp_path: Path, seed: int) -> None:
    """Exports that die, incomplete lines, and a Redis that forgets occur in any order."""
    draw = random.Random(seed)
    log, path = bench.store.audit_log, tmp_path / "audit.jsonl"
    kept = [Snapshot(bench)]
    for number in range(60):
        what = draw.choices(("note", "export", "dying", "tear", "forget", "trim"), (8, 6, 2, 1, 2, 1))[0]
        if what == "note":
            note(log, *(f"{number}.{place}" for place in range(draw.randint(1, 4))))
        elif what == "export":
            export.export(log, path)
        elif what == "dying":
            with file.open_locked(path) as opened:
                assert opened
                end = opened.end().position
                new = log.read(end.seq, 3)
                if new.entries and new.entries[0].follows(end):
                    opened.append(None, new.entries)  # and Redis never hears of it
        elif what == "tear" and path.exists():
            path.write_bytes(path.read_bytes() + b'{"seq":')
        elif what == "forget":
            draw.choice(kept[-3:]).restore()
        elif what == "trim":
            log.trim(draw.randint(1, 5), exported=log.read(0, 1).exported)
        kept.append(Snapshot(bench))
        if what == "export":
            audit.Chain(lines(path)).verify()
    note(log, "last")
    export.export(log, path)
    audit.Chain(text(log)).verify()
    assert audit.Chain(lines(path)).verify().seq == log.read(0, 1).head.seq
    tail = [json.loads(line)["subject"] for line in text(log) if b'"seq"' in line]
    assert subjects(path)[-len(tail) :] == tail


def test_the_age_of_what_the_file_lacks_is_that_of_its_oldest_entry(any_redis_url: str, tmp_path: Path) -> None:
    client = connection.connect(any_redis_url)
    log, path = Store(client).audit_log, tmp_path / "audit.jsonl"
    note(log, "a")
    assert log.unexported_seconds() > 0
    export.export(log, path)
    assert log.unexported_seconds() == 0
    written = int(time.time() * 1000) - 100_000
    client.xadd("ct:auditlog", {"hash": "0" * 40, "body": f'"t":{written}'}, id="2-0")
    client.hset("ct:audithead", "seq", 3)
    assert 90 < log.unexported_seconds() < 1000
    client.xadd("ct:auditlog", {"hash": "0" * 40, "body": f'"t":{written + 3_700_000}'}, id="3-0")
    client.xdel("ct:auditlog", "2-0")
    assert log.unexported_seconds() > 3000, "the clock was set back by an hour"
    client.delete("ct:auditlog")
    client.xadd("ct:auditlog", {"hash": "0" * 40, "body": "no JSON"}, id="2-0")
    assert log.unexported_seconds() == 0
    client.close()
