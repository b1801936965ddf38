"""A worker's turns on a real Redis, with lanes that die when told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from jobs import queues
from jobs.errors import KernelFailed
from jobs.models import Device, Spec
from jobs.store import bells, leases
from jobs.store.leases import Facts, Gathered, Grant, Leases
from jobs.worker import execution
from jobs.worker.execution import Computed, Derived, Whole, encode
from jobs.worker.serving import LaneDied, Server, Task
from tests.contract.lease_model import merge, new_job, total_of


class FakeLane:
    """Computes in steps of 10 ms; `die` ends it as a kill would, and `healed` lets it be mended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready = True
        self.healed = threading.Event()
        self.computed: list[tuple[int, int]] = []
        self.derived: list[Gathered] = []

    def die(self) -> None:
        self.ready = False

    def mend(self) -> None:
        assert self.healed.wait(20)
        self.ready = True

    def _check(self) -> None:
        time.sleep(0.01)
        if not self.ready:
            raise LaneDied(f"lane {self.name} was killed")

    def compute(self, task: Task) -> tuple[Computed, bytes]:
        lo, hi = task.grant.lo, task.grant.hi
        for _ in range(5):
            self._check()
        self.computed.append((lo, hi))
        return Computed(upto=hi, partial={}, seconds=0.05), encode(total_of(lo, hi))

    def compute_small(self, facts: Sequence[Facts]) -> list[Any]:
        self._check()
        whole = [Whole(result=encode(total_of(0, fact.total)), marks="[]", seconds=0.01) for fact in facts]
        return list(whole)

    def derive(self, kind: str, spec: Spec, gathered: Gathered) -> Derived:
        self._check()
        self.derived.append(gathered)
        texts = [gathered.accumulator, *gathered.parts]
        total = encode(merge(json.loads(text) for text in texts if text))
        return Derived(folded=total, result=total, marks="[]")


@pytest.fixture
def book(any_redis_url: str) -> Iterator[Leases]:
    client = redis.Redis.from_url(any_redis_url)
    bells.place_bells(client)
    yield Leases(client)
    client.close()


@contextmanager
def serving(server: Server) -> Iterator[None]:
    """Serves on a thread of its own, as an idle worker does that asks NEXT again and again."""

    def go_on() -> None:
        while not server.stopping:
            server.serve("", "")
            time.sleep(0.01)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        server.stop()
        thread.join(20)
        server.settle_down()


def until(what: Callable[[], Any], seconds: float = 20.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := what():
            return answer
        time.sleep(0.005)
    raise AssertionError(f"not within {seconds} s")


def lanes_with_leases(book: Leases, job: str) -> set[str]:
    leased = book.client.hvals(leases.key(job, "lease"))
    return {text.decode().rpartition(":")[2].rpartition("/")[2] for text in leased}


def state(book: Leases, job: str) -> str:
    return (book.client.hget(leases.key(job), "state") or b"").decode()


def test_a_lane_gets_no_lease_before_it_is_ready_again(book: Leases) -> None:
    """Its replacement takes seconds to warm up; meanwhile the range goes to the other lane."""
    sick, sound = FakeLane("0"), FakeLane("1")
    server = Server(book, "w", Device.CPU, [sick, sound], kinds={"sum": 1})
    book.submit([new_job("j", 10**9, "any.normal", estimate_ms=10**7)])
    with serving(server):
        until(lambda: lanes_with_leases(book, "j") == {"0", "1"})
        sick.die()
        until(lambda: int(book.client.hget("ct:outcomes", "crashed") or 0))
        before = len(sound.computed)
        until(lambda: len(sound.computed) > before + 5)
        assert "0" not in lanes_with_leases(book, "j") and server.busy() == 1
        assert book.client.hget("ct:outcomes", "crashed") == b"1"
        sick.healed.set()
        until(lambda: "0" in lanes_with_leases(book, "j"))


def test_a_worker_without_a_lane_gives_its_job_to_others_at_once(book: Leases) -> None:
    lane = FakeLane("0")
    book.submit([new_job("j", 10**9, "any.normal", estimate_ms=10**7)])
    with serving(Server(book, "w", Device.CPU, [lane], kinds={"sum": 1})):
        until(lambda: lanes_with_leases(book, "j") == {"0"})
        lane.die()
        until(lambda: book.client.zscore("ct:pending:any.normal", "j"))
        assert not book.client.hexists("ct:slotjob", "w") and not lanes_with_leases(book, "j")
        lane.healed.set()
        until(lambda: lanes_with_leases(book, "j") == {"0"})


def test_a_small_job_waits_for_a_lane_that_is_ready(book: Leases) -> None:
    lane = FakeLane("0")
    lane.die()
    book.submit([new_job("j", 10, "any.normal", small=True, estimate_ms=10)])
    with serving(Server(book, "w", Device.CPU, [lane], kinds={"sum": 1})):
        until(lambda: not lane.ready)
        time.sleep(0.1)
        assert state(book, "j") == "queued"
        lane.healed.set()
        until(lambda: state(book, "j") == "done")
    assert not book.client.hexists("ct:outcomes", "crashed")


def test_a_worker_that_is_told_to_stop_while_a_lane_is_mended_ends(book: Leases) -> None:
    sick, sound = FakeLane("0"), FakeLane("1")
    server = Server(book, "w", Device.CPU, [sick, sound], kinds={"sum": 1})
    with serving(server):
        sick.die()
        until(lambda: not server._idle or sick not in server._idle)
    assert server.busy() == 0
    sick.healed.set()


def test_a_result_is_derived_by_a_lane_and_not_beside_the_heartbeats(book: Leases) -> None:
    """Reading and writing tens of megabytes of JSON holds the parent's lock for seconds."""
    lane = FakeLane("0")
    book.submit([new_job("j", 10, "any.normal", estimate_ms=10**4)])
    with serving(Server(book, "w", Device.CPU, [lane], kinds={"sum": 1})):
        until(lambda: state(book, "j") == "done")
    assert json.loads(book.client.get(leases.key("j", "result")) or "") == total_of(0, 10)
    assert len(lane.derived) == 1


def test_a_job_whose_lane_dies_over_its_result_is_finished_by_another(book: Leases) -> None:
    sick, sound = FakeLane("0"), FakeLane("1")
    server = Server(book, "w", Device.CPU, [sick], kinds={"sum": 1})

    def derive(*_: Any) -> Derived:
        sick.die()
        raise LaneDied("killed")

    sick.derive = derive  # type: ignore[method-assign]
    book.submit([new_job("j", 10, "any.normal", estimate_ms=10**4)])
    with serving(server), serving(Server(book, "v", Device.CPU, [sound], kinds={"sum": 1})):
        sick.healed.set()
        until(lambda: state(book, "j") == "done")
    assert json.loads(book.client.get(leases.key("j", "result")) or "") == total_of(0, 10)


def test_a_job_whose_result_kills_every_lane_fails(book: Leases) -> None:
    """It stayed finishing for ever, where nobody can cancel it, and wore the fleet's lanes out."""
    lane = FakeLane("0")
    lane.healed.set()

    def derive(*_: Any) -> Derived:
        lane.die()
        raise LaneDied("killed over a result")

    lane.derive = derive  # type: ignore[method-assign]
    book.submit([new_job("j", 10, "any.normal", estimate_ms=10**4)])
    with serving(Server(book, "w", Device.CPU, [lane], kinds={"sum": 1})):
        until(lambda: state(book, "j") == "failed", 5)
    assert b"killed over a result" in (book.client.hget(leases.key("j"), "error") or b"")
    assert book.retry("j", 1) == ["ok", "finishing"]


def test_a_result_is_derived_by_one_lane_of_a_worker(book: Leases) -> None:
    """Each that asked at once got the answer finishing, and held a copy of all there is."""
    book.submit([new_job("j", 10, "any.normal", estimate_ms=10**4)])
    book.next("v", queues.ALL)
    grant = book.lease("j", "t", want=10, worker="v")
    assert isinstance(grant, Grant)
    book.commit("j", "t", 10, encode(total_of(0, 10)), ms=1, worker="v", device="cpu")
    book.leave("v")
    lanes, lease = [FakeLane(str(number)) for number in range(8)], book.lease

    def answer_late(*given: Any, **more: Any) -> Any:
        answer = lease(*given, **more)
        time.sleep(0.1)
        return answer

    book.lease = answer_late  # type: ignore[method-assign]
    with serving(Server(book, "w", Device.CPU, lanes, kinds={"sum": 1})):
        until(lambda: state(book, "j") == "done")
    assert sum(len(lane.derived) for lane in lanes) == 1


def test_a_worker_that_is_told_to_stop_while_it_has_no_lane_ends(book: Leases) -> None:
    lane = FakeLane("0")
    lane.die()
    server = Server(book, "w", Device.CPU, [lane], kinds={"sum": 1})
    thread = threading.Thread(target=server.serve, args=("", ""), daemon=True)
    thread.start()
    until(lambda: lane in server._mending)
    server.stop()
    thread.join(2)
    over = not thread.is_alive()
    lane.healed.set()
    assert over


def test_a_worker_that_is_told_to_stop_while_a_result_is_derived_waits_no_minute(book: Leases) -> None:
    lane, go_on, began = FakeLane("0"), threading.Event(), threading.Event()

    def derive(*_: Any) -> Derived:
        began.set()
        go_on.wait(20)
        raise LaneDied("it was told to stop")

    lane.derive = derive  # type: ignore[method-assign]
    book.submit([new_job("j", 10, "any.normal", estimate_ms=10**4)])
    server = Server(book, "w", Device.CPU, [lane], kinds={"sum": 1})
    thread = threading.Thread(target=server.serve, args=("", ""), daemon=True)
    thread.start()
    assert began.wait(10)
    server.stop()
    thread.join(3)
    over = not thread.is_alive()
    go_on.set()
    server.settle_down()
    assert over and state(book, "j") == "finishing"


def test_a_lane_that_cannot_be_mended_for_any_reason_is_tried_again(book: Leases) -> None:
    """An error that nobody thought of ended the thread, and the lane was away for good."""
    lane = FakeLane("0")
    lane.die()
    lane.healed.set()
    errors, mend = [AttributeError("no process"), RuntimeError("can't start new thread")], lane.mend

    def fail_at_first() -> None:
        if errors:
            raise errors.pop()
        mend()

    lane.mend = fail_at_first  # type: ignore[method-assign]
    server = Server(book, "w", Device.CPU, [lane], kinds={"sum": 1})
    server._idle, server._mending = [], [lane]
    server._mend(lane)
    assert lane.ready and server._idle == [lane] and not server._mending


@pytest.mark.parametrize("count", [40, 300])
def test_parts_that_cannot_be_merged_fail_their_job(book: Leases, count: int) -> None:
    """With more of them than are read at once it stayed finishing for ever."""
    book.submit([new_job("j", count, "any.normal", kind="collatz")])
    book.next("v", queues.ALL)
    for number in range(count):
        book.lease("j", f"t{number}", want=1, worker="v")
        book.commit("j", f"t{number}", number + 1, b"{", ms=1, worker="v", device="cpu")
    assert state(book, "j") == "finishing"
    with pytest.raises(KernelFailed):
        execution.fold(book, "j", "collatz")
    assert not execution.finish(book, "j", "collatz", {})
    assert state(book, "j") == "failed"
