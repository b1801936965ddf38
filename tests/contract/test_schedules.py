"""Tests schedules in Redis: each time runs once, whichever leader dies; skipped and missed runs are counted."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from coordinator.artifacts.trees import Trees
from coordinator.jobs.delegated_submission import OnBehalf
from coordinator.queries import Queries
from coordinator.schedules import runs
from coordinator.schedules.runs import Runs, times
from coordinator.secrets.keys import Keys
from coordinator.secrets.vault import Vault
from jobs import errors
from jobs.settings import Settings
from jobs.store import keys
from jobs.store.schedules import Schedule
from jobs.store.server import connection
from jobs.store.tenancy.tenants import Tenant
from tests.contract.lease_model import START, Bench

JOB = {"type": "collatz", "parameters": {"start_number": 1, "number_count": 10}}
NOW = START // 1000


class Board:
    """Schedules of a cluster with a test clock."""

    def __init__(self, bench: Bench, **settings: Any) -> None:
        self.bench, self.store = bench, bench.store
        chosen = Settings(**settings)
        queries, trees = Queries(self.store, chosen), Trees(self.store, chosen)
        on_behalf = OnBehalf(self.store.jobs, chosen, queries.fleet_cache, trees, Vault(self.store.secrets, Keys([])))
        self.runs = Runs(self.store.schedules, self.store.workflows, chosen, on_behalf, queries.jobs.states)

    def add(self, every: int = 60, **more: Any) -> Schedule:
        given = {
            "schedule_id": "a1",
            "tenant": "default",
            "name": "it",
            "token": "t",
            "runs_programs": False,
            "job": json.dumps(JOB),
            "every": every,
            "cron": "",
            "timezone": "UTC",
            "overlap": False,
            "catch_up": "last",
            "created": NOW,
            **more,
        }
        made = Schedule(**given, next=times(Schedule(**given)).after(NOW) or 0)
        assert self.store.schedules.add(made) == ("new", made.schedule_id)
        return made

    def pass_to(self, seconds: int) -> None:
        """Advance the clock to a time after the start, and run due schedules."""
        self.advance_to(seconds)
        self.runs.run_due()

    def advance_to(self, seconds: int) -> None:
        self.bench.advance((NOW + seconds) * 1000 - int(self.bench.client.get("test:clock")))

    def jobs(self) -> list[int]:
        """Return the times for which jobs were submitted, in seconds after the start."""
        ids = [name.decode() for name in self.bench.client.zrange(keys.JOBS, 0, -1)]
        return [int(one.rpartition("-")[2]) - NOW for one in ids]

    def cancel(self) -> None:
        for name in self.bench.client.zrange(keys.in_state("queued"), 0, -1):
            self.store.jobs.cancel(name.decode())

    def one_named(self, name: str) -> Schedule:
        found = self.store.schedules.one("default", name)
        assert found
        return found

    def one(self, tenant: str = "default") -> Schedule:
        [row] = self.store.schedules.of_tenant(tenant)
        return row


@pytest.fixture
def board(bench: Bench) -> Board:
    return Board(bench)


def test_each_time_is_one_job_of_the_tenant_and_its_token(board: Board) -> None:
    board.add()
    for second in (59, 60, 61, 119, 120, 120, 180):
        board.pass_to(second)
        board.cancel()
    assert board.jobs() == [60, 120, 180]
    row = board.one()
    assert (row.submitted, row.skipped, row.missed, row.failed) == (3, 0, 0, 0)
    assert (row.last - NOW, row.last_job, row.said, row.next - NOW) == (180, f"s-a1-{NOW + 180}", "submitted", 240)
    stored = board.bench.job(row.last_job).fields
    assert (stored["tenant"], stored["token"]) == ("default", "t")


@pytest.mark.parametrize("after", ["claim", "submit"])
def test_a_leader_that_dies_in_a_run_is_followed_by_one_that_makes_the_same(
    board: Board, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.add(every=10)

    def dies(*_: object) -> Any:
        raise SystemExit

    with monkeypatch.context() as broken:
        broken.setattr(board.runs, "submit_run" if after == "claim" else "_active_run", dies)
        if after == "submit":
            broken.undo()
            broken.setattr(board.store.schedules, "note", dies)
        with pytest.raises(SystemExit):
            board.pass_to(10)
    # The next leader comes late: the time of the next run has passed, too.
    board.pass_to(21)
    assert board.jobs() == [10]
    board.cancel()
    board.pass_to(22)
    assert board.jobs() == [10, 20]
    row = board.one()
    assert (row.submitted, row.missed) == (2, 0)


def test_two_leaders_at_once_make_one_job(board: Board) -> None:
    board.add()
    board.advance_to(60)
    _, [seen] = board.store.schedules.due(10)
    board.runs.run_schedule(seen, NOW + 60)
    board.runs.run_schedule(seen, NOW + 60)
    assert board.jobs() == [60] and board.one().submitted == 1


def test_a_run_is_left_out_while_the_last_job_goes_on_unless_they_may_overlap(board: Board) -> None:
    board.add()
    board.add(schedule_id="b2", name="other", overlap=True)
    for second in (60, 120, 180):
        board.pass_to(second)
    mine, other = board.store.schedules.of_tenant("default")
    assert (mine.submitted, mine.skipped, other.submitted, other.skipped) == (1, 2, 3, 0)
    assert mine.said == f"skipped: job s-a1-{NOW + 60} of the previous run is still active"
    board.cancel()
    board.pass_to(240)
    assert board.store.schedules.of_tenant("default")[0].submitted == 2


@pytest.mark.parametrize(
    ("catch_up", "late", "made", "missed"),
    [
        ("last", 330, [300], 4),
        ("none", 330, [300], 4),
        ("last", 3599, [3540], 58),
        ("none", 3599 + 62, [3660], 60),
    ],
)
def test_what_was_missed_is_counted_and_at_most_its_last_is_made_up_for(
    board: Board, catch_up: str, late: int, made: list[int], missed: int
) -> None:
    board.add(catch_up=catch_up)
    board.pass_to(late)
    assert board.jobs() == made and board.one().missed == missed
    board.pass_to(late + 1)
    assert board.jobs() == made


def test_without_catching_up_a_late_run_is_none(board: Board) -> None:
    board.add(every=3600, catch_up="none")
    board.add(every=3600, schedule_id="b2", name="other")
    board.pass_to(2 * 3600 + 600)
    mine, other = board.store.schedules.of_tenant("default")
    assert (mine.submitted, mine.missed, other.submitted, other.missed) == (0, 2, 1, 1)
    assert board.jobs() == [7200] and mine.next - NOW == other.next - NOW == 3 * 3600


@pytest.mark.parametrize(
    ("job", "settings", "why"),
    [
        ({"type": "nothing", "parameters": {}}, {}, "nothing"),
        ({"type": "collatz", "parameters": {"x": 1}}, {}, "x"),
        (JOB, {"max_queued": 1}, "MAX_QUEUED"),
    ],
)
def test_a_job_that_is_refused_is_told_and_the_schedule_goes_on(
    bench: Bench, job: dict[str, Any], settings: dict[str, Any], why: str
) -> None:
    board = Board(bench, **settings)
    bench.submit()
    board.add(job=json.dumps(job))
    board.pass_to(60)
    board.pass_to(120)
    row = board.one()
    assert (row.failed, row.submitted) == (2, 0) and row.said.startswith("refused: ") and why in row.said
    assert row.next - NOW == 180


def test_a_cap_of_the_tenant_loses_no_run(board: Board) -> None:
    board.store.tenants.put(Tenant(name="a", max_jobs=1))
    board.bench.submit(tenant="a")
    board.add(tenant="a")
    board.pass_to(60)
    assert board.one("a").submitted == 1 and len(board.bench.client.zrange(keys.backlog("a"), 0, -1)) == 1


def test_redis_that_refuses_writes_delays_a_run(board: Board) -> None:
    board.add()
    board.advance_to(60)
    _, [seen] = board.store.schedules.due(10)
    assert board.store.schedules.claim(seen, NOW + 60, NOW + 120, 0)
    board.bench.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(connection.Unreachable):
            board.runs.run_due()
    finally:
        board.bench.client.config_set("maxmemory", 0)
    board.runs.run_due()
    assert board.jobs() == [60] and board.one().submitted == 1


def test_a_paused_schedule_misses_nothing_and_goes_on_at_its_next_time(board: Board) -> None:
    board.add()
    schedules = board.store.schedules
    assert schedules.pause("default", "it") and schedules.pause("default", "it")
    board.pass_to(600)
    assert board.jobs() == [] and board.one().paused
    assert schedules.resume("default", "it", NOW + 660) and schedules.resume("default", "it", NOW + 999)
    board.pass_to(660)
    assert board.jobs() == [660] and board.one().missed == 0
    assert not schedules.pause("other", "it") and not schedules.delete("default", "nothing")
    assert schedules.delete("default", "it") and not schedules.delete("default", "it")
    board.pass_to(999)
    assert board.jobs() == [660] and board.bench.client.exists(keys.schedule("a1"), keys.SCHEDULES) == 0


def test_a_schedule_ends_with_its_tenant(board: Board) -> None:
    board.store.tenants.put(Tenant(name="a"))
    board.add(tenant="a")
    assert board.store.tenants.remove("a") == "ok"
    board.pass_to(60)
    assert board.jobs() == [] and board.store.schedules.of_tenant("a") == []
    made = Schedule(
        schedule_id="c3",
        tenant="a",
        name="x",
        token="",
        runs_programs=False,
        job="{}",
        every=60,
        cron="",
        timezone="UTC",
        overlap=False,
        catch_up="last",
        created=NOW,
    )
    assert board.store.schedules.add(made) == ("missing", "a")


def test_a_thousand_that_are_due_at_once_run_in_rounds_and_none_is_added_beyond(board: Board) -> None:
    for number in range(1000):
        board.add(schedule_id=f"n{number}", name=f"n{number}")
    assert board.store.schedules.add(board.store.schedules.of_tenant("default")[0]) == ("new", "n0")
    extra = Schedule(**{**vars(board.store.schedules.of_tenant("default")[0]), "schedule_id": "x", "name": "x"})
    assert board.store.schedules.add(extra) == ("full", "1000")
    board.advance_to(60)
    rounds = [board.runs.run_due() for _ in range(21)]
    assert rounds == [50] * 20 + [0] and board.jobs() == [60] * 1000


def test_many_that_fail_hold_up_no_other(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that fail stay due, before all others: 50 of them filled each round."""
    for number in range(runs.AT_ONCE + 10):
        board.add(schedule_id=f"n{number}", name=f"n{number}", timezone="Europe/Nowhere", cron="* * * * *", every=60)
        board.bench.client.hset(keys.schedule(f"n{number}"), "every", 0)
    board.add(every=61)
    board.advance_to(61)
    assert [board.runs.run_due(), board.runs.run_due()] == [runs.AT_ONCE, 11] and board.jobs() == [61]
    assert board.runs.run_due() == runs.AT_ONCE, "then those that failed are tried again"


def test_a_clock_that_was_ahead_delays_no_run_once_it_is_right(board: Board) -> None:
    board.add()
    board.add(schedule_id="c2", name="daily", every=0, cron="0 3 * * *")
    daily = board.one_named("daily").next
    board.pass_to(10 * 366 * 86400)
    assert board.one_named("it").next > NOW + 86400 and board.one_named("daily").next > daily
    board.cancel()
    board.pass_to(130)
    assert (board.one_named("it").next, board.one_named("daily").next) == (NOW + 180, daily)
    board.pass_to(180)
    assert 180 in board.jobs() and board.one_named("it").next == NOW + 240


def test_whoever_begins_to_lead_corrects_what_a_wrong_clock_has_set(board: Board) -> None:
    for number in range(3):
        board.add(schedule_id=f"n{number}", name=f"n{number}")
    board.store.schedules.pause("default", "n2")
    board.pass_to(366 * 86400)
    board.cancel()
    board.advance_to(60)
    following = Board(board.bench)
    assert following.runs.run_due() == 0
    assert [board.one_named(f"n{number}").next for number in range(3)] == [NOW + 120, NOW + 120, 0]


def test_a_nightly_run_follows_the_clocks_of_its_zone(board: Board) -> None:
    """Berlin, 2023-11-14 and on: 03:00 is 02:00 UTC."""
    board.add(every=0, cron="0 3 * * *", timezone="Europe/Berlin")
    for day in range(1, 4):
        board.pass_to(day * 86400)
        board.cancel()
    found = [datetime.fromtimestamp(NOW + at, UTC).astimezone(ZoneInfo("Europe/Berlin")) for at in board.jobs()]
    assert [f"{at:%d %H:%M}" for at in found] == ["15 03:00", "16 03:00", "17 03:00"]


WORKFLOW = "name: nightly\nactions:\n  - {action_id: a, action_type: approve}\n"


def workflows(board: Board, tenant: str = "default") -> list[str]:
    return [name for _, name in board.store.workflows.page(tenant, None, 100)]


def test_each_time_is_one_workflow_left_out_while_the_last_one_goes_on(board: Board) -> None:
    board.add(job="", workflow=WORKFLOW)
    board.add(job="", workflow=WORKFLOW, schedule_id="b2", name="other", overlap=True)
    for second in (59, 60, 61, 120, 120):
        board.pass_to(second)
    mine, other = board.store.schedules.of_tenant("default")
    assert (mine.submitted, mine.skipped, other.submitted, other.skipped) == (1, 1, 2, 0)
    assert mine.said == f"skipped: workflow {mine.last_job} of the previous run is still active"
    assert len(set(workflows(board))) == 3 and mine.last_job in workflows(board) and board.jobs() == []
    [stored] = board.store.workflows.read([mine.last_job])
    assert stored and (stored.tenant, stored.token, stored.run, stored.name) == ("default", "t", False, "nightly")
    assert board.store.workflows.settle(stored, "failed", 1000)
    board.pass_to(180)
    assert board.one_named("it").submitted == 2


@pytest.mark.parametrize("broken_call", ["submit_run", "note"])
def test_a_leader_that_dies_is_followed_by_one_that_submits_the_same_workflow(
    board: Board, broken_call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.add(every=10, job="", workflow=WORKFLOW)

    def dies(*_: object) -> Any:
        raise SystemExit

    with monkeypatch.context() as broken:
        broken.setattr(board.runs if broken_call == "submit_run" else board.store.schedules, broken_call, dies)
        with pytest.raises(SystemExit):
            board.pass_to(10)
    before = workflows(board)
    board.pass_to(21)
    row = board.one()
    assert workflows(board) == [row.last_job] and before in ([], [row.last_job])
    assert (row.submitted, row.missed, row.last - NOW) == (1, 0, 10)


def test_a_workflow_that_is_refused_is_told_and_the_schedule_goes_on(board: Board) -> None:
    program = "name: x\nactions:\n  - {action_id: a, action_type: command, command: [date]}\n"
    board.add(job="", workflow=program)
    board.pass_to(60)
    row = board.one()
    assert (row.failed, row.submitted, row.next - NOW) == (1, 0, 120)
    assert row.said.startswith("refused: ") and "scope run" in row.said and workflows(board) == []


def test_the_end_of_a_scheduled_job_is_notified_as_that_of_any(bench: Bench) -> None:
    board = Board(bench, secrets_key="1" * 32)
    board.add(job=json.dumps({**JOB, "notify": "https://example.com/ended"}))
    board.pass_to(60)
    row = board.one()
    assert (row.submitted, row.failed) == (1, 0), row.said
    assert board.store.webhooks.counts("default")["pending"] == 0
    board.cancel()
    [delivery] = board.store.webhooks.listed("default", "pending", 10)
    assert (delivery.job, delivery.type, delivery.url) == (row.last_job, "job.cancelled", "https://example.com/ended")


# -- runs by hand ---------------------------------------------------------------------------------------------------


@pytest.fixture
def at_hand(board: Board, monkeypatch: pytest.MonkeyPatch) -> Board:
    """A board whose calls by hand have its clock, too."""
    clock = board.bench.client
    monkeypatch.setattr(type(board.store.schedules), "now_ms", lambda _: int(clock.get("test:clock")))
    return board


def test_two_calls_at_once_are_one_run_and_the_second_is_told(at_hand: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = at_hand.add(overlap=True)
    refused: list[errors.ClusterError] = []
    original = at_hand.runs.submit_run

    def with_another(schedule: Schedule, run: str) -> Any:
        if not refused:
            at_hand.advance_to(3)
            with pytest.raises(errors.Conflict, match="another run of the schedule is being submitted") as told:
                at_hand.runs.run_now(seen)
            refused.append(told.value)
        return original(schedule, run)

    monkeypatch.setattr(at_hand.runs, "submit_run", with_another)
    made = at_hand.runs.run_now(seen)
    assert refused and made == f"s-a1-{NOW}n" and at_hand.one().submitted == 1 and at_hand.one().last_job == made
    # In the same second it is the same run, later another one.
    at_hand.advance_to(0)
    assert at_hand.runs.run_now(seen) == made and at_hand.one().submitted == 1
    at_hand.advance_to(4)
    assert at_hand.runs.run_now(seen) != made and at_hand.one().submitted == 2


def test_a_run_by_hand_whose_caller_dies_holds_up_nobody_for_long(
    at_hand: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = at_hand.add()
    assert at_hand.store.schedules.claim_by_hand("a1", f"s-a1-{NOW}n", 30_000) == "ok"
    at_hand.advance_to(1)
    with pytest.raises(errors.Conflict):
        at_hand.runs.run_now(seen)
    at_hand.advance_to(31)
    assert at_hand.runs.run_now(seen) == f"s-a1-{NOW + 31}n"


def test_a_refused_run_by_hand_may_be_asked_for_again_at_once(at_hand: Board) -> None:
    seen = at_hand.add(job=json.dumps({"type": "nothing", "parameters": {}}))
    for _ in range(2):
        with pytest.raises(errors.InvalidRequest):
            at_hand.runs.run_now(seen)
    assert (at_hand.one().submitted, at_hand.one().by_hand_until) == (0, 0)


def test_a_run_by_hand_and_one_that_is_due_are_never_both_made(at_hand: Board) -> None:
    seen = at_hand.add()
    at_hand.advance_to(60)
    assert at_hand.store.schedules.claim_by_hand("a1", "s-a1-hand", 30_000) == "ok"
    at_hand.runs.run_due()
    assert at_hand.jobs() == [], "it stays due until the other is noted"
    at_hand.store.schedules.note_by_hand("a1", "s-a1-hand", "")
    at_hand.runs.run_due()
    assert at_hand.jobs() == [60]
    with pytest.raises(errors.Conflict, match="is still active"):
        at_hand.runs.run_now(seen)
    at_hand.cancel()
    at_hand.advance_to(120)
    [due] = at_hand.store.schedules.due(10)[1]
    assert at_hand.store.schedules.claim(due, NOW + 120, NOW + 180, 0)
    with pytest.raises(errors.Conflict, match="a scheduled run is being submitted"):
        at_hand.runs.run_now(seen)
