"""A short run of the audit log under kills; `python -m tests.contract.audit_kills 100000 20` runs a long one."""

from __future__ import annotations

from pathlib import Path

from tests.contract import audit_kills


def test_the_chain_verifies_after_kills_of_redis_and_of_exporters(tmp_path: Path) -> None:
    counts = audit_kills.run(tmp_path, entries=1500, kills=3, seed=7)
    assert counts.total() >= 1500
    assert counts["rollback"] >= 1
