"""An upgrade while jobs run, in the order of docs/operations.md: coordinators, a new worker, then the old ones.

The next version is a copy of this one with another version and another library of functions, in which the kind `faulty`
has another model.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jobs.store import Store
from tests import packages
from tests.chaos import listener, verdict, work
from tests.chaos.campaign import events_after, last_event
from tests.chaos.customer import Customer
from tests.chaos.listener import Listener
from tests.integration.live import Live, until

SECONDS = 25.0
NEXT = "0.2.0"
#: Begun by the old version and paused while all is replaced.
BEGUN = {"units": 500, "seconds_per_unit": 0.02}


@pytest.fixture
def following(tmp_path: Path) -> Path:
    """A checkout of the next version."""
    copy = tmp_path / "next"
    for name in (*packages.ALL, "tests/kinds"):
        shutil.copytree(packages.TOP / name, copy / name, ignore=packages.ignore_unfinished)
    (copy / "jobs" / "VERSION").write_text(f"{NEXT}\n")
    with (copy / "jobs/store/lua/clock.lua").open("a") as library:
        library.write("-- of the next version\n")
    definition = copy / "tests/kinds/jobs/kinds/faulty/definition.py"
    text, changed = re.subn(
        r"^    model_version = 1$", "    model_version = 2", definition.read_text(), flags=re.MULTILINE
    )
    assert changed == 1
    definition.write_text(text)
    return copy


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    cluster = Live(tmp_path, workers=2, lanes=1, coordinators=2)
    try:
        yield cluster.start()
    finally:
        cluster.stop()


def steady_work() -> list[work.Job]:
    """Jobs of every kind over the time of the upgrade; some are paused and cancelled, but none whose model changes."""
    drawn = work.draw_jobs(Random("upgrade"), "upgrade", SECONDS, split=8, small=60, programs=0)
    return [replace(job, steering=()) if job.kind == "faulty" else job for job in drawn]


def has_version(live: Live, replica: int, version: str) -> bool:
    return bool(live.get("/health", replica)["version"] == version)


def replace_coordinators(live: Live) -> None:
    for number in range(len(live.ports)):
        live.kill(f"coordinator-{number}", signal.SIGTERM)
        live.start_coordinator(number)
        assert has_version(live, number, NEXT)


def start_worker(live: Live, number: int) -> None:
    live.start_worker(number)
    until(lambda: f"worker-{number}" in ready(live), 120)


def ready(live: Live) -> set[str]:
    rows = live.get("/api/workers")["workers"]
    return {row["id"] for row in rows if row["live"] and row["state"] not in ("starting", "stopped")}


def waits_for_version_1(live: Live, job: str) -> bool:
    return "computes version 1 of faulty: the workers have version 2" in (live.job(job)["waiting_because"] or "")


@pytest.mark.timeout(400)
def test_an_upgrade_under_load_loses_no_job_and_changes_no_result(live: Live, following: Path) -> None:
    customer = Customer([live.url(number) for number in range(2)], seed=14)
    since = last_event(live.redis())
    listening = Listener(customer.urls, since, 14)
    users = threading.Thread(target=customer.serve, args=(steady_work(),), daemon=True)
    try:
        began = live.submit("faulty", BEGUN)
        until(lambda: live.job(began)["done"] > 0)
        live.post(f"/api/jobs/{began}/pause")
        listening.start()
        users.start()
        live.top = following
        replace_coordinators(live)
        of_the_next = live.submit("faulty", {"units": 20, "seconds_per_unit": 0.01})
        start_worker(live, 2)
        assert live.result(of_the_next, 120) == {"sum": sum(range(20)), "count": 20}
        for old, new in ((0, 3), (1, 4)):
            live.kill(f"worker-{old}", signal.SIGTERM)
            start_worker(live, new)
        users.join()
        live.post(f"/api/jobs/{began}/resume")
        until(lambda: waits_for_version_1(live, began), 60)
        with an_old_worker(live):
            units = int(BEGUN["units"])
            assert live.result(began, 90) == {"sum": sum(range(units)), "count": units}
            assert customer.settle(120, lambda order: False) == []
        assert set(live.job(began)["usage"]["workers"]) <= {"worker-0", "worker-1", "worker-5"}
        customer.collect()
        assert verdict.wrong_results(customer.orders) == []
        listening.catch_up(last_event(live.redis()))
    finally:
        listening.end()
        customer.close()
    written = events_after(live.redis(), since)
    assert listener.problems(listening.ids, written, log_was_cut=False) == []
    assert len(Store(live.redis()).libraries.names()) == 2, "the library of each version is there"
    assert_at_rest(live, {began, of_the_next, *(job for order in customer.orders for job in order.ids)})


@contextlib.contextmanager
def an_old_worker(live: Live) -> Iterator[None]:
    """A worker of the version before: what that began, only that ends."""
    new, live.top = live.top, packages.TOP
    start_worker(live, 5)
    live.top = new
    yield
    live.kill("worker-5", signal.SIGTERM)


def assert_at_rest(live: Live, jobs: set[str]) -> None:
    def left() -> list[str]:
        return verdict.left_over(verdict.look(live.redis()), jobs, workers=3)

    with contextlib.suppress(AssertionError):
        until(lambda: not left(), 60)
    assert left() == []
    until(lambda: ready(live) == {"worker-2", "worker-3", "worker-4"})
    assert verdict.tracebacks(live.folder) == []


def test_the_order_of_the_test_is_that_of_the_documentation() -> None:
    text: Any = (packages.TOP / "docs" / "operations.md").read_text()
    chapter = text.partition("\n## Upgrade\n")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d\. (\w+)", chapter, re.MULTILINE)
    assert steps[:4] == ["Redis", "Coordinators", "Start", "Stop"]
