"""Tests that any order of calls, deaths and delays keeps the invariants of docs/lease-protocol.md."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from jobs import queues
from jobs.hosts import requirements
from jobs.models import Device
from jobs.partial_reader import GatheredPartials
from jobs.store import keys
from jobs.store.server import functions
from jobs.store.tenancy.tenants import Tenant
from jobs.store.work import lease_tokens
from jobs.store.work.jobs import CapReached, NewJob
from jobs.store.work.leases import Grant
from jobs.store.work.slots import Held, Taken
from tests.contract.lease_invariants import TERMINAL, at_rest, check, is_cut_well
from tests.contract.lease_model import DAY_MS, LONG, Bench, History, JobView, Snapshot, Worker, new_job

MOST_JOBS = 6
PICK = st.integers(0, 5)
TOTALS = st.one_of(st.integers(1, 6), st.sampled_from([1, 40, 2**53 - 1, 2**53]))
QUEUES = st.sampled_from(["any.high", "any.normal", "gpu.normal", "cpu.low", "runner.normal", "runner.high"])
#: Requirements of programs, and GPUs that a runner has free.
NEEDS = st.sampled_from([None, {"gpus": 1}, {"gpus": 4}])
FREE_GPUS = st.sampled_from([0, 1, 4])
PARENTS = st.fixed_dictionaries(
    {
        "after": st.one_of(st.just([]), st.lists(PICK, max_size=3)),
        "after_any": st.one_of(st.just([]), st.lists(PICK, max_size=2)),
    }
)
SHARE = st.sampled_from([1, 2, 2, 3, 10])
DELAYS = st.sampled_from([1, 250, 1000, functions.LEASE_TTL_MS, functions.WORKER_TTL_MS, 31_000, LONG])
#: What each call is allowed in; elsewhere it names the state.
ALLOWED = {
    "cancel": {"blocked", "queued", "running", "paused"},
    "pause": {"queued", "running"},
    "resume": {"paused"},
    "retry": {"failed", "cancelled", "skipped"},
    "delete": {"blocked", *TERMINAL},
}
#: What each call finds where it was carried out before and its reply was lost.
REACHED = {
    "cancel": {"cancelling", "cancelled"},
    "pause": {"paused"},
    "resume": {"queued", "running"},
    "retry": {"blocked", "queued", "running", "finishing"},
    "delete": set[str](),
}
SETTINGS = settings(
    max_examples=2 * settings().max_examples,
    stateful_step_count=80,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


class LeaseMachine(RuleBasedStateMachine):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.bench = Bench(url)
        self.seen = self.bench.look()
        self.workers: list[Worker] = []
        self.born = 0
        #: The clock never steps back.
        self.steady = True
        self.age_seconds = 1e9
        #: What is on Redis' disk, and what callers have read and not yet folded or made a result of.
        self.backup = self.bench.back_up()
        self.gathered: list[tuple[str, GatheredPartials]] = []

    def teardown(self) -> None:
        """Only a run that went well can be finished."""
        with closing(self.bench.client):
            if self.workers and sys.exc_info()[0] is None:
                self.finish_everything()

    @initialize(
        totals=st.lists(TOTALS, min_size=2, max_size=2),
        want=st.integers(1, 3),
        steady=st.booleans(),
        shared=st.booleans(),
        ages=st.booleans(),
        units=st.sampled_from([0, 3, 50]),
    )
    def a_fleet_at_work(self, totals: list[int], want: int, steady: bool, shared: bool, ages: bool, units: int) -> None:
        """`shared`: several tenants, one with caps, both with daily ones of `units`. `ages`: jobs get old."""
        self.steady = steady
        self.age_seconds = 40.0 if ages else 1e9
        if shared:
            self._share(max_units={"sum": units} if units else {}, max_stored_bytes=2**40)
        for device in (Device.CPU, Device.GPU, Device.CPU, Device.RUNNER):
            self._hire(device)
        for total, worker in zip(totals, self.workers, strict=False):
            self.bench.submit(total, estimate_ms=1000)
            worker.job = self.bench.hold(worker.name, worker.listened)
            self.bench.lease(worker.job, want, worker.name)
        for _ in range(2):
            self.bench.submit(1, small=True, estimate_ms=10)

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        self.look()

    # -- helpers ----------------------------------------------------------------------------------------------------

    def _share(self, **caps: Any) -> None:
        self.bench.store.tenants.put(Tenant(name="a", weight=3, **caps))
        self.bench.store.tenants.put(Tenant(name="b", max_lanes=1, max_jobs=2, **caps))

    def _hire(self, device: Device) -> None:
        self.born += 1
        self.workers.append(Worker(f"{device}-{self.born}", device))

    def look(self) -> Snapshot:
        self.seen = self.bench.look()
        check(self.bench, self.seen)
        return self.seen

    def _job(self, pick: int) -> JobView:
        views = list(self.seen.jobs.values())
        return views[pick % len(views)]

    def _drained(self, worker: Worker) -> bool:
        return self.seen.hash(f"ct:worker:{worker.name}").get("drain") == "1"

    def _live(self) -> list[str]:
        return sorted(token for view in self.seen.jobs.values() for token in view.leases)

    def _overdue(self, view: JobView) -> bool:
        """Its timeout is over, and nobody has looked at it since."""
        return self.seen.zset("ct:deadlines").get(view.job_id, 2**53) <= self.seen.now

    def _stale(self) -> list[str]:
        return sorted(self.bench.granted.keys() - set(self._live()))

    def _token(self, pick: int) -> tuple[str, JobView]:
        live = self._live()
        token = live[pick % len(live)]
        return token, self.seen.jobs[self.bench.granted[token][0]]

    def _changes_nothing(self, call: Any) -> Any:
        """12. Calls, and checks that nothing changed."""
        before = self.bench.look().settled()
        answer = call()
        assert self.bench.look().settled() == before, "12"
        return answer

    # -- submitting and steering ------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.seen.jobs) < MOST_JOBS)
    @rule(
        total=TOTALS,
        queue=QUEUES,
        grain=st.sampled_from([1, 1, 3, 2**20]),
        offset=st.integers(0, 2),
        small=st.booleans(),
        key=st.sampled_from(["", "", "a", "b"]),
        digest=st.sampled_from(["x", "y"]),
        max_running=st.sampled_from([0, 0, 0, 1, 2]),
        timeout_ms=st.sampled_from([0, 0, 0, 500, 40_000]),
        tenant=st.sampled_from(["default", "a", "b", "b"]),
        hold=st.booleans(),
        needs=NEEDS,
        parents=PARENTS,
    )
    def submit(
        self,
        queue: str,
        grain: int,
        offset: int,
        needs: dict[str, Any] | None,
        parents: dict[str, list[int]],
        **given: Any,
    ) -> None:
        """A program has requirements, and is never small."""
        is_program = queue.startswith("runner.")
        given |= self._parents(given["tenant"], parents)
        given["small"] = given["small"] and not is_program
        new = new_job(
            self.bench.new_id(),
            queue=queue,
            grain=grain,
            offset=offset % grain,
            prefer=queue.startswith("gpu"),
            requirements=needs if is_program else None,
            estimate_ms=10 if given["small"] else 1000,
            **given,
        )
        known = self._known(new.idempotency)
        if known is None and (gone := self._unknown(new)):
            assert self._changes_nothing(lambda: self.bench.store.jobs.submit([new])) == [gone]
            return
        waits = self._after(new) != "queued"
        if known is None and self._is_full(new.tenant) and not new.hold and not waits:
            [over] = self._changes_nothing(lambda: self.bench.store.jobs.submit([new]))
            assert isinstance(over, CapReached) and (over.cap, over.value) == ("max_jobs", 2) and over.seconds >= 1
            return
        if known is None:
            assert self.bench.store.jobs.submit([new]) == [("new", new.job_id)]
            self.bench.jobs[new.job_id] = History(new)
            assert self.bench.client.hget(keys.job(new.job_id), "state") == self._after(new).encode()
            again = "same"
        else:
            again = "same" if self.bench.jobs[known].new.digest == new.digest else "conflict"
        assert self._changes_nothing(lambda: self.bench.store.jobs.submit([new])) == [(again, known or new.job_id)]

    def _parents(self, tenant: str, picks: dict[str, list[int]]) -> dict[str, tuple[str, ...]]:
        """Jobs of the tenant, mostly."""
        own = [job for job, view in self.seen.jobs.items() if view.tenant == tenant or len(self.seen.jobs) % 5 == 4]
        return {
            name: tuple(dict.fromkeys(own[pick % len(own)] for pick in those)) if own else ()
            for name, those in picks.items()
        }

    def _unknown(self, new: NewJob) -> tuple[str, str] | None:
        """The first parent that is another tenant's."""
        for name in ("after", "after_any"):
            for parent in getattr(new, name):
                if self.seen.jobs[parent].tenant != new.tenant:
                    return ("after" if parent in new.after else name, parent)
        return None

    def _after(self, new: NewJob) -> str:
        """The state of a new job by what its parents are."""
        needs = dict.fromkeys(new.after_any, "any") | dict.fromkeys(new.after, "ok")
        found = {self.seen.verdict(parent, need) for parent, need in needs.items()}
        return "skipped" if "skip" in found else "blocked" if "waits" in found else "queued"

    def _is_full(self, tenant: str) -> bool:
        """Tell whether as many jobs of the tenant wait or run as may."""
        return 0 < self.seen.cap(tenant, "max_jobs") <= len(self.seen.zset(f"ct:admitted:{tenant}"))

    def _known(self, key: str) -> str | None:
        """The job that an idempotency key stands for."""
        text = self.seen.keys.get(f"ct:idem:{key}", "") if key else ""
        job = text.partition("|")[0]
        return job if job in self.seen.jobs else None

    @rule(key=st.sampled_from(["a", "b"]))
    def key_expires(self, key: str) -> None:
        self.bench.client.delete(f"ct:idem:{key}")

    @precondition(lambda self: self.seen.jobs)
    @rule(pick=PICK, choice=PICK, hold=st.booleans())
    def steer(self, pick: int, choice: int, hold: bool) -> None:
        """A call that the state allows."""
        view = self._job(pick)
        calls = [call for call, states in ALLOWED.items() if view.state in states]
        if not calls:
            return
        call = calls[choice % len(calls)]
        children = self.seen.zset(keys.job_children(view.job_id))
        if call == "delete" and children:
            assert self._changes_nothing(lambda: self._steer(call, view)) == ["waited", str(len(children))]
        elif call == "retry" and self.seen.hash(keys.job_needs(view.job_id)):
            self._retry_waiting(view)
        elif call in ("resume", "retry") and self._is_full(view.tenant) and not hold:
            assert self._changes_nothing(lambda: self._steer(call, view))[:3] == ["over", "max_jobs", "2"]
        else:
            assert self._steer(call, view, hold=hold)[0] == "ok"

    def _retry_waiting(self, view: JobView) -> None:
        """Of a job that was skipped, or cancelled while it waited."""
        how, state, *_ = self._steer("retry", view, hold=True)
        after = self.look()
        if how == "skipped":
            assert after.is_bad(state) and after.jobs[view.job_id].state == view.state
        else:
            assert how == "ok" and after.jobs[view.job_id].state == state in ("blocked", "queued")

    @precondition(lambda self: self.seen.jobs)
    @rule(pick=PICK, choice=PICK)
    def steer_in_vain(self, pick: int, choice: int) -> None:
        view = self._job(pick)
        calls = [call for call, states in ALLOWED.items() if view.state not in states]
        call = calls[choice % len(calls)]
        answer = self._changes_nothing(lambda: self._steer(call, view))
        assert answer == ["ok" if view.state in REACHED[call] else "conflict", view.state]
        if view.state in ALLOWED["retry"]:
            assert self._changes_nothing(lambda: self.bench.store.jobs.retry(view.job_id, 2)) == ["version", "1"]

    def _steer(self, call: str, view: JobView, *, hold: bool = False) -> list[str]:
        jobs = self.bench.store.jobs
        if call == "retry":
            answer = jobs.retry(view.job_id, 1, hold=hold)
            if answer[0] == "ok" and view.state in ALLOWED["retry"]:
                self.bench.jobs[view.job_id].failed.clear()
            return answer
        return jobs.resume(view.job_id, hold=hold) if call == "resume" else getattr(jobs, call)(view.job_id)

    # -- workers ----------------------------------------------------------------------------------------------------

    @rule(
        pick=PICK,
        popped=st.booleans(),
        lanes=st.integers(1, 3),
        take=st.sampled_from([0, 1, 8]),
        version=st.sampled_from([None, 1, 1, 2]),
        gpus=FREE_GPUS,
        only=st.sampled_from(["", "", "a"]),
    )
    def next(self, pick: int, popped: bool, lanes: int, take: int, version: int | None, gpus: int, only: str) -> None:
        """Jobs are of version 1. `only`: the only tenant whose programs a runner may take."""
        kinds = version and {"sum": version}
        worker = self.workers[pick % len(self.workers)]
        gpu = {"memory_mib": 1000, "compute_capability": "8.0"}
        offer = {"cpus": 1, "memory_mib": 1000, "gpus": [gpu] * gpus, "host": "h", "labels": [], "tenant": only}
        is_runner = worker.listened[0].startswith("runner.")
        bell = self.bench.pop(worker.listened) if popped else ""
        found = self.bench.next(
            worker.name,
            worker.listened,
            popped=bell,
            lanes=lanes,
            take=take,
            kinds=kinds,
            offer=offer if is_runner else None,
        )
        worker.job = found.job_id if isinstance(found, Held) else ""
        after = self.look()
        assert version != 2 or isinstance(found, str)
        if found == "draining":
            assert after.hash(f"ct:worker:{worker.name}")["drain"] == "1"
        elif found == "none":
            assert not any(after.eligible(queue) for queue in worker.listened)
        elif isinstance(found, Held):
            assert not self.seen.is_capped(after.jobs[worker.job].tenant)
            assert not is_runner or _fits(after.jobs[worker.job], offer)
            if not self.seen.hash("ct:aged"):
                self._is_best(worker, after, offer)
        else:
            assert isinstance(found, Taken)

    def _is_best(self, worker: Worker, after: Snapshot, offer: dict[str, Any]) -> None:
        """Nothing waits in a better queue, nothing of a better priority could be helped, nor one with fewer holders."""
        mine = after.jobs[worker.job]
        better = queues.with_higher_priority(mine.queue, worker.listened)
        assert not any(after.eligible(queue) for queue in better)
        others = len(after.held(worker.job)) - 1
        for view in after.jobs.values():
            held = len(after.held(view.job_id))
            helpable = (
                view.state == "running"
                and view.queue in worker.listened
                and held > 0
                and view.leasable(after.now)
                and not after.is_capped(view.tenant)
                and after.left_today(view.tenant) > 0
                and (not view.is_program or _fits(view, offer))
            )
            own = self.seen.slots.get(worker.name, ("", 0))[0]  # which NEXT put at the end of pending first
            waited = worker.job in {own: "", **self.seen.waiting(), **self.seen.unsupported()} or others == 0
            above = view.queue in queues.with_higher_priority(mine.queue, worker.listened)
            assert not (helpable and above)
            below = mine.queue in queues.with_higher_priority(view.queue, worker.listened)
            assert waited or not helpable or below or view.job_id == worker.job or held >= others or after.tenants()

    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        worker = self.workers[pick % len(self.workers)]
        self.bench.store.slots.leave(worker.name)
        worker.job = ""

    @rule(
        pick=PICK,
        call=st.sampled_from(["hold", "beat", "beat", "goodbye", "drain", "undrain", "lose_bell", "die", "reborn"]),
    )
    def worker_calls(self, pick: int, call: str) -> None:
        getattr(self, f"_{call}")(self.workers[pick % len(self.workers)])

    def _hold(self, worker: Worker) -> None:
        assert self.bench.store.slots.hold(worker.name) == (worker.name in self.seen.slots)

    def _beat(self, worker: Worker, *, leaving: bool = False) -> None:
        facts = {"device": worker.listened[0].partition(".")[0]}
        expected = "drain" if self._drained(worker) and not leaving else "ok"
        assert self.bench.store.fleet.heartbeat(worker.name, f"{worker.born:05}", facts, leaving=leaving) == expected
        if leaving:
            self._has_let_go(worker)

    def _goodbye(self, worker: Worker) -> None:
        self._beat(worker, leaving=True)

    def _reborn(self, worker: Worker) -> None:
        """Its process ended, and another runs under its name."""
        worker.born += 1
        self._beat(worker)
        self._has_let_go(worker)

    def _has_let_go(self, worker: Worker) -> None:
        """A runner's leases end with it. No other worker has leases of programs, but in these tests."""
        after = self.look()
        if not worker.listened[0].startswith("runner."):
            return
        for view in after.jobs.values():
            for text in after.hash(keys.job_lease(view.job_id)).values() if view.is_program else ():
                assert text.rpartition(":")[2].rpartition("/")[0] != worker.name

    def _drain(self, worker: Worker) -> None:
        assert self.bench.store.fleet.drain(worker.name) == (f"ct:worker:{worker.name}" in self.seen.keys)

    def _undrain(self, worker: Worker) -> None:
        self.bench.store.fleet.drain(worker.name, on=False)

    def _lose_bell(self, worker: Worker) -> None:
        self.bench.pop(worker.listened)

    def _die(self, worker: Worker) -> None:
        """It never calls again; another starts."""
        self.workers.remove(worker)
        self._hire(Device(worker.name.partition("-")[0]))

    # -- leases -----------------------------------------------------------------------------------------------------

    @rule(who=PICK, share=SHARE, least=st.integers(1, 2), higher=st.booleans())
    def lease(self, who: int, share: int, least: int, higher: bool) -> None:
        """From the job that this worker holds."""
        worker = self.workers[who % len(self.workers)]
        if worker.job in self.seen.jobs:
            self._lease(worker, self.seen.jobs[worker.job], share, least, higher)

    @precondition(lambda self: self.seen.jobs)
    @rule(pick=PICK, who=PICK, share=SHARE)
    def lease_from_any(self, pick: int, who: int, share: int) -> None:
        """A worker whose slot was reaped may still ask."""
        self._lease(self.workers[who % len(self.workers)], self._job(pick), share, 1, higher=False)

    def _lease(self, worker: Worker, view: JobView, share: int, least: int, higher: bool) -> None:
        above = queues.with_higher_priority(view.queue, worker.listened) if higher else ()
        want = max(1, view.total // share)
        answer = self.bench.lease(view.job_id, want, worker.name, least=least, higher=above)
        self.bench.extra[view.queue] += len(self.seen.zset("ct:workers")) if view.state == "queued" else 0
        self._check_lease(view, answer, max(want, least), above, worker)

    def _check_lease(
        self, view: JobView, answer: Grant | str, want: int, above: tuple[str, ...], worker: Worker
    ) -> None:
        drained = self._drained(worker)
        busy = any(self.seen.eligible(queue) for queue in above)
        contended = bool(above) and bool(self.seen.tenants() or self.seen.hash("ct:aged"))
        capped, spent = self.seen.is_capped(view.tenant), self.seen.left_today(view.tenant) <= 0
        if isinstance(answer, Grant):
            assert not drained and not busy and not capped and view.state in {"queued", "running"} and not spent
            is_cut_well(view, answer, want)
        elif answer == "yield":
            assert drained or busy or contended or spent
        elif answer == "finishing":
            assert view.state == "finishing"
        elif answer == "wait":
            assert capped or not self.bench.job(view.job_id).leasable(self.seen.now)
        else:
            after = self.bench.job(view.job_id)
            assert after.state not in {"queued", "running", "finishing"} or after.number("backlog")

    @precondition(lambda self: self._live())
    @rule(pick=PICK)
    def lease_again(self, pick: int) -> None:
        """A repeated call gives the same range while it lives and the job runs."""
        token, view = self._token(pick)
        overdue = self._overdue(view)
        if view.state == "running" and min(view.expiries.values()) > self.seen.now and not overdue:
            call = partial(self.bench.store.leases.lease, view.job_id, token, want=1, worker="w")
            answer: Any = call() if self.bench.stepped_back else self._changes_nothing(call)
            assert (answer.lo, answer.hi) == view.leases[token]

    @precondition(lambda self: self._live())
    @rule(pick=PICK, units=st.integers(0, 2))
    def beat(self, pick: int, units: int) -> None:
        token, view = self._token(pick)
        granted = int(self.seen.hash(keys.job_lease(view.job_id))[token].split(":")[5])
        answer = self.bench.beat(token, view.leases[token][0] + units)
        hung = self.seen.now - granted > view.number("max_ms")
        if view.state in {"cancelling", "failed"} or hung or self._overdue(view):
            assert answer == 0
        else:
            assert answer == (2 if view.state == "paused" else 1)

    @precondition(lambda self: self._live())
    @rule(pick=PICK, share=st.sampled_from([1, 1, 2, 3]), keep=st.booleans())
    def commit(self, pick: int, share: int, keep: bool) -> None:
        token, view = self._token(pick)
        lo, hi = view.leases[token]
        upto = lo + max(1, (hi - lo) // share)
        if self._forgotten(token, view):
            assert not self._changes_nothing(lambda: self.bench.commit(token, hi, keep=keep)).merged
            return
        done = self.bench.commit(token, upto, keep=keep)
        assert done.merged and done.finishing == (self.bench.job(view.job_id).state == "finishing")
        if keep and upto < hi:
            again = partial(self.bench.store.leases.commit, view.job_id, token, upto, b"{}", keep=True, lo=lo)
            assert self._changes_nothing(lambda: again(ms=1, worker="w", device="cpu")).merged
            assert self.bench.job(view.job_id).leases[token] == (upto, hi)
        else:
            assert not self._changes_nothing(lambda: self.bench.commit(token)).merged

    def _forgotten(self, token: str, view: JobView) -> bool:
        """Redis has lost that the lease was kept, and begins it where it began before."""
        return self.bench.granted[token][1][0] != view.leases[token][0]

    def _programs(self) -> list[str]:
        """Tokens of living leases of programs."""
        return sorted(token for view in self.seen.jobs.values() if view.is_program for token in view.leases)

    @precondition(lambda self: self._programs())
    @rule(pick=PICK, wait_ms=st.sampled_from([0, 1000, 60_000]))
    def fail_unit(self, pick: int, wait_ms: int) -> None:
        """The first unit waits, or is given up; the others of the lease are leased next."""
        tokens = self._programs()
        token = tokens[pick % len(tokens)]
        view = self.seen.jobs[self.bench.granted[token][0]]
        lo, hi = view.leases[token]
        call = partial(self.bench.fail_unit, token, wait_ms=wait_ms, row="{}")
        if self._forgotten(token, view):
            assert not self._changes_nothing(call)
            return
        assert call()
        after = self.bench.job(view.job_id)
        assert (lo, lo + 1) in [*after.retry, *after.dead] and (hi - lo == 1 or (lo + 1, hi) in after.free)
        assert not self._changes_nothing(call)

    @precondition(lambda self: self._live())
    @rule(pick=PICK, at=st.integers(1, 3))
    def split(self, pick: int, at: int) -> None:
        token, view = self._token(pick)
        lo, hi = view.leases[token]
        if lo + at < hi:
            assert self.bench.split(token, lo + at)
            self.bench.extra[view.queue] += len(self.seen.zset("ct:workers"))
            assert (lo + at, hi) in self.bench.job(view.job_id).free
        assert not self._changes_nothing(lambda: self.bench.split(token, lo))

    @precondition(lambda self: self._live())
    @rule(pick=PICK)
    def done1(self, pick: int) -> None:
        token, view = self._token(pick)
        if view.leases[token] == (0, view.total) == self.bench.granted[token][1] and not view.is_program:
            assert self.bench.done1(token) == (view.state != "cancelling")
            assert not self._changes_nothing(lambda: self.bench.done1(token))

    @precondition(lambda self: self._live())
    @rule(pick=PICK, call=st.sampled_from(["release", "crash", "crash", "fail"]))
    def give_up(self, pick: int, call: str) -> None:
        token, _ = self._token(pick)
        assert getattr(self.bench, call)(token)
        assert not self._changes_nothing(lambda: getattr(self.bench, call)(token))

    @precondition(lambda self: self._stale())
    @rule(pick=PICK, call=st.sampled_from(["beat", "done1", "release", "crash", "fail", "commit"]))
    def zombie(self, pick: int, call: str) -> None:
        """12. A token that ended gets 0, whatever it says."""
        stale = self._stale()
        answer = self._changes_nothing(lambda: getattr(self.bench, call)(stale[-1 - pick % len(stale)]))
        assert not (answer.merged if call == "commit" else answer)

    # -- results ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.seen.jobs)
    @rule(pick=PICK, limit=st.sampled_from([0, 1, 2, 256]))
    def fold(self, pick: int, limit: int) -> None:
        view = self._job(pick)
        gathered = self.bench.store.results.gather(view.job_id, limit or 256)
        parts = len(gathered.parts)
        wrong = replace(gathered, accumulator=b"{}") if limit else replace(gathered, parts=(*gathered.parts, b"{}"))
        assert not self._changes_nothing(lambda: self.bench.store.results.fold(view.job_id, wrong, b"{}"))
        assert self.bench.fold(view.job_id, limit or 256) == (parts > 0)
        assert not self._changes_nothing(lambda: self.bench.store.results.fold(view.job_id, gathered, b"{}"))

    @precondition(lambda self: any(view.state == "finishing" for view in self.seen.jobs.values()))
    @rule(pick=PICK, abort=st.booleans())
    def finish(self, pick: int, abort: bool) -> None:
        views = [view for view in self.seen.jobs.values() if view.state == "finishing"]
        view = views[pick % len(views)]
        job, gathered = view.job_id, self.bench.store.results.gather(view.job_id)
        wrong = replace(gathered, accumulator=b"{}")
        assert not self._changes_nothing(lambda: self.bench.store.results.finish(job, wrong, b"{}"))
        if view.parts:
            assert not self._changes_nothing(lambda: self.bench.store.results.finish(job, gathered, b"{}"))
        assert self.bench.store.results.abort(job, "no result") if abort else self.bench.finish(job)
        assert not self._changes_nothing(lambda: self.bench.store.results.finish(job, gathered, b"{}"))
        assert not self._changes_nothing(lambda: self.bench.store.results.abort(job, "no result"))

    @precondition(lambda self: any(view.state == "finishing" for view in self.seen.jobs.values()))
    @rule(pick=PICK)
    def count_derive_crash(self, pick: int) -> None:
        views = [view for view in self.seen.jobs.values() if view.state == "finishing"]
        job, token = views[pick % len(views)].job_id, self.bench.new_token()
        assert self.bench.store.results.count_derive_crash(job, token, "died") == (
            self.bench.job(job).state == "failed"
        )
        assert not self._changes_nothing(lambda: self.bench.store.results.count_derive_crash(job, token, "died"))

    # -- lost writes ------------------------------------------------------------------------------------------------

    @rule()
    def log_reaches_the_disk(self) -> None:
        self.backup = self.bench.back_up()

    @rule()
    def redis_comes_back_without_its_last_writes(self) -> None:
        self.bench.come_back(self.backup)

    @precondition(lambda self: self._live())
    @rule(pick=PICK, lost=st.sampled_from([1, 2, 3]), kept=st.sampled_from([1, 2, 3]), limit=st.sampled_from([1, 256]))
    def a_commit_is_lost_while_a_fold_is_in_flight(self, pick: int, lost: int, kept: int, limit: int) -> None:
        """The same lease commits another share afterwards: the parts are as many as they were."""
        token, view = self._token(pick)
        lo, hi = view.leases[token]
        backup = self.bench.back_up()
        self.bench.commit(token, lo + max(1, (hi - lo) // lost))
        gathered = self.bench.store.results.gather(view.job_id, limit)
        self.bench.come_back(backup)
        self.bench.commit(token, lo + max(1, (hi - lo) // kept))
        self.bench.fold_read(view.job_id, gathered)

    @precondition(lambda self: self.seen.jobs)
    @rule(pick=PICK)
    def read(self, pick: int) -> None:
        """A caller reads what it is about to fold or make a result of."""
        job = self._job(pick).job_id
        self.gathered.append((job, self.bench.store.results.gather(job)))

    @precondition(lambda self: self.gathered)
    @rule(pick=PICK)
    def fold_or_finish_late(self, pick: int) -> None:
        """Whatever happened since it was read; the invariants say whether it may count."""
        job, gathered = self.gathered.pop(pick % len(self.gathered))
        late = self.bench.fold_read if gathered.parts else self.bench.finish_read
        late(job, gathered)

    # -- time -------------------------------------------------------------------------------------------------------

    @rule(ms=DELAYS)
    def time_passes(self, ms: int) -> None:
        self.bench.advance(ms)

    @rule()
    def day_turns(self) -> None:
        self.bench.advance(DAY_MS - self.seen.now % DAY_MS)

    @precondition(lambda self: not self.steady)
    @rule(ms=st.sampled_from([100, 10_000, 3_600_000]))
    def clock_steps_back(self, ms: int) -> None:
        self.bench.advance(-ms)

    @rule()
    def sweep(self) -> None:
        gpu_alive = any(until >= self.seen.now for until in self.seen.zset("ct:workers:gpu").values())
        self.bench.sweep(self.age_seconds)
        after = self.look()
        for queue in queues.ALL:
            assert len(after.members(f"rq:queue:{queue}")) == len(after.eligible(queue))
        if not gpu_alive:
            assert not any(after.pending(queue) for queue in queues.ALL if queue.startswith("gpu."))

    @rule()
    def wake(self) -> None:
        self.bench.wake()
        assert not self.bench.client.exists(keys.WAKING)

    def _pass_grace(self) -> None:
        """SWEEP runs; after it had not for long, leases of programs are taken back when it has run for their time."""
        self.bench.sweep()
        for _ in range(11 if any(view.is_program for view in self.seen.jobs.values()) else 0):
            self.bench.advance(3000)
            self.bench.sweep()

    # -- the end ----------------------------------------------------------------------------------------------------

    def finish_everything(self) -> None:
        """13, 14. With the clock moved, one SWEEP and one honest worker finish every job that is not paused.

        Where the clock stepped back, SWEEPs before bring near what falls due: leases and slots, then what those held.
        """
        if self.seen.tenants():
            self._share()
        for _ in range(1 if self.steady else 2):
            self.bench.sweep()
            self.bench.advance(LONG)
        self._pass_grace()
        self.look()
        self.bench.work_through()
        at_rest(self.look())
        for view in self.seen.jobs.values():
            if view.state == "paused":
                self.bench.store.jobs.cancel(view.job_id)
        self.bench.work_through()
        for ms in (LONG, LONG * 1000):  # a lease from before the clock stepped back ends first, then the job
            self.bench.advance(ms)
            self._pass_grace()
        assert not self.look().jobs, "jobs are purged when their time is over"
        assert self.look().members("ct:load") == [] or set(self.seen.hash("ct:load").values()) == {"0"}


def _fits(view: JobView, offer: dict[str, Any]) -> bool:
    """A runner with this offer may take the program."""
    if view.state == "finishing":
        return True
    lacking = requirements.describe_shortfalls(json.loads(view.fields.get("requirements", "{}")), offer)
    return not lacking and offer["tenant"] in ("", view.tenant)


def test_any_order_of_calls_keeps_the_invariants(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def machine() -> LeaseMachine:
        made = LeaseMachine(redis_url)
        monkeypatch.setattr(lease_tokens, "new", made.bench.new_token)
        monkeypatch.setattr("jobs.store.work.leases.secrets.randbelow", lambda _: 500)
        return made

    factory: Any = machine  # hypothesis takes what makes a machine, and says that it takes a class alone
    run_state_machine_as_test(factory, settings=SETTINGS)
