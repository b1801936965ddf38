"""A worker's turn at work: hear a bell, ask NEXT, lease from one job for some seconds, leave, ask again.

The same for every device. What differs is the lane: `compute` blocks until its lease is computed, stopped or lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar

from jobs import errors, queues
from jobs.kinds import registry
from jobs.models import Device, Spec
from jobs.store import leases
from jobs.store.leases import Facts, Finished, Gathered, Grant, Held, Leases, Taken
from jobs.worker import execution, pace
from jobs.worker.execution import Computed, Derived, Whole
from jobs.worker.meter import Meter, Share

log = logging.getLogger(__name__)

#: A slot's turn; then the job parks and the best pending one is next.
QUANTUM_SECONDS = 5.0
#: Told `wait`, a lane asks again after this, so that a dead worker's tail is picked up at once.
LINGER_SECONDS = 0.15
#: A lease past this many seconds commits what it has, if it has anything.
LONG_SECONDS = 2 * pace.TARGET_SECONDS
#: Seconds before another try to mend a lane.
MEND_SECONDS = 0.5
#: How long a turn that is over waits for its lanes.
LET_GO_SECONDS = 60.0
#: How long a stopping worker waits for its lanes.
SHUTDOWN_SECONDS = 10.0

Answer = TypeVar("Answer")


class LaneDied(Exception):
    """The lane's process died or was given up, its work is lost. Not `touched`: it had died before the work came."""

    def __init__(self, why: str, *, touched: bool = True) -> None:
        super().__init__(why)
        self.touched = touched


class Task:
    """One lease in a lane's hands. `stop` is set from other threads."""

    def __init__(self, facts: Facts, grant: Grant) -> None:
        self.facts = facts
        self.grant = grant
        self.upto = grant.lo
        #: 0 go on; 1 stop at the next chunk and commit; 2 stop and drop.
        self.stop = 0
        self.stop_since = 0.0

    def ask_to_stop(self, how: int) -> None:
        if how > self.stop:
            self.stop = how
            self.stop_since = time.monotonic()


class Lane(Protocol):
    """Computes one lease, or a few small jobs, at a time. Gets work only while it is ready."""

    name: str

    @property
    def ready(self) -> bool:
        """True when work would start at once. Cheap, and may be asked from any thread."""

    def mend(self) -> None:
        """Blocks until the lane is ready again, for seconds. Raises LaneDied when that did not work out."""

    def compute(self, task: Task) -> tuple[Computed, bytes]:
        """Blocks; the partial comes encoded. Raises KernelFailed, or LaneDied: then the lane wants mending."""

    def compute_small(self, facts: Sequence[Facts]) -> list[Whole | errors.KernelFailed]:
        """Whole jobs, each computed or failed. Raises LaneDied."""

    def derive(self, kind: str, spec: Spec, gathered: Gathered) -> Derived:
        """As `execution.derive`, where it keeps no heartbeat waiting. Raises KernelFailed or LaneDied."""


class Slot:
    """One worker's turn at one job."""

    def __init__(self, facts: Facts, higher: tuple[str, ...]) -> None:
        self.facts = facts
        self.higher = higher
        self.open = True
        #: A lane is deriving the job's result.
        self.finishing = False
        self._result = threading.Lock()
        self.granted = 0
        self.opened = time.monotonic()

    def close(self, why: str) -> None:
        if self.open:
            self.open = False
            log.debug("slot closed: %s", why, extra={"job_id": self.facts.job_id})

    def takes_result(self) -> bool:
        """True for the first lane that asks: one derives, and all others would hold a copy of all there is."""
        return self._result.acquire(blocking=False)

    def over(self) -> bool:
        return time.monotonic() - self.opened > QUANTUM_SECONDS


class Server:
    """Serves bells with a set of lanes. Thread-safe where the beats and a signal handler touch it."""

    def __init__(
        self,
        book: Leases,
        worker: str,
        device: Device,
        lanes: Sequence[Lane],
        meter: Meter | None = None,
        kinds: Mapping[str, int] | None = None,
    ) -> None:
        self.book = book
        #: The version of each kind's model that the lanes compute.
        self.kinds = registry.versions() if kinds is None else kinds
        self.meter = meter or Meter()
        self.worker = worker
        self.device = device
        self.lanes = list(lanes)
        self.listened = queues.for_worker(device)
        self.draining = False
        self.stopping = False
        self.slot: Slot | None = None
        self.tasks: dict[str, Task] = {}
        self.rates: dict[str, float] = {}
        self._idle: list[Lane] = list(lanes)
        #: Lanes that a thread makes ready again; they get no work.
        self._mending: list[Lane] = []
        self._changed = threading.Condition()
        self._paces: dict[tuple[str, str], pace.Pace] = {}
        self._threads = ThreadPoolExecutor(max_workers=len(self.lanes), thread_name_prefix="lane")

    # -- from outside -----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ends the turn: lanes commit what they have. Safe in a signal handler: takes no lock."""
        self.stopping = True
        if self.slot:
            self.slot.close("stop")
        for task in list(self.tasks.values()):
            task.ask_to_stop(1)

    def settle_down(self) -> None:
        """After stop: waits for the lanes and gives the job back. Whatever is left then expires by itself."""
        deadline = time.monotonic() + SHUTDOWN_SECONDS
        with self._changed:
            self._changed.wait_for(lambda: self.busy() == 0, deadline - time.monotonic())
        self._tolerant(lambda: self.book.leave(self.worker), None)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def reconnect(self) -> None:
        """Drops connections to Redis that nobody uses now: another one of this process was found dead."""
        self.book.client.connection_pool.disconnect(inuse_connections=False)

    def busy(self) -> int:
        """Lanes at work."""
        return len(self.lanes) - len(self._idle) - len(self._mending)

    # -- turns ------------------------------------------------------------------------------------------------------

    def serve(self, popped: str, bell: str) -> None:
        """Works until nothing waits. `popped` and `bell`: queue and id of the bell just taken, or empty."""
        while not self.stopping:
            if not self._await_idle():
                return
            free = len(self._idle)
            take = leases.TAKE * free
            found = self.book.next(
                self.worker, self.listened, popped=popped, bell=bell, lanes=free, take=take, kinds=self.kinds
            )
            popped = bell = ""
            if isinstance(found, Taken):
                self._serve_small(found)
            elif isinstance(found, Held):
                self._serve_slot(found.job_id)
            elif found == "draining":
                self._sit_out()
            else:
                return

    def _await_idle(self) -> bool:
        """Waits for a free lane that is ready; False when the worker stops."""
        with self._changed:
            while not self.stopping:  # a signal handler can wake nobody
                if self._changed.wait_for(self._ready, leases.BEAT_SECONDS):
                    break
            return not self.stopping

    def _ready(self) -> bool:
        """Sends idle lanes that are not ready to be mended; True when others are left. Call it with the lock."""
        for lane in [lane for lane in self._idle if not lane.ready]:
            mending = threading.Thread(target=self._mend, args=(lane,), name=f"mend-{lane.name}", daemon=True)
            mending.start()  # first: where no thread can be had, the lane stays where it is found again
            self._idle.remove(lane)
            self._mending.append(lane)
        return bool(self._idle)

    def _mend(self, lane: Lane) -> None:
        while not (self.stopping or lane.ready):
            try:
                lane.mend()
            except Exception as error:  # whatever it is, else the lane would be lost
                log.warning("a lane could not be mended: %r", error, extra={"lane": lane.name})
                time.sleep(MEND_SECONDS)
        with self._changed:
            self._mending.remove(lane)
            self._idle.append(lane)
            self._changed.notify_all()

    def _all_mending(self) -> bool:
        return len(self._mending) == len(self.lanes)

    def _sit_out(self) -> None:
        """A drained worker pops no bells, or it would ring and pop the same one for ever."""
        self.draining = True
        while self.draining and not self.stopping:
            time.sleep(0.1)

    def _serve_slot(self, job: str) -> None:
        facts = self.book.facts([job], self.device)[0]
        if facts is None:
            return
        slot = self.slot = Slot(facts, queues.higher(facts.queue, self.listened))
        try:
            while slot.open and not self.stopping:
                self._start_idle_lanes(slot)
                with self._changed:
                    self._changed.wait(0.05 if self._idle else 0.5)
                if slot.over():
                    slot.close("quantum")
                elif self._all_mending():
                    slot.close("no lane is ready")
            self._let_go(slot)
        finally:
            self.slot = None

    def _start_idle_lanes(self, slot: Slot) -> None:
        while slot.open:
            lane = self._borrow()
            if lane is None:
                return
            self._threads.submit(self._turn, lane, slot)

    def _let_go(self, slot: Slot) -> None:
        """Waits until a lane is free, and for a result being derived, or NEXT would derive it again.

        Without a lane that is ready the job goes to others at once.
        """
        deadline = time.monotonic() + LET_GO_SECONDS
        with self._changed:
            while not self.stopping and time.monotonic() < deadline:  # a signal handler can wake nobody
                if self._changed.wait_for(lambda: self._is_let_go(slot), leases.BEAT_SECONDS):
                    break
        if self._all_mending():
            self._tolerant(lambda: self.book.leave(self.worker), None)

    def _is_let_go(self, slot: Slot) -> bool:
        return not slot.finishing and (bool(self._idle) or self._all_mending())

    def _borrow(self) -> Lane | None:
        with self._changed:
            return self._idle.pop() if self._ready() else None

    def _give_back(self, lane: Lane) -> None:
        with self._changed:
            self._idle.append(lane)
            if not self.stopping:
                self._ready()
            self._changed.notify_all()

    def _turn(self, lane: Lane, slot: Slot) -> None:
        try:
            while slot.open and lane.ready and not self.stopping:
                self._one_lease(lane, slot)
        except Exception:
            log.exception("a lane's turn ended", extra={"job_id": slot.facts.job_id, "lane": lane.name})
            slot.close("error")
            time.sleep(LINGER_SECONDS)
        finally:
            self._give_back(lane)

    def _one_lease(self, lane: Lane, slot: Slot) -> None:
        facts, mine = slot.facts, self._pace(lane, slot.facts)
        token = leases.new_token()
        answer = self._persist(
            lambda: self.book.lease(
                facts.job_id,
                token,
                want=mine.want(),
                least=mine.least(),
                worker=self.worker,
                lane=f"{self.worker}/{lane.name}",
                rate=mine.rate if mine.measured else 0.0,
                higher=slot.higher if slot.granted else (),
            ),
        )
        if isinstance(answer, Grant):
            slot.granted += 1
            self._work(lane, slot, answer, mine)
        elif answer == "wait":
            self._linger(slot)
        elif answer == "finishing" and slot.granted == 0:
            self._finish(lane, slot)
        else:
            slot.close(answer or "unreachable")

    def _linger(self, slot: Slot) -> None:
        """All ranges are leased out: stay near while nothing else waits."""
        if any(self._waiting()):
            slot.close("wait")
        else:
            time.sleep(LINGER_SECONDS)

    def _waiting(self) -> list[int]:
        return self._tolerant(lambda: self.book.waiting(self.listened), [])

    def _work(self, lane: Lane, slot: Slot, grant: Grant, mine: pace.Pace) -> None:
        task = Task(slot.facts, grant)
        job, token = slot.facts.job_id, grant.token
        self.tasks[token] = task
        if self.stopping:
            task.ask_to_stop(1)
        try:
            with self.meter.lease() as share:
                computed, encoded = lane.compute(task)
        except LaneDied as died:
            log.warning("%s", died, extra={"job_id": job, "lane": lane.name, "lo": grant.lo, "hi": grant.hi})
            give_back = self.book.crash if died.touched else self.book.release
            self._persist(lambda: give_back(job, token))
        except errors.KernelFailed as failure:
            log.error("a kernel failed: %s", failure, extra={"job_id": job, "lane": lane.name})
            reason = str(failure)
            self._persist(lambda: self.book.fail(job, token, reason))
        else:
            self._commit(lane, slot, grant, computed, encoded, task, mine, share)
        finally:
            self.tasks.pop(token, None)

    def _commit(
        self,
        lane: Lane,
        slot: Slot,
        grant: Grant,
        computed: Computed,
        encoded: bytes,
        task: Task,
        mine: pace.Pace,
        share: Share,
    ) -> None:
        facts, job = slot.facts, slot.facts.job_id
        units = computed.upto - grant.lo
        if units <= 0 or task.stop == 2:
            self._persist(lambda: self.book.release(job, grant.token))
            return
        mine.learn(units, computed.seconds)
        self.rates[facts.kind] = mine.rate
        speed = mine.rate / facts.nominal_rate
        ms = round(computed.seconds * 1000)
        done = self._persist(
            lambda: self.book.commit(
                job, grant.token, computed.upto, encoded, ms=ms, worker=self.worker, device=self.device, pace=speed,
                device_ms=round(share.seconds * 1000) if self.device is Device.GPU else 0, joules=share.joules,
            ),
        )  # fmt: skip
        if done is None or not done.merged:
            log.info("a stale lease was dropped", extra={"job_id": job})
        elif done.finishing:
            self._finish(lane, slot)
        elif done.parts >= execution.FOLD_AT:
            self._fold(facts)

    def _fold(self, facts: Facts) -> None:
        try:
            execution.fold(self.book, facts.job_id, facts.kind)
        except errors.KernelFailed as failure:  # the job fails at its end
            log.error("%s", failure, extra={"job_id": facts.job_id})

    def _finish(self, lane: Lane, slot: Slot) -> None:
        facts = slot.facts
        if not slot.takes_result():
            return
        slot.finishing = True
        slot.close("finishing")
        try:
            if self._persist(lambda: execution.finish(self.book, facts.job_id, facts.kind, facts.spec, lane.derive)):
                log.info("job done", extra={"job_id": facts.job_id, "kind": facts.kind})
        except LaneDied as died:  # whoever holds the job next derives it, a few times
            log.warning("%s", died, extra={"job_id": facts.job_id, "lane": lane.name})
            if died.touched and not self.stopping:
                token, reason = leases.new_token(), f"the result could not be derived: {died}"
                self._persist(lambda: self.book.stumble(facts.job_id, token, reason))
        finally:
            slot.finishing = False

    def _pace(self, lane: Lane, facts: Facts) -> pace.Pace:
        known = self._paces.get((lane.name, facts.job_id))
        if known is None:
            if len(self._paces) > 4096:
                self._paces.clear()
            known = self._paces[(lane.name, facts.job_id)] = pace.Pace(facts.expected_rate)
        return known

    # -- small jobs -------------------------------------------------------------------------------------------------

    def _serve_small(self, taken: Taken) -> None:
        """Shares the jobs out over the idle lanes; this thread drives the first: a lone job needs no other."""
        work = [(fact, token) for fact, (_, token) in zip(taken.facts, taken.jobs, strict=True)]
        lanes = [lane for lane in (self._borrow() for _ in range(min(len(self._idle), len(work)))) if lane]
        if not lanes:  # they died since NEXT was asked
            self._hand_back(work, self.book.release)
            return
        shares = [work[number :: len(lanes)] for number in range(len(lanes))]
        waits = [self._threads.submit(self._small_turn, *pair) for pair in zip(lanes[1:], shares[1:], strict=True)]
        self._small_turn(lanes[0], shares[0])
        for wait in waits:
            wait.result()

    def _small_turn(self, lane: Lane, work: list[tuple[Facts, str]]) -> None:
        tasks = {token: Task(fact, Grant(token=token, lo=0, hi=fact.total)) for fact, token in work}
        self.tasks.update(tasks)
        try:
            results = lane.compute_small([fact for fact, _ in work])
            self._small_done(work, results)
        except LaneDied as died:
            log.warning("%s", died, extra={"lane": lane.name, "jobs": len(work)})
            self._hand_back(work, self.book.crash if died.touched else self.book.release)
        finally:
            for token in tasks:
                self.tasks.pop(token, None)
            self._give_back(lane)

    def _hand_back(self, work: list[tuple[Facts, str]], how: Callable[[str, str], bool]) -> None:
        for fact, token in work:
            self._persist(partial(how, fact.job_id, token))

    def _small_done(self, work: list[tuple[Facts, str]], results: list[Whole | errors.KernelFailed]) -> None:
        finished = []
        for (fact, token), result in zip(work, results, strict=True):
            if isinstance(result, errors.KernelFailed):
                self._persist(partial(self.book.fail, fact.job_id, token, str(result)))
            else:
                finished.append(
                    Finished(
                        job_id=fact.job_id, token=token, result=result.result, ms=round(result.seconds * 1000),
                        marks=result.marks,
                    )
                )  # fmt: skip
        self._persist(lambda: self.book.done1_all(finished, worker=self.worker, device=self.device))

    # -- Redis that comes and goes ----------------------------------------------------------------------------------

    def _persist(self, call: Callable[[], Answer]) -> Answer | None:
        """Repeats a call until Redis answers: scripts are idempotent. None: the worker is stopping."""
        while True:
            try:
                return call()
            except leases.Unreachable as error:
                log.warning("redis cannot be reached: %s", error)
                if self.stopping:
                    return None
                time.sleep(0.3)

    def _tolerant(self, call: Callable[[], Answer], instead: Answer) -> Answer:
        try:
            return call()
        except leases.RedisError:
            return instead


class Beats(threading.Thread):
    """Keeps leases, the slot and the worker alive, each second, on a connection of its own.

    `facts` gives what the worker says of itself; `taken` is called when a later process has this worker's name,
    `heard` whenever Redis has taken the heartbeat.
    """

    def __init__(
        self,
        book: Leases,
        server: Server,
        born: str,
        facts: Callable[[], dict[str, str | int | float]],
        taken: Callable[[], None],
        heard: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name="beats", daemon=True)
        self._book = book
        self._server = server
        self._born = born
        self._facts = facts
        self._taken = taken
        self._heard = heard
        self._ended = threading.Event()

    def run(self) -> None:
        wait = 0.0
        while not self._ended.wait(wait):
            wait = leases.BEAT_SECONDS
            try:
                self.beat()
            except leases.Unreachable as error:
                log.warning("no beat: redis cannot be reached: %s", error)
            except Exception:  # a worker that does not beat loses all its work
                log.exception("a beat failed")

    def beat(self) -> None:
        for token, task in list(self._server.tasks.items()):
            answer = self._book.beat(task.facts.job_id, token, task.upto)
            task.ask_to_stop({1: 0, 2: 1, 0: 2}[answer])
        if self._server.slot:
            self._book.hold(self._server.worker)
        self.say()

    def say(self, **more: str) -> None:
        answer = self._book.heartbeat(self._server.worker, self._born, {**self._facts(), **more})
        self._server.draining = answer == "drain"
        self._heard()
        if answer == "taken" and not self._server.stopping:
            self._taken()

    def end(self) -> None:
        """Stops beating and says that the worker left."""
        self._ended.set()
        self.join(timeout=5)
        try:
            facts = {**self._facts(), "state": "stopped"}
            self._book.heartbeat(self._server.worker, self._born, facts, leaving=True)
        except leases.RedisError as error:
            log.warning("could not say goodbye: %s", error)
