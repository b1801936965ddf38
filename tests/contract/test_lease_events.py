"""Tests a job's own events: about a thousand while it runs, and a few main events at its end."""

from __future__ import annotations

from itertools import pairwise

import pytest

from jobs.store import keys
from tests.contract.lease_model import Bench


def story(bench: Bench, job: str) -> list[tuple[str, dict[str, str]]]:
    bench.last_event = "0-0"
    return bench.look().stream(keys.job_events(job))


def _long(bench: Bench, units: int, pauses: int = 0) -> str:
    """Return a job with one event per unit; all units but the last are committed."""
    job = bench.submit(units + 1)
    bench.hold("w")
    for number in range(units):
        bench.commit(bench.grant(job).token)
        bench.advance(300)
        if number < pauses:
            bench.store.jobs.pause(job)
            bench.store.jobs.resume(job)
            bench.hold("w")
    return job


def test_the_end_of_a_job_leaves_its_states_and_some_of_its_progress(bench: Bench) -> None:
    job = _long(bench, 400, pauses=3)
    before = story(bench, job)
    bench.commit(bench.grant(job).token)
    while bench.fold(job):
        pass
    assert bench.finish(job)
    after = story(bench, job)
    assert len(before) > 400 and len(after) <= 32
    states = [fields["type"] for _, fields in after if fields["type"] != "progress"]
    assert states == ["running", *["paused", "running"] * 3, "finishing", "done"]
    steps = [int(fields["done"]) for _, fields in after if fields["type"] == "progress"]
    assert len(steps) == 16 and max(right - left for left, right in pairwise(steps)) < 40
    fleet = dict(bench.look().stream("ct:events"))
    assert all(fleet[place] == fields for place, fields in after), "ids and contents are those of the fleet's events"


def test_a_job_that_runs_on_keeps_its_whole_story_in_a_thousand_events(bench: Bench) -> None:
    job = _long(bench, 1400, pauses=1)
    found = [fields for _, fields in story(bench, job)]
    assert 500 < len(found) <= 1000
    assert [fields["type"] for fields in found if fields["type"] != "progress"] == ["running", "paused", "running"]
    assert int(found[3]["done"]) < 20 and found[-1]["done"] == "1400"


@pytest.mark.parametrize("end", ["cancelled", "failed"])
def test_a_retried_job_goes_on_with_its_story(bench: Bench, end: str) -> None:
    job = _long(bench, 100)
    if end == "failed":
        for _ in range(2):
            bench.fail(bench.grant(job).token)
            bench.advance(1000)
    else:
        bench.store.jobs.cancel(job)
    assert bench.job(job).state == end and len(story(bench, job)) <= 32
    bench.store.jobs.retry(job, 1)
    bench.work()
    found = story(bench, job)
    assert found[-1][1]["type"] == "done" and [place for place, _ in found] == sorted(
        (place for place, _ in found), key=lambda place: tuple(map(int, place.split("-")))
    )


def test_a_delete_is_told_and_leaves_nothing(bench: Bench) -> None:
    job = bench.submit(1)
    assert bench.store.jobs.cancel(job) == ["ok", "cancelled"] and bench.store.jobs.delete(job) == ["ok", "cancelled"]
    told = [fields for _, fields in bench.look().stream("ct:events") if fields.get("job") == job]
    assert [fields["type"] for fields in told] == ["queued", "cancelled", "deleted"]
    assert told[-1]["tenant"] == "default" and not bench.client.keys(f"ct:job:{job}*")


def test_failed_units_add_events_but_not_more_often_than_progress(bench: Bench) -> None:
    job = bench.submit(4)
    bench.hold("w")
    bench.advance(300)
    for _ in range(2):
        bench.fail_unit(bench.grant(job).token, most=0)
    found = [fields["type"] for _, fields in story(bench, job)]
    assert found == ["running", "progress"]
