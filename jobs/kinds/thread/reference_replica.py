"""Reference simulation of the model in README.md: one object per thread, and one heap entry per event.

Every steal attempt is simulated.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from jobs.kinds.random import MASK, mix, sub
from jobs.kinds.thread import draws, rows
from jobs.kinds.thread.partials import flatten
from jobs.kinds.thread.reference_draws import draw_work, negative_log
from jobs.models import Spec


@dataclass(slots=True)
class Thread:
    key: int
    depth: int
    parent: Thread | None
    #: Time at which the thread last became ready.
    ready: int
    work: int
    #: Number of children that the thread tries to spawn.
    wanted: int
    #: Whether the times of this thread are measured; False for the threads of the warm-up.
    measured: bool
    #: Arrival time of the thread's root.
    arrived: int
    children: list[Thread] = field(default_factory=list)
    unfinished: int = 0
    #: Remaining duration of the thread's work in ns, without dispatch costs.
    left: int = 0
    waited: int = 0
    started: bool = False
    #: With join block, the core that the thread occupies while it waits for its children.
    core: Core | None = None


@dataclass(slots=True)
class Core:
    number: int
    thread: Thread | None = None
    #: Duration in ns of the work that the next event of the core completes.
    slice: int = 0
    continues: bool = False
    blocked: bool = False
    since: int = 0
    stealing: bool = False
    attempts: int = 0
    ready: deque[Thread] = field(default_factory=deque)

    @property
    def idle(self) -> bool:
        return self.thread is None and not self.stealing


class Replica:
    """One simulated run of the program. The constructor runs the simulation."""

    #: Number that represents the arrival of a root in events; it sorts before all core numbers.
    ARRIVAL = -1

    def __init__(self, spec: Spec, cell: int, replica: int) -> None:
        self.spec, self.cell, self.replica = spec, cell, replica
        cores, self.scheduler = spec["cells"][cell]
        self.quantum = spec["quantum_ns"] if self.scheduler == "round_robin" else None
        self.key = sub(mix(spec["seed"]), replica)
        self.cores = [Core(number) for number in range(cores)]
        self.queue: deque[Thread] = deque()
        self.events: list[tuple[int, int]] = []
        self.now = self.live = self.ready = 0
        self.threads: list[Thread] = []
        self.created = spec["thread_count"]
        self.waits: list[int] = []
        self.sojourns: list[int] = []
        self.count: Counter[str] = Counter()
        self.ready_integral = self.all_waits = 0
        self.deadlocked = False
        self._run()

    def _run(self) -> None:
        self.arrivals = self._arrivals()
        if self.spec["arrival"] is None:
            for number in range(self.spec["thread_count"]):
                self._arrive(number)
        else:
            heapq.heappush(self.events, (next(self.arrivals), self.ARRIVAL))
        self._dispatch()
        while self.events and not self.deadlocked:
            time, number = heapq.heappop(self.events)
            self._pass(time)
            if number == self.ARRIVAL:
                self._arrival()
            else:
                self._event(self.cores[number])
            self._dispatch()
            if not self.live and not self.coming:
                break
        self.count["idle"] += sum(self.now - core.since for core in self.cores)

    def _pass(self, time: int) -> None:
        self.ready_integral += self.ready * (time - self.now)
        self.now = time

    @property
    def coming(self) -> bool:
        """Whether more roots will arrive."""
        return self.spec["arrival"] is not None and self.arrived < self.spec["thread_count"]

    @property
    def arrived(self) -> int:
        return self.count["roots"]

    def _arrivals(self) -> Iterator[int]:
        law, clock = self.spec["arrival"], 0
        for number in range(self.spec["thread_count"] if law else 0):
            clock += (law["mean"] * negative_log(sub(sub(self.key, draws.ARRIVALS), number)) + 2**23) >> 24
            yield clock >> law["bits"]

    def _arrival(self) -> None:
        self._arrive(self.arrived)
        if self.coming:
            heapq.heappush(self.events, (next(self.arrivals), self.ARRIVAL))

    def _arrive(self, number: int) -> None:
        self.count["roots"] += 1
        self.queue.append(self._born(sub(self.key, number), None, number))

    def _born(self, key: int, parent: Thread | None, number: int) -> Thread:
        depth, wanted = parent.depth + 1 if parent else 0, 0
        if depth < self.spec["max_depth"]:
            wanted = self._offspring(depth, sub(key, draws.OFFSPRING) >> 32)
        warmup = self.spec["arrival"]["warmup"] if self.spec["arrival"] else 0
        measured = parent.measured if parent else number >= warmup
        arrived = parent.arrived if parent else self.now
        work = draw_work(self.spec["work"], key)
        thread = Thread(key, depth, parent, self.now, work, wanted, measured, arrived)
        self.threads.append(thread)
        self.live += 1
        self.ready += 1
        self.count["peak_live"] = max(self.count["peak_live"], self.live)
        return thread

    def _offspring(self, depth: int, draw: int) -> int:
        table = self.spec["offspring"]
        thresholds = table["thresholds"][depth if len(table["thresholds"]) > 1 else 0]
        return int(table["values"][sum(draw >= threshold for threshold in thresholds)])

    def _dispatch(self) -> None:
        for core in self.cores:
            if not core.idle:
                continue
            thread = self._next(core)
            if thread is not None:
                self._start(core, thread)
            elif self.scheduler == "work_stealing" and len(self.cores) > 1:
                self._attempt(core)
        self.count["peak_ready"] = max(self.count["peak_ready"], self.ready)
        self.deadlocked = all(core.blocked for core in self.cores)

    def _next(self, core: Core) -> Thread | None:
        if core.ready:
            return core.ready.pop()
        if not self.queue:
            return None
        return self.queue.pop() if self.scheduler == "lifo" else self.queue.popleft()

    def _rest(self, core: Core) -> None:
        """Add the time since the core became idle to the idle time, if the core is idle or blocked."""
        if core.blocked or core.idle:
            self.count["idle"] += self.now - core.since
        core.since = self.now

    def _start(self, core: Core, thread: Thread) -> None:
        self._rest(core)
        if not thread.started:
            thread.started, thread.left = True, thread.work + thread.wanted * self.spec["spawn_ns"]
        core.thread = thread
        self.ready -= 1
        self.count["dispatches"] += 1
        thread.waited += self.now - thread.ready
        self.all_waits += self.now - thread.ready
        self._slice(core, thread, self.spec["dispatch_ns"])

    def _slice(self, core: Core, thread: Thread, cost: int) -> None:
        core.slice = min(self.quantum or thread.left, thread.left)
        heapq.heappush(self.events, (self.now + cost + core.slice, core.number))

    def _segment(self, thread: Thread) -> int:
        return int(self.spec["dispatch_ns"] + thread.work + thread.wanted * self.spec["spawn_ns"])

    def _attempt(self, core: Core) -> None:
        self._rest(core)
        core.stealing = True
        heapq.heappush(self.events, (self.now + self.spec["steal_ns"], core.number))

    def _event(self, core: Core) -> None:
        if core.stealing:
            self._steal(core)
            return
        thread = core.thread
        assert thread is not None
        self.count["busy"] += self.now - core.since
        core.since = self.now
        if core.continues:
            core.thread, core.continues = None, False
            self._end(core, thread)
            return
        thread.left -= core.slice
        if thread.left:
            self._preempt(core, thread)
            return
        core.thread = None
        self._segment_ends(core, thread)

    def _preempt(self, core: Core, thread: Thread) -> None:
        """Finish a time slice. Requeue the thread if other threads are ready; otherwise it continues at no cost."""
        if not self.queue:
            self._slice(core, thread, 0)
            return
        core.thread, thread.ready = None, self.now
        self.ready += 1
        self.queue.append(thread)

    def _segment_ends(self, core: Core, thread: Thread) -> None:
        if thread.measured:
            self.waits.append(thread.waited)
        self._spawn(core, thread)
        if not thread.children or self.spec["join"] == "none":
            self._end(core, thread)
        elif self.spec["join"] == "block":
            core.thread, core.blocked, thread.core = thread, True, core

    def _steal(self, core: Core) -> None:
        self.count["steal"] += self.now - core.since
        core.stealing, core.since = False, self.now
        victim = self._victim(core)
        if victim.ready:
            self.count["steals"] += 1
            self._start(core, victim.ready.popleft())

    def _victim(self, core: Core) -> Core:
        """Draw the core from which the next steal attempt of a core tries to steal."""
        attempts_key = (sub(self.key, draws.VICTIMS) + mix(core.number)) & MASK
        others = [other for other in self.cores if other is not core]
        victim = others[(sub(attempts_key, core.attempts) >> 32) * len(others) >> 32]
        core.attempts += 1
        self.count["attempts"] += 1
        return victim

    def _spawn(self, core: Core, thread: Thread) -> None:
        allowed = min(thread.wanted, self.spec["max_threads"] - self.created)
        self.created += allowed
        self.count["refused"] += thread.wanted - allowed
        thread.children = [self._born(sub(thread.key, index), thread, index) for index in range(allowed)]
        thread.unfinished = allowed
        (core.ready if self.scheduler == "work_stealing" else self.queue).extend(thread.children)

    def _end(self, core: Core, thread: Thread) -> None:
        self.live -= 1
        parent = thread.parent
        if parent is None:
            if thread.measured:
                self.sojourns.append(self.now - thread.arrived)
            return
        parent.unfinished -= 1
        if parent.unfinished or self.spec["join"] == "none":
            return
        self._continue(parent.core or core, parent)

    def _continue(self, core: Core, thread: Thread) -> None:
        """Continue a parent thread after its last child has ended on this core."""
        self.count["joins"] += 1
        self._rest(core)
        core.thread, core.blocked = None, False
        if self.spec["join_ns"] == 0:
            self._end(core, thread)
            return
        core.thread, core.continues = thread, True
        heapq.heappush(self.events, (self.now + self.spec["join_ns"], core.number))

    def spans(self) -> tuple[int, int]:
        """Return the longest path through the threads with costs (burdened span), and the longest path of work alone.

        The burdened span is the makespan on infinitely many cores.
        """
        ends: dict[int, tuple[int, int]] = {}
        for thread in self.threads:
            before = ends[id(thread.parent)] if thread.parent else (thread.arrived, 0)
            ends[id(thread)] = (before[0] + self._segment(thread), before[1] + thread.work)
        finished = {key: end for key, (end, _) in ends.items()}
        if self.spec["join"] != "none":
            for thread in reversed(self.threads):
                if thread.children:
                    latest = max(finished[id(child)] for child in thread.children)
                    finished[id(thread)] = latest + self.spec["join_ns"]
        return max(finished.values()), max(work for _, work in ends.values())

    def by_depth(self) -> list[int]:
        counts = Counter(thread.depth for thread in self.threads)
        return [counts[depth] for depth in range(self.spec["max_depth"] + 1)]

    def row(self) -> dict[str, int]:
        """Return the measurements of the replica by the names in rows.ROW."""
        spec, count = self.spec, self.count
        started = [thread for thread in self.threads if thread.started]
        span, span_work = (0, 0) if self.deadlocked else self.spans()
        row = {
            "makespan_ns": self.now,
            "work_ns": sum(thread.work for thread in started),
            "overhead_ns": sum(self._segment(thread) - thread.work for thread in started)
            + count["joins"] * spec["join_ns"],
            "span_ns": span,
            "span_work_ns": span_work,
            "threads": len(self.threads),
            "max_depth_reached": max(thread.depth for thread in self.threads),
            "peak_live": count["peak_live"],
            "peak_ready": count["peak_ready"],
            "busy_ns": count["busy"],
            "steal_ns": count["steal"],
            "idle_ns": count["idle"],
            "steals": count["steals"],
            "attempts": count["attempts"],
            "switches": count["dispatches"] + count["joins"],
            "sum_wait_ns": sum(self.waits),
            "n_measured": len(self.waits),
            "n_waited": sum(wait > 0 for wait in self.waits),
            "spawns_refused": count["refused"],
            "outcome": self._outcome(),
            "sum_sojourn_ns": sum(self.sojourns),
            "n_sojourns": len(self.sojourns),
            "max_wait_ns": max(self.waits, default=0),
            "max_sojourn_ns": max(self.sojourns, default=0),
        }
        return {name: row[name] for name in rows.ROW}

    def _outcome(self) -> int:
        if self.deadlocked:
            return rows.OUTCOMES.index("deadlocked")
        return rows.OUTCOMES.index("capped" if self.count["refused"] else "completed")

    def measured(self) -> rows.Measured:
        again = self.count["dispatches"] - sum(thread.started for thread in self.threads)
        plain = self.scheduler in ("fifo", "lifo") and self.spec["join"] != "block"
        return rows.Measured(
            row=self.row(),
            by_depth=self.by_depth(),
            ready_ns=self.ready_integral,
            again_ns=again * self.spec["dispatch_ns"],
            greedy=plain and self.spec["arrival"] is None,
        )

    def partial(self) -> dict[str, Any]:
        """Return the measurements of the replica as a partial result."""
        cell = rows.cell_partial(len(self.cores), self.cell, self.replica, self.measured())
        if not self.deadlocked:
            cell["wait"] = flatten(Counter(map(rows.bin_of, self.waits)))
            cell["sojourn"] = flatten(Counter(map(rows.bin_of, self.sojourns)))
        return cell
