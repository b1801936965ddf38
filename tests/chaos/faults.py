"""Injects and heals each kind of fault. A fault that is impossible on this machine raises an error with the reason."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

import psutil
import redis

from tests.chaos.bench import Bench, faketime
from tests.chaos.plan import Fault
from tests.integration.proxy import MODES

Strike: TypeAlias = Callable[[Bench, Fault], AbstractContextManager[None]]
Struck: TypeAlias = Generator[None, None, None]


class CannotStrike(Exception):
    """A requirement of the fault is missing. The message names the requirement."""


def _down(how: signal.Signals) -> Strike:
    @contextmanager
    def strike(bench: Bench, fault: Fault) -> Struck:
        if fault.part == "redis" and how == signal.SIGKILL:
            bench.cut_log(0.0)
        else:
            bench.kill(fault.part, how)
        yield
        bench.start_again(fault.part)

    return strike


@contextmanager
def cut_log(bench: Bench, fault: Fault) -> Struck:
    bench.cut_log(fault.amount)
    yield
    bench.start_again(fault.part)


@contextmanager
def stop(bench: Bench, fault: Fault) -> Struck:
    pid = bench.pid(fault.part)
    os.kill(pid, signal.SIGSTOP)
    yield
    os.kill(pid, signal.SIGCONT)


def _child(bench: Bench, worker: str) -> psutil.Process:
    """Return a lane of the worker. If a lane dies before the worker is ready, the worker exits and is started again."""
    lanes = bench.lanes_of(worker)
    if not lanes or not bench.ready(worker):
        raise CannotStrike("a worker had just been started, or its lane")
    return psutil.Process(lanes[0])


@contextmanager
def kill_child(bench: Bench, fault: Fault) -> Struck:
    _child(bench, fault.part).kill()
    yield


@contextmanager
def stop_child(bench: Bench, fault: Fault) -> Struck:
    child = _child(bench, fault.part)
    child.suspend()
    yield
    if child.is_running():  # the worker may have replaced the lane
        child.resume()


def _network(mode: str) -> Strike:
    @contextmanager
    def strike(bench: Bench, fault: Fault) -> Struck:
        bench.proxy.disturb(mode, fault.amount)
        yield
        bench.proxy.heal()

    return strike


@contextmanager
def disk_full(bench: Bench, fault: Fault) -> Struck:
    bench.limit_files(int(fault.amount * 100_000))
    yield
    bench.limit_files(None)


@contextmanager
def memory_full(bench: Bench, fault: Fault) -> Struck:
    client = bench.redis()
    used: int = client.info("memory")["used_memory"]
    client.config_set("maxmemory", int(used * (0.9 + fault.amount / 10)))
    yield
    client.config_set("maxmemory", 0)


@contextmanager
def _writing() -> Generator[None]:
    """Skip a fault if Redis rejects writes because an earlier fault filled its disk."""
    try:
        yield
    except redis.ResponseError as error:
        if not str(error).startswith("MISCONF"):
            raise
        raise CannotStrike("Redis rejected the write of a fault, because its disk was full") from error


@contextmanager
def forget_functions(bench: Bench, fault: Fault) -> Struck:
    with _writing():
        bench.redis().function_flush()
    yield


@contextmanager
def cut_clients(bench: Bench, fault: Fault) -> Struck:
    bench.redis().client_kill_filter(_type="normal", skipme=True)
    yield


@contextmanager
def delete_wakeups(bench: Bench, fault: Fault) -> Struck:
    client = bench.redis()
    names = list(client.scan_iter("rq:*"))
    if names:
        with _writing():
            client.delete(*names)
    yield


@contextmanager
def wrong_clock(bench: Bench, fault: Fault) -> Struck:
    """Restart the worker with a clock that is an hour wrong, or with the right time if it was wrong before."""
    if faketime() is None:
        raise CannotStrike("libfaketime is not installed: apt-get install libfaketime")
    bench.kill(fault.part)
    hour = 3600 if fault.amount < 0.5 else -3600
    bench.offsets[fault.part] = 0 if bench.offsets.get(fault.part) else hour
    yield
    bench.start_again(fault.part)


STRIKES: dict[str, Strike] = {
    "kill": _down(signal.SIGKILL),
    "terminate": _down(signal.SIGTERM),
    "stop": stop,
    "kill-child": kill_child,
    "stop-child": stop_child,
    "cut-log": cut_log,
    **{mode: _network(mode) for mode in MODES if mode},
    "disk-full": disk_full,
    "memory-full": memory_full,
    "forget-functions": forget_functions,
    "cut-clients": cut_clients,
    "delete-wakeups": delete_wakeups,
    "wrong-clock": wrong_clock,
}
