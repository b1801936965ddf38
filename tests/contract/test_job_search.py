"""Tests lists of jobs: filters, counts, stable pages, and an index that follows Redis."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from coordinator.jobs import scheduler
from coordinator.jobs.index import Filter, JobIndex
from coordinator.jobs.queries import JobQueries
from jobs.store import Store, keys
from jobs.store.work.job_reads import JobReads
from tests.contract.lease_model import new_job


class NoFleet:
    """A cluster without live workers."""

    def get(self) -> scheduler.Fleet:
        return scheduler.Fleet()


class Jobs:
    """Submits jobs, and lists them as a coordinator does."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.queries = JobQueries(store, NoFleet())  # type: ignore[arg-type]
        self._numbers = count(1)

    def submit(self, kind: str = "sum", parameters: dict[str, Any] | None = None, **fields: Any) -> str:
        job = new_job(f"{next(self._numbers):03x}{'0' * 13}", 10, "any.normal", kind=kind)
        job = replace(job, plan=replace(job.plan, parameters=parameters or {}), **fields)
        assert self.store.jobs.submit([job]) == [("new", job.job_id)]
        return job.job_id

    def find(self, **conditions: Any) -> list[str]:
        return [job["job_id"] for job in self.queries.page(Filter(**conditions), None, 100)["jobs"]]

    def page(self, cursor: str | None, limit: int, **conditions: Any) -> tuple[list[str], str | None]:
        page = self.queries.page(Filter(**conditions), None if cursor is None else int(cursor), limit)
        return [job["job_id"] for job in page["jobs"]], page["cursor"]

    def counts(self, **conditions: Any) -> tuple[int, int]:
        page = self.queries.page(Filter(**conditions), None, 1)
        return page["matching"], page["total"]


@pytest.fixture
def jobs(store: Store) -> Jobs:
    return Jobs(store)


def test_each_condition_selects_jobs(jobs: Jobs) -> None:
    first = jobs.submit(name="Nightly sums", tags=("nightly", "V1"))
    second = jobs.submit("collatz", {"mode": "verify", "start_number": 1, "number_count": 2**40}, tenant="vision")
    third = jobs.submit(tags=("nightly",))
    jobs.store.jobs.cancel(third)
    assert jobs.find() == [third, second, first]
    assert jobs.find(states=frozenset({"queued"})) == [second, first]
    assert jobs.find(states=frozenset({"cancelled", "queued"})) == [third, second, first]
    assert jobs.find(kind="collatz") == [second]
    assert jobs.find(tags=frozenset({"nightly"})) == [third, first]
    assert jobs.find(tags=frozenset({"nightly", "v1"})) == [first]
    assert jobs.find(tenant="vision") == jobs.find(visible_to="vision") == [second]
    assert jobs.find(tenant="vision", visible_to="default") == []


def test_words_search_titles_kinds_tags_and_beginnings_of_ids(jobs: Jobs) -> None:
    named = jobs.submit(name="Nightly SUMS", tags=("dataset=v2",))
    titled = jobs.submit("collatz", {"mode": "verify", "start_number": 1, "number_count": 2**40})
    assert jobs.find(words=("sums", "night")) == [named]
    assert jobs.find(words=("DATASET=V2",)) == [named]
    assert jobs.find(words=("verification",)) == jobs.find(words=("collatz",)) == [titled]
    assert jobs.find(words=(titled[:6],)) == [titled]
    assert jobs.find(words=(titled[1:6] + "x",)) == []


def test_times_select_jobs_from_since_until_before_until(jobs: Jobs) -> None:
    early, late = jobs.submit(), jobs.submit()
    jobs.store.client.hset(keys.job(early), "created", 1000)
    jobs.store.client.hset(keys.job(late), "created", 2000)
    assert jobs.find(since_ms=2000) == [late]
    assert jobs.find(until_ms=2000) == [early]
    assert jobs.find(since_ms=1000, until_ms=2001) == [late, early]


def test_pages_state_how_many_jobs_match(jobs: Jobs) -> None:
    for number in range(7):
        jobs.submit(tags=("odd",) if number % 2 else (), tenant="b" if number == 6 else "default")
    assert jobs.counts() == (7, 7)
    assert jobs.counts(tags=frozenset({"odd"})) == (3, 7)
    assert jobs.counts(tags=frozenset({"odd"}), visible_to="default") == (3, 6)


def test_pages_stay_the_same_while_jobs_arrive(jobs: Jobs) -> None:
    old = [jobs.submit() for _ in range(5)][::-1]
    page, cursor = jobs.page(None, 2)
    newer = jobs.submit()
    following, cursor = jobs.page(cursor, 2)
    last, end = jobs.page(cursor, 2)
    assert (page, following, last, end) == (old[:2], old[2:4], old[4:], None)
    assert jobs.page(None, 1)[0] == [newer]


def test_deleted_jobs_are_forgotten_and_their_ids_can_return(jobs: Jobs) -> None:
    first, second = jobs.submit(name="one"), jobs.submit()
    assert jobs.find() == [second, first]
    jobs.store.jobs.cancel(first)
    jobs.store.jobs.delete(first)
    assert (jobs.find(), jobs.counts()) == ([second], (1, 1))
    jobs._numbers = count(1)
    assert jobs.submit(name="again") == first
    assert jobs.find(words=("again",)) == [first] and jobs.find() == [first, second]


def test_a_list_survives_the_loss_of_the_newest_jobs(jobs: Jobs) -> None:
    kept, lost = jobs.submit(), jobs.submit()
    assert jobs.find() == [lost, kept]
    jobs.store.client.delete(keys.job(lost))
    jobs.store.client.zrem(keys.JOBS, lost)
    jobs.store.client.set(keys.SEQUENCE, 1)
    other = jobs.submit()
    assert jobs.find() == [other, kept]


def test_unreadable_jobs_do_not_hide_others(jobs: Jobs) -> None:
    first, second = jobs.submit(), jobs.submit()
    jobs.store.client.hset(keys.job(second), "tags", "[")
    third, fourth = jobs.submit(), jobs.submit()
    jobs.store.client.zadd(keys.JOBS, {fourth: "inf"})
    assert jobs.find() == [third, first] and jobs.counts() == (2, 2)


def test_replicas_of_services_do_not_count_as_jobs(jobs: Jobs) -> None:
    """Only a list of the kind `service` includes replicas."""
    job, replica = jobs.submit(), jobs.submit("service", {"service": "chat"})
    assert jobs.find() == [job] and jobs.counts() == (1, 1)
    assert jobs.queries.counts()["queued"] == 1
    assert jobs.find(kind="service") == [replica]


def test_counts_of_a_tenant_contain_only_its_jobs(jobs: Jobs) -> None:
    jobs.submit(tenant="a")
    jobs.store.jobs.cancel(jobs.submit(tenant="a"))
    jobs.submit(tenant="b")
    counts = jobs.queries.counts("a")
    assert (counts["queued"], counts["cancelled"], sum(counts.values())) == (1, 1, 2)
    assert sum(jobs.queries.counts().values()) == 3


def test_a_submission_writes_nothing_for_the_index(jobs: Jobs) -> None:
    """The index costs submissions nothing: a job without a name and tags has the same keys and fields as before."""
    plain = jobs.submit()
    assert not {b"name", b"tags", b"title"} & set(jobs.store.client.hkeys(keys.job(plain)))


def test_a_prepared_index_reads_no_job_during_a_search(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    first, deleted = jobs.submit(name="Nightly sums"), jobs.submit()
    index = JobIndex(jobs.store.job_reads)
    assert index.prepare() > 0
    monkeypatch.setattr(JobReads, "fields", None)
    assert [entry.job_id for entry in index.find(Filter(words=("sums",))).entries] == [first]
    jobs.store.jobs.cancel(deleted)
    jobs.store.jobs.delete(deleted)
    assert [entry.job_id for entry in index.find(Filter()).entries] == [first]
