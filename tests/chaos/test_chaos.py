"""A short campaign with one seed per family of faults, and tests that the campaign's checks detect problems."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from jobs.store import Store
from jobs.store.work import wakeups
from tests.chaos import campaign, faults, listener, plan, verdict, work
from tests.chaos.bench import MARK, Bench, another_clock, faketime
from tests.chaos.campaign import Tally
from tests.chaos.customer import Order, lost_with_the_log
from tests.contract.lease_model import new_job
from tests.integration import proxy
from tests.integration.live import until
from tests.redis_servers import VERSIONS, require_server, server_of

IN_CI = os.environ.get("CI") == "true"
#: One seed per family, chosen so that both versions of Redis are used.
SEEDS = {"kill": 4, "network": 5, "exhaust": 9}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("family", sorted(SEEDS))
def test_a_round_of_faults_changes_no_result_and_leaves_nothing(family: str) -> None:
    one, tally = plan.make(SEEDS[family], [family]), Tally()
    require_server(one.version)
    found = list(campaign.run(one, tally))
    print(*tally.lines(), sep="\n")
    again = f"play it again: make chaos SEED={one.seed} FAULTS={family} ROUNDS=1"
    assert not found, "\n".join([*found, *one.lines(), again])
    assert sum(tally.struck.values()) + sum(tally.skipped.values()) == plan.FAULTS_A_ROUND
    assert not (IN_CI and any("not installed" in why for why in tally.skipped)), tally.skipped


# -- the plan -------------------------------------------------------------------------------------------------------


def test_a_plan_is_made_of_its_seed_alone() -> None:
    command = [sys.executable, "-m", "tests.chaos", "--plan", "--seed", "7"]
    elsewhere = subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout  # in a process with other string hashes
    assert elsewhere == "\n".join(plan.make(7, rounds=3).lines()) + "\n"
    assert plan.make(7, rounds=1).rounds == plan.make(7, rounds=3).rounds[:1], "more rounds change the first"


def test_twenty_seeds_hold_every_kind_of_fault_and_more_than_three_hundred() -> None:
    struck = [fault.kind for seed in range(1, 24) for one in plan.make(seed, rounds=3).rounds for fault in one.faults]
    assert set(struck) == set(faults.STRIKES) == {kind for family in plan.FAMILIES.values() for kind in family}
    assert len(struck) >= 300


# -- the judges notice ----------------------------------------------------------------------------------------------


def done(kind: str, parameters: dict[str, Any], result: Any) -> Order:
    order = Order(work.Job(key="k", kind=kind, parameters=parameters, priority="normal", at=0.0))
    order.state, order.result = "done", result
    return order


def test_a_result_that_is_off_by_one_is_noticed() -> None:
    parameters = {"start_number": 27, "number_count": 1}
    right = work.undisturbed("collatz", parameters)
    assert verdict.wrong_results([done("collatz", parameters, right)]) == []
    wrong = {**right, "delay": {**right["delay"], "sum": right["delay"]["sum"] + 1}}
    assert verdict.wrong_results([done("collatz", parameters, wrong)])
    assert verdict.wrong_results([done("collatz", parameters, {**right, "count": float(right["count"])})]), (
        "1.0 is not 1"
    )


@pytest.fixture
def quiet(any_redis_url: str) -> Iterator[redis.Redis]:
    """Return a Redis server after one job of ten units has finished."""
    with redis.Redis.from_url(any_redis_url) as client:
        one_job(client)
        yield client


def one_job(client: redis.Redis) -> None:
    wakeups.create_wakeup_job(Store(client))
    store = Store(client)
    store.jobs.submit([new_job("j0", 10, "any.normal")])
    store.slots.next("w", ["any.normal"])
    store.leases.lease("j0", "token", want=10, worker="w")
    store.leases.commit("j0", "token", 10, b'{"sum":45}', ms=1, worker="w", device="cpu")
    store.results.fold("j0", store.results.gather("j0"), b'{"sum":45}')
    assert store.results.finish("j0", store.results.gather("j0"), b'{"sum":45}')
    store.slots.next("w", ["any.normal"])


def left(client: redis.Redis) -> list[str]:
    return verdict.left_over(verdict.look(client), {"j0"}, 0)


def test_a_cluster_at_rest_has_nothing_left(quiet: redis.Redis) -> None:
    assert left(quiet) == []


def forgotten_lease(client: redis.Redis) -> None:
    store = Store(client)
    store.jobs.submit([new_job("j1", 10, "any.normal")])
    store.leases.lease("j1", "token", want=5, worker="w")


DISORDER: dict[str, Callable[[redis.Redis], Any]] = {
    "a lease": forgotten_lease,
    "a lease of a job that is done": lambda client: client.hset("ct:job:j0:lease", "token", "0:5:0:0:0:1:w"),
    "a part": lambda client: client.rpush("ct:job:j0:parts", b'{"sum":1}'),
    "a slot": lambda client: (client.zadd("ct:slots", {"w": 1}), client.hset("ct:slotjob", "w", "j0|1")),
    "a key of a job that is gone": lambda client: client.set("ct:job:other:acc", "{}"),
    "a key of nobody": lambda client: client.set("ct:whatever", "1"),
    "a bell": lambda client: client.rpush("rq:queue:any.normal", "bell-77"),
    "load": lambda client: client.hset("ct:load", "any.normal", 5),
    "a place in later": lambda client: client.zadd("ct:recheck", {"j0": 1}),
    "a worker": lambda client: client.zadd("ct:workers", {"w": 1}),
}


@pytest.mark.parametrize("what", DISORDER)
def test_what_is_left_over_is_noticed(quiet: redis.Redis, what: str) -> None:
    DISORDER[what](quiet)
    assert left(quiet)


def test_a_job_that_nobody_looks_at_is_noticed_while_all_goes_on(quiet: redis.Redis) -> None:
    Store(quiet).jobs.submit([new_job("j1", 10, "any.normal")])
    assert verdict.breaches(verdict.look(quiet)) == []
    quiet.zrem("ct:pending:any.normal", "j1")
    assert verdict.breaches(verdict.look(quiet))


def test_units_handed_out_twice_are_noticed_while_all_goes_on(quiet: redis.Redis) -> None:
    store = Store(quiet)
    store.jobs.submit([new_job("j1", 10, "any.normal")])
    store.slots.next("w", ["any.normal"])
    store.leases.lease("j1", "token", want=5, worker="w")
    assert verdict.breaches(verdict.look(quiet)) == []
    quiet.rpush("ct:job:j1:free", "3:5:0:0")
    assert verdict.breaches(verdict.look(quiet))


def test_events_that_are_missing_doubled_or_late_are_noticed() -> None:
    written = {"1-0": "queued", "2-0": "progress", "3-0": "done"}
    assert listener.problems(["1-0", "3-0"], written, False) == [], "progress is merged"
    assert listener.problems(["1-0"], written, False)
    assert listener.problems(["1-0", "1-0", "3-0"], written, False)
    assert listener.problems(["1-0", "3-0", "2-0"], written, False)
    assert listener.problems(["1-0", "3-0", "4-0"], written, False)
    assert listener.problems(["1-0", "3-0", "4-0"], written, True) == [], "a log that was cut forgets events"
    assert listener.problems(["3-0"], written, True, [0]) == [], "it began anew after the first"
    assert listener.problems(["3-0"], written, False, [0])
    assert listener.problems(["1-0"], {"0-1": "queued", **written}, True, [1]), "what came before was to be heard"


def test_a_traceback_is_noticed_in_plain_and_in_json(tmp_path: Path) -> None:
    (tmp_path / "good.log").write_text('{"message": "ready"}\n{"message": "no beat: redis cannot be reached"}\n')
    assert verdict.tracebacks(tmp_path) == []
    (tmp_path / "plain.log").write_text('Traceback (most recent call last):\n  File "x"\nValueError: no\nmore\n')
    (tmp_path / "json.log").write_text('{"exception": "Traceback (most recent call last):\\nKeyError: 1"}\n' * 2)
    assert verdict.tracebacks(tmp_path) == ["json.log: KeyError: N (2 times)", "plain.log: ValueError: no (1 times)"]


def test_a_process_without_its_parent_is_noticed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, version=next(filter(server_of, VERSIONS)), workers=0)
    assert verdict.strays(bench) == []
    with subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: bench.mark}) as process:
        try:
            assert until(lambda: verdict.strays(bench)), "once it runs the program that it was started for"
        finally:
            process.kill()


def test_only_what_was_acknowledged_just_before_a_death_may_be_lost() -> None:
    may_be_lost = lost_with_the_log([(100.0, 0.5)])
    order = done("faulty", {"units": 1}, None)
    for at, expected in ((99.8, True), (90.0, False), (105.0, False)):
        order.acknowledged = at
        assert may_be_lost(order) is expected


# -- the tools ------------------------------------------------------------------------------------------------------


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Bench]:
    """Return a bench with only its proxy and Redis."""
    bench = Bench(tmp_path, version=next(filter(server_of, VERSIONS)), workers=0)
    bench.sampler.start()
    bench.proxy.start()
    bench.start_redis()
    yield bench
    bench.stop()


@contextmanager
def through(bench: Bench, patience: float = 0.3) -> Iterator[redis.Redis]:
    """Return a client behind the proxy with a timeout of some seconds and no retries."""
    with redis.Redis(port=bench.proxy.port, socket_timeout=patience, retry=Retry(NoBackoff(), 0)) as client:
        yield client


def test_a_cut_log_loses_the_last_writes_and_no_others(bare: Bench) -> None:
    bare.redis().set("early", 1)
    written(bare)
    seen = until(lambda: seen_whole(bare))
    time.sleep(1.5)  # maximum time that the machine may pause between two readings of the clock
    bare.redis().set("late", 1)
    written(bare)
    assert bare.cut_log(time.monotonic() - seen) > 0
    bare.start_redis()
    assert bare.redis().get("early") == b"1"
    assert bare.redis().get("late") is None


def written(bench: Bench) -> None:
    """Wait until the log contains all writes. With a slow disk, Redis holds writes back for up to two seconds."""
    until(lambda: bench.redis().info("persistence")["aof_buffer_length"] == 0)


def seen_whole(bench: Bench) -> float | None:
    """Return the time of the last measurement if it covers the whole log, or None."""
    path, sizes = bench.log_file(), list(bench.sampled_sizes)
    return sizes[-1][0] if path and sizes and sizes[-1][2] == path.stat().st_size else None


def test_a_full_disk_refuses_writes_until_there_is_room(bare: Bench) -> None:
    bare.limit_files(1000)
    until(lambda: not takes_writes(bare))
    bare.limit_files(None)
    until(lambda: takes_writes(bare))


def takes_writes(bench: Bench) -> bool:
    try:
        return bool(bench.redis().append("k", "x" * 100))
    except redis.exceptions.ResponseError:
        return False


@pytest.mark.parametrize("mode", ["stall", "half-open", "lost-replies"])
def test_a_silent_network_answers_nothing_and_then_what_it_should(bare: Bench, mode: str) -> None:
    bare.redis().set("a", 1)
    with through(bare) as client:
        until(client.ping)
        bare.proxy.disturb(mode)
        with pytest.raises(redis.exceptions.TimeoutError):
            client.incr("a")
        bare.proxy.heal()
        assert until(client.ping)
    expected = {"lost-replies": (b"2",), "half-open": (b"1",)}.get(mode, (b"1", b"2"))
    until(lambda: bare.redis().get("a") in expected)


def test_a_cut_network_refuses_until_it_is_healed(bare: Bench) -> None:
    with through(bare, 60) as client:
        client.ping()
        bare.proxy.disturb("cut")
        with pytest.raises(redis.exceptions.ConnectionError):
            client.ping()
        bare.proxy.heal()
        assert client.ping()


def test_a_delay_delays(bare: Bench) -> None:
    with through(bare, 60) as client:
        client.ping()
        bare.proxy.disturb("delay", 0.5)
        began = time.monotonic()
        client.ping()
    assert time.monotonic() - began > 0.5


def test_calls_that_end_leases_are_said_again_and_change_nothing(bare: Bench) -> None:
    with through(bare, 60) as client:
        wakeups.create_wakeup_job(Store(client))
        store = Store(client)
        store.jobs.submit([new_job("j0", 10, "any.normal")])
        store.leases.lease("j0", "token", want=5, worker="w")
        commit = partial(store.leases.commit, "j0", upto=5, partial=b"{}", ms=1, worker="w", device="cpu")
        assert not commit(token="stale").merged, "Redis knows the script from here on"
        bare.proxy.disturb("repeat", 0.0)
        assert commit(token="token").merged
    until(lambda: bare.redis().hget("ct:outcomes", "stale") == b"2")
    assert bare.redis().llen("ct:job:j0:parts") == 1


def test_commands_are_cut_apart_wherever_the_pieces_end() -> None:
    whole = b"*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n*1\r\n$4\r\nPING\r\n"
    for at in range(len(whole)):
        buffer, found = bytearray(), []
        for piece in (whole[:at], whole[at:]):
            buffer += piece
            found += list(proxy.commands(buffer))
        assert found == [b"*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n", b"*1\r\n$4\r\nPING\r\n"]


def test_a_process_can_be_given_another_clock_and_sleeps_as_before() -> None:
    if faketime() is None:
        (pytest.fail if IN_CI else pytest.skip)("libfaketime is not installed: apt-get install libfaketime")
    code = "import time as t; a = t.process_time(); t.sleep(0.5); print(t.time(), t.monotonic(), t.process_time() - a)"
    here = {**os.environ, **another_clock(3600)}
    said = subprocess.run([sys.executable, "-c", code], env=here, capture_output=True, text=True, check=True).stdout
    wall, monotonic, spent = map(float, said.split())
    assert 3500 < wall - time.time() < 3700
    assert abs(monotonic - time.monotonic()) < 100
    assert spent < 0.4, "it slept by going round in circles"
