"""How each kind of fault strikes a bench and is healed. A strike that cannot be made here says why."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

import psutil

from tests.chaos.bench import Bench, faketime
from tests.chaos.plan import Fault
from tests.integration.proxy import MODES

Strike: TypeAlias = Callable[[Bench, Fault], AbstractContextManager[None]]
Struck: TypeAlias = Generator[None, None, None]


class CannotStrike(Exception):
    """Something that a fault needs is not here; the message says what."""


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
    """A lane of the worker. One that dies before the worker is ready ends it, for its supervisor to start again."""
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
    if child.is_running():  # its worker may have replaced it meanwhile
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
def forget_functions(bench: Bench, fault: Fault) -> Struck:
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
        client.delete(*names)
    yield


@contextmanager
def wrong_clock(bench: Bench, fault: Fault) -> Struck:
    """The worker dies and comes back an hour ahead or behind; or, if it was so, with the right time."""
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
