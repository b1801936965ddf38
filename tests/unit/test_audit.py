"""Tests that denied requests are counted within limits and recorded, and that the leader exports the log."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coordinator.audit import export
from coordinator.audit.denials import CALLERS, OTHERS, Denials
from coordinator.audit.export_task import AuditExportTask
from coordinator.background.periodic_task import PeriodicTask
from jobs.models import Actor
from jobs.store.tenancy.audit_log import START, Denied, Log

NOBODY = Actor("", "")


def written(denials: Denials) -> list[Denied]:
    """Return the counts and reset them."""
    calls: list[Denied] = []
    denials.write(calls.extend)
    return calls


def test_calls_are_counted_by_caller_and_reason() -> None:
    denials = Denials()
    for _ in range(1000):
        denials.count(401, "10.0.0.1", NOBODY)
    denials.count(403, "10.0.0.1", Actor("physics", "abc"))
    denials.count(429, "10.0.0.2", NOBODY)
    assert written(denials) == [
        Denied(NOBODY, "10.0.0.1", "unauthorized", 1000),
        Denied(Actor("physics", "abc"), "10.0.0.1", "forbidden", 1),
        Denied(NOBODY, "10.0.0.2", "limited", 1),
    ]
    assert written(denials) == []


def test_a_flood_from_many_addresses_stays_small() -> None:
    denials = Denials()
    for number in range(100_000):
        denials.count(401, f"2001:db8::{number:x}", NOBODY)
    calls = written(denials)
    assert len(calls) == CALLERS + 1
    assert calls[-1] == Denied(NOBODY, OTHERS, "unauthorized", 100_000 - CALLERS)


def test_counts_that_could_not_be_written_are_kept() -> None:
    denials = Denials()
    denials.count(401, "10.0.0.1", NOBODY)

    def fail(_: Sequence[Denied]) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        denials.write(fail)
    denials.count(401, "10.0.0.1", NOBODY)
    assert written(denials) == [Denied(NOBODY, "10.0.0.1", "unauthorized", 2)]


class FakeLog:
    """Fake audit log that records its calls."""

    def __init__(self) -> None:
        self.denied: list[Denied] = []
        self.trims: list[tuple[int, int]] = []
        self.exported = 0

    def deny(self, calls: Sequence[Denied]) -> None:
        self.denied.extend(calls)

    def read(self, after: int, most: int) -> Log:
        return Log(START, START, self.exported, [])

    def trim(self, keep: int, *, slack: int = 0) -> int:
        self.trims.append((keep, slack))
        return 0


def test_denied_calls_are_written_when_a_minute_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("coordinator.audit.export_task.time.monotonic", lambda: now)
    log: Any = FakeLog()
    denials = Denials()
    kept = AuditExportTask(log, denials, lambda: False, "")
    denials.count(401, "10.0.0.1", NOBODY)
    kept.run_once()
    assert log.denied == []
    now += 60
    kept.run_once()
    assert log.denied == [Denied(NOBODY, "10.0.0.1", "unauthorized", 1)]
    assert log.trims == []


def test_the_leader_alone_exports_or_trims(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log: Any = FakeLog()
    AuditExportTask(log, Denials(), lambda: True, "").run_once()
    assert log.trims == [(100_000, 1000)]
    exported: list[Path] = []
    monkeypatch.setattr(export, "export", lambda _, path: exported.append(path))
    for leads in (False, True):
        AuditExportTask(log, Denials(), partial(bool, leads), str(tmp_path / "audit.jsonl")).run_once()
    assert exported == [tmp_path / "audit.jsonl"]


def test_what_goes_wrong_is_logged_once_until_it_works_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log: Any = FakeLog()
    kept = AuditExportTask(log, Denials(), lambda: True, "/nowhere/audit.jsonl")
    task = PeriodicTask("audit", kept.run_once, failure="the audit log was not exported")
    for _ in range(3):
        task.attempt()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "AUDIT_FILE /nowhere/audit.jsonl cannot be written (No such file or directory); Redis keeps" in caplog.text
    monkeypatch.setattr(export, "export", lambda *_: 0)
    task.attempt()
    monkeypatch.undo()
    task.attempt()
    assert len(caplog.records) == 2
