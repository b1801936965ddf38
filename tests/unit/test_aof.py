"""Tests that Redis' append-only file is rewritten once after each start, and again only after a failure."""

from __future__ import annotations

import pytest

from coordinator.background.aof import RETRY_ROUNDS, AofRewriter
from jobs.store.server.aof import Aof, AofState, RewriteRefused


class FakeAof(Aof):
    """Fake Redis that restarts when `started` changes."""

    def __init__(self) -> None:
        self.started, self.noted = "first", ""
        self.enabled = True
        self.loading = self.running = self.failed = self.unwritten = False
        self.refused = 0
        self.refusal = ""
        self.asked = 0

    def cause(self) -> str:
        return f"{self.started}:{self.refused}" if self.refused else self.started

    def state(self) -> AofState:
        return AofState(self.loading, self.enabled, self.running, self.failed, self.unwritten)

    def rewrite(self) -> None:
        self.asked += 1
        if self.refusal:
            raise RewriteRefused(self.refusal)
        self.running = True

    def end(self, *, failed: bool = False) -> None:
        self.running, self.failed = False, failed

    def rewritten(self) -> str:
        return self.noted

    def note_rewritten(self, run_id: str) -> None:
        self.noted = run_id


@pytest.fixture
def aof() -> FakeAof:
    return FakeAof()


def test_each_start_of_redis_is_followed_by_one_rewrite(aof: FakeAof) -> None:
    rewriter = AofRewriter(aof)
    for start in ("first", "second"):
        aof.started = start
        assert [rewriter.run_once() for _ in range(3)] == [False] * 3, "it runs"
        aof.end()
        assert [rewriter.run_once() for _ in range(3)] == [True] * 3
        assert aof.noted == start
    assert aof.asked == 2


def test_while_redis_reads_the_file_nothing_is_known(aof: FakeAof) -> None:
    aof.loading, aof.enabled = True, False
    rewriter = AofRewriter(aof)
    assert not rewriter.run_once() and aof.asked == 0
    aof.loading, aof.enabled = False, True
    assert not rewriter.run_once() and aof.asked == 1


def test_a_disk_that_was_full_is_followed_by_one_rewrite_once_it_has_room(aof: FakeAof) -> None:
    aof.noted = "first"
    rewriter = AofRewriter(aof)
    assert rewriter.run_once()
    aof.unwritten = True
    for _ in range(3):
        aof.refused += 7
        assert not rewriter.run_once() and aof.asked == 0, "nothing can be written yet"
    aof.unwritten = False
    assert not rewriter.run_once() and aof.asked == 1
    aof.end()
    assert rewriter.run_once() and AofRewriter(aof).run_once() and aof.asked == 1


def test_another_leader_asks_for_nothing_that_was_done(aof: FakeAof) -> None:
    aof.noted = "first"
    assert AofRewriter(aof).run_once()
    aof.started = "second"
    one, other = AofRewriter(aof), AofRewriter(aof)
    one.run_once()
    assert not other.run_once()
    aof.end()
    assert other.run_once() and one.run_once()
    assert aof.asked == 1


def test_a_rewrite_that_fails_is_asked_for_again_a_minute_later(aof: FakeAof) -> None:
    rewriter = AofRewriter(aof)
    rewriter.run_once()
    aof.end(failed=True)
    assert not any(rewriter.run_once() for _ in range(RETRY_ROUNDS - 1)) and aof.asked == 1
    rewriter.run_once()
    assert aof.asked == 2
    aof.end()
    assert rewriter.run_once()


def test_a_refusal_is_logged_once_and_asked_again_once_a_minute(aof: FakeAof, caplog: pytest.LogCaptureFixture) -> None:
    aof.refusal = "NOPERM this user has no permissions to run the 'bgrewriteaof' command"
    rewriter = AofRewriter(aof)
    assert not any(rewriter.run_once() for _ in range(3 * RETRY_ROUNDS))
    assert aof.asked == 3
    assert [record.getMessage() for record in caplog.records] == [
        f"redis did not rewrite its append-only file after its start or a full disk: {aof.refusal}"
    ]


@pytest.mark.parametrize(("run_id", "enabled"), [("first", False), ("", True)])
def test_where_there_is_no_file_or_no_run_id_nothing_is_asked(aof: FakeAof, run_id: str, enabled: bool) -> None:
    aof.started, aof.enabled = run_id, enabled
    assert AofRewriter(aof).run_once()
    assert aof.asked == 0
