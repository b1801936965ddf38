"""Tests dependent jobs as in docs/lease-protocol.md: blocked, continued, skipped and restored ones."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.store import keys
from jobs.store.tenancy.tenants import Tenant
from jobs.store.work.jobs import CapReached
from tests.contract.lease_invariants import check
from tests.contract.lease_model import LONG, Bench, new_job


def states(bench: Bench, *jobs: str) -> list[str]:
    seen = bench.look()
    check(bench, seen)
    return [seen.jobs[job].state for job in jobs]


def fail(bench: Bench, job: str) -> None:
    """Give up the job's only unit."""
    while bench.job(job).state != "failed":
        assert bench.hold("w") == job
        bench.fail(bench.grant(job).token)
        bench.advance(LONG)
        bench.sweep()


# -- one after another ----------------------------------------------------------------------------------------------


def test_a_job_starts_in_the_step_that_ends_the_last_one_before_it(bench: Bench) -> None:
    first, second = bench.submit(1, small=True), bench.submit(1)
    after = bench.submit(1, after=(first, second))
    assert states(bench, after) == ["blocked"]
    bench.work()
    assert states(bench, first, second, after) == ["done"] * 3
    assert bench.jobs[after].states == ["blocked", "queued", "running", "finishing", "done"]
    assert not bench.client.keys("ct:job:*:children") and not bench.client.exists("ct:waking")


def test_a_job_after_jobs_that_are_done_is_an_ordinary_one(bench: Bench) -> None:
    first = bench.submit(1, small=True)
    bench.work()
    after = bench.submit(1, after=(first,), after_any=(first,))
    assert states(bench, after) == ["queued"] and "relations" not in bench.job(after).fields


def test_one_that_needs_an_end_goes_on_after_any(bench: Bench) -> None:
    failed, cancelled = bench.submit(1), bench.submit(1, queue="cpu.low")
    after = bench.submit(1, after_any=(failed, cancelled))
    needs_both = bench.submit(1, after=(cancelled,), after_any=(failed,))
    fail(bench, failed)
    assert states(bench, after, needs_both) == ["blocked"] * 2
    bench.store.jobs.cancel(cancelled)
    bench.wake()
    assert states(bench, after, needs_both) == ["queued", "skipped"]


def test_a_chain_is_skipped_to_its_end_and_comes_back_whole(bench: Bench) -> None:
    root = bench.submit(1)
    chain = [root]
    for _ in range(20):
        chain.append(bench.submit(1, after=(chain[-1],)))
    fail(bench, root)
    bench.wake()
    assert states(bench, *chain[1:]) == ["skipped"] * 20
    assert {bench.job(job).fields["root"] for job in chain[1:]} == {root}
    assert bench.job(chain[-1]).fields["error"] == f"job {root}, on which it depends, failed"
    assert bench.store.jobs.retry(chain[7], 1) == ["skipped", root, "failed"]
    bench.store.jobs.retry(root, 1)
    bench.wake()
    assert states(bench, *chain[1:]) == ["blocked"] * 20
    bench.work()
    assert states(bench, *chain) == ["done"] * 21


def test_of_two_that_failed_both_must_be_tried_again(bench: Bench) -> None:
    roots = [bench.submit(1), bench.submit(1)]
    after = bench.submit(1, after=tuple(roots))
    for root in roots:
        bench.store.jobs.cancel(root)
    bench.wake()
    assert states(bench, after) == ["skipped"]
    first = bench.job(after).fields["root"]
    bench.store.jobs.retry(first, 1)
    bench.wake()
    [other] = set(roots) - {first}
    assert states(bench, after) == ["skipped"] and bench.job(after).fields["root"] == other
    bench.store.jobs.retry(other, 1)
    bench.work_through()
    assert states(bench, after) == ["done"]


def test_a_root_that_fails_again_before_anybody_was_told_leaves_nobody_waiting(bench: Bench) -> None:
    """A job submitted between retry and second end waits for one that is skipped, and must hear that it stays so."""
    root = bench.submit(1)
    skipped = bench.submit(1, after=(root,))
    bench.store.jobs.cancel(root)
    bench.wake()
    bench.store.jobs.retry(root, 1)
    between = bench.submit(1, after=(skipped,))
    assert states(bench, skipped, between) == ["skipped", "blocked"]
    bench.store.jobs.cancel(root)
    bench.wake()
    assert states(bench, skipped, between) == ["skipped", "skipped"]


def test_a_skipped_job_comes_back_by_itself_once_its_root_is_tried_again(bench: Bench) -> None:
    root = bench.submit(1)
    after = bench.submit(1, after=(root,))
    bench.store.jobs.cancel(root)
    bench.wake()
    bench.store.jobs.retry(root, 1)
    assert bench.store.jobs.retry(after, 1) == ["ok", "blocked"]
    assert states(bench, after) == ["blocked"]


def test_a_blocked_job_that_was_cancelled_waits_again_after_retry(bench: Bench) -> None:
    first = bench.submit(1)
    after = bench.submit(1, after=(first,))
    last = bench.submit(1, after=(after,))
    assert bench.store.jobs.cancel(after) == ["ok", "cancelled"]
    bench.wake()
    assert states(bench, after, last) == ["cancelled", "skipped"]
    assert bench.store.jobs.retry(after, 1) == ["ok", "blocked"]
    bench.work_through()
    assert states(bench, first, after, last) == ["done"] * 3


# -- who is not there -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["after", "after_any"])
def test_a_job_after_one_that_is_gone_or_anothers_is_refused(bench: Bench, field: str) -> None:
    bench.store.tenants.put(Tenant(name="a"))
    others = bench.submit(1, tenant="a")
    for parent in ("never-was", others):
        before = bench.look().settled()
        parents: dict[str, Any] = {field: (parent,)}
        refused = new_job(bench.new_id(), 1, "any.normal", **parents)
        assert bench.store.jobs.submit([refused]) == [(field, parent)]
        assert bench.look().settled() == before


def test_who_is_waited_for_is_neither_deleted_nor_expires(bench: Bench) -> None:
    done, slow = bench.submit(1, ttl_seconds=1), bench.submit(1, queue="gpu.low", ttl_seconds=10**6)
    bench.hold("w", ["any.normal"])
    bench.serve(done, "w")
    after = bench.submit(1, after=(done, slow))
    bench.advance(10_000)
    bench.sweep()
    assert states(bench, done, after) == ["done", "blocked"]
    assert bench.store.jobs.delete(done) == ["waited", "1"]
    assert bench.store.jobs.delete(after) == ["ok", "cancelled"]
    bench.advance(60_000)
    bench.sweep()
    assert done not in bench.look().jobs, "it expires once nobody waits for it"


def test_a_root_that_is_deleted_cannot_be_tried_again(bench: Bench) -> None:
    root = bench.submit(1)
    after = bench.submit(1, after=(root,))
    bench.store.jobs.cancel(root)
    assert bench.store.jobs.delete(root) == ["waited", "1"], "until its children have heard"
    bench.wake()
    assert bench.store.jobs.delete(root) == ["ok", "cancelled"]
    assert bench.store.jobs.retry(after, 1) == ["skipped", root, "gone"]
    assert states(bench, after) == ["skipped"]


# -- tenants and limits ---------------------------------------------------------------------------------------------


def test_max_jobs_applies_when_a_job_is_ready_and_loses_none(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a", max_jobs=1))
    root = bench.submit(1, tenant="a")
    children = [bench.submit(1, tenant="a", after=(root,)) for _ in range(5)]
    bench.hold("w")
    bench.serve(root, "w")
    assert states(bench, *children) == ["queued"] * 5
    assert sum(bench.job(child).number("backlog") for child in children) == 4
    bench.work_through()
    assert states(bench, *children) == ["done"] * 5


def test_blocked_jobs_count_against_max_queued(bench: Bench) -> None:
    root = bench.submit(1)
    new = [new_job(bench.new_id(), 1, "any.normal", after=(root,)) for _ in range(4)]
    answers = bench.store.jobs.submit(new, most_queued=3)
    assert [isinstance(answer, CapReached) for answer in answers] == [False, False, True, True]


def test_a_tenant_whose_jobs_are_all_blocked_is_not_below_its_part(bench: Bench) -> None:
    bench.store.tenants.put(Tenant(name="a"))
    root = bench.submit(1, tenant="a")
    new = [new_job(bench.new_id(), 1, "any.normal", after=(root,), tenant="a") for _ in range(9)]
    answers = bench.store.jobs.submit(new, most_queued=6)
    assert sum(isinstance(answer, CapReached) for answer in answers) == 4


def test_blocked_jobs_of_a_flood_keep_nobody_else_out_before_or_after_their_release(bench: Bench) -> None:
    for name in "ab":
        bench.store.tenants.put(Tenant(name=name))
    root = bench.submit(1, tenant="a")
    flood = [new_job(bench.new_id(), 1, "any.normal", after=(root,), tenant="a") for _ in range(20)]
    taken = [answer for answer in bench.store.jobs.submit(flood, most_queued=6) if not isinstance(answer, CapReached)]
    assert len(taken) == 5

    def others(count: int) -> list[bool]:
        new = [new_job(bench.new_id(), 1, "any.normal", tenant="b") for _ in range(count)]
        return [isinstance(answer, CapReached) for answer in bench.store.jobs.submit(new, most_queued=6)]

    assert others(1) == [False]
    bench.hold("w")
    bench.serve(root, "w")
    bench.wake()
    assert others(2) == [False, True], "a third of them is its part, with the default tenant"


def test_a_parent_that_cannot_be_read_skips_its_children(bench: Bench) -> None:
    root = bench.submit(1)
    after = bench.submit(1, after=(root,))
    bench.client.hset(keys.job(root), "total", "many")
    assert bench.next("w") == "none"
    bench.wake()
    assert bench.job(after).state == "skipped" and bench.job(after).fields["root"] == root


# -- many -----------------------------------------------------------------------------------------------------------


def test_many_children_are_released_a_bounded_number_at_once(bench: Bench) -> None:
    root = bench.submit(1)
    new = [new_job(bench.new_id(), 1, "any.normal", after=(root,)) for _ in range(300)]
    answers: Any = bench.store.jobs.submit(new)
    assert {how for how, _ in answers} == {"new"}
    bench.hold("w", ["any.normal"])
    bench.serve(root, "w")
    assert bench.client.zcard(keys.in_state("queued")) == 64, "in the step that ends it"
    told = [64]
    while (woken := bench.store.fleet.wake()).notified or woken.more:
        told.append(woken.notified)
    assert sum(told) == 300 and max(told) == 64
    assert bench.client.zcard(keys.in_state("queued")) == 300


def test_jobs_without_ties_cost_no_command_more(bench: Bench) -> None:
    """The commands of a job's whole life, by Redis' own count, are those of an ordinary one."""

    def commands() -> dict[str, int]:
        stats = bench.client.info("commandstats")
        return {name: entry["calls"] for name, entry in stats.items() if name != "cmdstat_info"}

    def life() -> dict[str, int]:
        before = commands()
        bench.submit(1, small=True)
        bench.work()
        after = commands()
        return {name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name, 0)}

    life()
    counted = life()
    assert sum(counted.values()) <= COMMANDS, counted


#: Of a small job from its submission to its result, bells and turns of the worker included.
COMMANDS = 70
