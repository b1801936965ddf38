"""Tests workers whose connections to Redis fall silent without being closed."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest
import redis
from rq.exceptions import StopRequested
from rq.job import Job
from rq.serializers import JSONSerializer

from jobs.store import Store
from jobs.store.server import connection
from jobs.store.work import wakeups
from tests.integration.live import Live, until, within
from tests.integration.proxy import Proxy

SUM = {"sum": 4950, "count": 100}


@pytest.fixture(scope="module")
def behind_a_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Live, Proxy]]:
    """Start a worker with one lane that connects to Redis only through a proxy."""
    live = Live(tmp_path_factory.mktemp("silent"), workers=0)
    proxy = Proxy(live.redis_port)
    proxy.start()
    try:
        live.start()
        live.environment["REDIS_URL"] = f"redis://127.0.0.1:{proxy.port}/0"
        live.start_worker(0, lanes=1)
        live.wait_ready(1)
        yield live, proxy
    finally:
        live.stop()
        proxy.stop()


@pytest.mark.alone
@pytest.mark.parametrize("after", [0.0, 1.0])
def test_an_idle_worker_whose_connections_fell_silent_takes_a_job_soon(
    behind_a_proxy: tuple[Live, Proxy], after: float
) -> None:
    assert within(lambda: seconds_of_a_job_after_silence(*behind_a_proxy, after), 7.0)


def seconds_of_a_job_after_silence(live: Live, proxy: Proxy, after: float) -> float:
    """Silence connections some seconds after a job, and return the duration of the next job."""
    assert live.result(live.submit("faulty", {"units": 100})) == SUM
    time.sleep(after)
    assert proxy.silence() >= 3
    job = live.submit("faulty", {"units": 100})
    asked = time.monotonic()
    live.wait_for(job, "done")
    took = time.monotonic() - asked
    assert live.job(job)["usage"]["expired_leases"] == 0
    return took


def test_a_lease_outlives_the_silence_of_the_connection_that_beats_for_it(
    behind_a_proxy: tuple[Live, Proxy],
) -> None:
    assert within(lambda: leases_lost_to_silence(*behind_a_proxy), 0)


def leases_lost_to_silence(live: Live, proxy: Proxy) -> int:
    """Silence connections during a lease, and return the number of expired leases."""
    job = live.submit("faulty", {"units": 1, "seconds_per_unit": 8.0})
    live.wait_for(job, "running")
    time.sleep(1.0)
    proxy.silence()
    assert live.result(job) == {"sum": 0, "count": 1}
    lost: int = live.job(job)["usage"]["expired_leases"]
    return lost


def test_names_of_killed_workers_are_struck_out_of_rqs_sets(behind_a_proxy: tuple[Live, Proxy]) -> None:
    live, _ = behind_a_proxy
    sets = ["rq:workers", "rq:workers:cpu.normal", "rq:workers:any.high"]
    [name] = until(lambda: live.redis().smembers("rq:workers"))
    live.kill("worker-0", signal.SIGKILL)
    live.processes["coordinator-0"].send_signal(signal.SIGSTOP)  # it strikes names out each minute, too
    try:
        assert wakeups.remove_dead_workers(Store(live.redis())) == 0, "its key lives for a minute"
        live.redis().delete(name)
        live.redis().sadd("rq:workers", "rq:worker:another")
        assert wakeups.remove_dead_workers(Store(live.redis())) == 2
    finally:
        live.processes["coordinator-0"].send_signal(signal.SIGCONT)
    assert not any(live.redis().smembers(one) for one in sets)


def test_a_coordinator_strikes_out_the_names_of_killed_workers(behind_a_proxy: tuple[Live, Proxy]) -> None:
    live, _ = behind_a_proxy
    sets = ["rq:workers", "rq:workers:cpu.normal"]
    for one in sets:
        live.redis().sadd(one, "rq:worker:killed")
    live.kill("coordinator-0")
    live.start_coordinator(0)  # it does so when it starts, then each minute
    until(lambda: not any(live.redis().sismember(one, "rq:worker:killed") for one in sets))


def test_an_idle_worker_that_redis_cuts_off_listens_on_without_a_traceback(
    any_redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    listening = connection.connect(any_redis_url, retries=0, timeout=None)
    wakeups.create_wakeup_job(Store(listening))
    cut, asked = threading.Event(), threading.Event()

    def serve(queue: str) -> None:
        if cut.is_set():
            asked.set()
            raise StopRequested

    def cut_off() -> None:
        with redis.Redis.from_url(any_redis_url) as other:
            until(lambda: any(client["cmd"] == "blpop" for client in other.client_list()))
            cut.set()
            other.client_kill_filter(_type="normal", skipme=True)

    cutting = threading.Thread(target=cut_off)
    cutting.start()
    worker = wakeups.WakeupWorker(("any.high", "any.normal"), listening, serve, lambda: None)
    worker.listen()
    cutting.join()
    listening.close()
    assert asked.is_set(), "it listens no more"
    assert not [record for record in caplog.records if record.exc_info], caplog.text


def test_a_worker_that_was_stopped_before_it_listened_does_not_begin(any_redis_url: str) -> None:
    listening = connection.connect(any_redis_url, retries=0, timeout=None)
    wakeups.create_wakeup_job(Store(listening))
    served: list[str] = []
    worker = wakeups.WakeupWorker(
        ("any.high",), listening, lambda *_: served.append("served"), lambda: None, stopped=lambda: True
    )
    worker.listen()
    listening.close()
    assert not served


def test_a_signal_outside_of_the_wait_for_wakeups_raises_nothing(any_redis_url: str) -> None:
    """Logging swallows exceptions of signal handlers, so the handler must not raise while the worker logs."""
    listening = connection.connect(any_redis_url, retries=0, timeout=None)
    stops: list[str] = []
    worker = wakeups.WakeupWorker(("any.high",), listening, lambda _: None, lambda: stops.append("stopped"))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        worker.request_stop(signal.SIGTERM, None)
        worker.listen()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        listening.close()
    assert stops == ["stopped"]


def test_a_bell_of_the_scripts_is_answered_as_it_is_and_what_else_is_in_a_queue_is_dropped(any_redis_url: str) -> None:
    """A bell is known by its id and nothing is read of it, so work is looked for although its job is gone."""
    listening, heard = connection.connect(any_redis_url, retries=0, timeout=None), list[str]()
    foreign = Job.create("os.getcwd", connection=listening, serializer=JSONSerializer, id="foreign")
    foreign.save()
    for bell in (wakeups.WAKEUP_ID, "gone", "foreign", wakeups.WAKEUP_ID):
        listening.rpush("rq:queue:any.high", bell)

    def serve(queue: str) -> None:
        heard.append(queue)
        if len(heard) == 2:
            raise StopRequested

    wakeups.WakeupWorker(("cpu.high", "any.high"), listening, serve, lambda: None).listen()
    left = listening.exists(foreign.key)
    listening.close()
    assert heard == ["any.high", "any.high"]
    assert not left, "what names another function is deleted and not executed"
