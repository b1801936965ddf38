"""The model once more, written for SimPy from the words of jobs/kinds/thread/README.md: one process a core.

Independent of the reference and of the kernel: it shares the tables of a spec and nothing else. A blocked core is a
process inside a process, a preempted thread a generator put aside, and the calendar is SimPy's.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator
from typing import Any, TypeAlias

import simpy
from simpy.events import NORMAL, EventPriority

from jobs.kinds.thread import tables

_ALL = 2**64 - 1
_LOGS = tables.logarithms()
Steps: TypeAlias = Generator[Any, Any, None]


def child(key: int, number: int) -> int:
    word = (key + 0x9E3779B97F4A7C15 * (number + 1)) & _ALL
    word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) & _ALL
    word = ((word ^ word >> 27) * 0x94D049BB133111EB) & _ALL
    return word ^ word >> 31


def scrambled(word: int) -> int:
    return child(word - 0x9E3779B97F4A7C15 & _ALL, 0)


def exponential(mean: int, word: int) -> int:
    """mean x -ln((word | 1) / 2^64), the logarithm in units of 2^-24."""
    bits = (word | 1).bit_length()
    place, rest = divmod(((word | 1) << (64 - bits)) - 2**63 >> 33, 2**20)
    log = (64 - bits) * _LOGS[0] + _LOGS[place] - ((_LOGS[place] - _LOGS[place + 1]) * rest + 2**19 >> 20)
    return mean * log + 2**23 >> 24


class Firing(simpy.Event):
    """Event that fires `delay` after it succeeds, before later ranks of the same time."""

    def __init__(self, env: simpy.Environment, rank: int, delay: int = 0) -> None:
        super().__init__(env)
        self.rank, self.delay = EventPriority(rank), delay


class Calendar(simpy.Environment):
    """Orders the events of one time by their ranks."""

    def schedule(self, event: simpy.Event, priority: EventPriority = NORMAL, delay: float = 0) -> None:
        if isinstance(event, Firing):
            priority, delay = event.rank, event.delay
        super().schedule(event, priority, delay)


class Thread:
    def __init__(self, machine: Machine, key: int, parent: Thread | None, warm: bool) -> None:
        self.key, self.parent, self.warm = key, parent, warm
        self.depth: int = parent.depth + 1 if parent else 0
        self.born = self.queued = machine.now
        machine.seen["threads"] += 1
        self.waited = self.missing = self.wanted = self.left = 0
        self.has_begun = False
        self.all_done = Firing(machine.env, rank=-1)


class Machine:
    """Runs one replica; `found` has what a row of the kernel has under the same names."""

    def __init__(self, spec: Any, number: int, replica: int) -> None:
        self.spec, self.env = spec, Calendar()
        self.cores, self.policy = spec["cells"][number]
        self.key = child(scrambled(spec["seed"]), replica)
        self.shared: deque[Thread] = deque()
        self.own: list[deque[Thread]] = [deque() for _ in range(self.cores)]
        self.wake: list[Firing | None] = [None] * self.cores
        self.tries = [0] * self.cores
        self.seen: Counter[str] = Counter()
        self.room = spec["max_threads"] - spec["thread_count"]
        self.alive = spec["thread_count"]
        self.blocked = 0
        self.over = simpy.Event(self.env)
        for core in range(self.cores):
            self.env.process(self.core(core))
        if spec["arrival"]:
            self.env.process(self.roots())
        else:
            self.shared.extend(Thread(self, child(self.key, root), None, False) for root in range(self.alive))
        self.env.run(self.over)
        self.found = self.row()

    @property
    def now(self) -> int:
        """Nanoseconds. SimPy allows fractions; there are none here."""
        return int(self.env.now)

    def after(self, delay: int, core: int) -> simpy.Event:
        """Fires in `delay`; at one time arrivals (core -1) come first, then cores in the order of their numbers."""
        return Firing(self.env, rank=core + 2, delay=delay).succeed()

    def roots(self) -> Steps:
        law, clock = self.spec["arrival"], 0
        for number in range(self.spec["thread_count"]):
            clock += exponential(law["mean"], child(child(self.key, 2**40 + 2), number))
            yield self.after((clock >> law["bits"]) - self.now, -1)
            self.shared.append(Thread(self, child(self.key, number), None, number < law["warmup"]))
            self.serve()

    def serve(self) -> None:
        """Wakes idle cores when all that happens now has happened, but before the next arrival or core."""
        event = Firing(self.env, rank=0)
        assert event.callbacks is not None
        event.callbacks.append(self.give)
        event.succeed()

    def give(self, _: simpy.Event) -> None:
        """In the order of their numbers, while there is something for them."""
        waiting = [core for core in range(self.cores) if self.wake[core] is not None]
        for core in waiting[: len(self.shared)]:
            sleeper, self.wake[core] = self.wake[core], None
            assert sleeper is not None
            sleeper.succeed()

    # A core

    def core(self, core: int) -> Steps:
        stealing = self.policy == "work_stealing"
        while True:
            if self.own[core]:
                thread = self.own[core].pop()
            elif stealing and self.shared:
                thread = self.shared.popleft()
            elif stealing and self.cores > 1:
                yield self.after(self.spec["steal_ns"], core)
                stolen = self.steal(core)
                if stolen is None:
                    continue
                thread = stolen
            else:
                self.wake[core] = Firing(self.env, rank=-1)
                self.serve()
                yield self.wake[core]
                thread = self.shared.pop() if self.policy == "lifo" else self.shared.popleft()
            yield from self.turn(core, thread)

    def steal(self, core: int) -> Thread | None:
        stream = child(self.key, 2**40 + 3) + scrambled(core) & _ALL
        other = (child(stream, self.tries[core]) >> 32) * (self.cores - 1) >> 32
        self.tries[core] += 1
        self.seen["attempts"] += 1
        victim = self.own[other + (other >= core)]
        self.seen["steals"] += len(victim) > 0
        return victim.popleft() if victim else None

    def turn(self, core: int, thread: Thread) -> Steps:
        """From a dispatch to where the thread lets go of the core."""
        thread.waited += self.now - thread.queued
        self.seen["switches"] += 1
        yield self.after(self.spec["dispatch_ns"] + self.first(thread), core)
        while thread.left:
            if self.shared:
                thread.queued = self.now
                self.shared.append(thread)
                return
            yield self.after(self.slice(thread), core)
        self.measure(thread)
        children = self.spawn(core, thread)
        if not children or self.spec["join"] == "none":
            yield from self.end(core, thread)
        elif self.spec["join"] == "block":
            self.blocked += 1
            self.stuck()
            self.serve()
            yield thread.all_done
            self.blocked -= 1
            yield from self.go_on(core, thread)

    def first(self, thread: Thread) -> int:
        if not thread.has_begun:
            thread.has_begun = True
            thread.wanted = self.children(thread)
            thread.left = self.work(thread) + thread.wanted * self.spec["spawn_ns"]
        return self.slice(thread)

    def slice(self, thread: Thread) -> int:
        part: int = min(thread.left, self.spec["quantum_ns"]) if self.policy == "round_robin" else thread.left
        thread.left -= part
        return part

    def spawn(self, core: int, thread: Thread) -> int:
        allowed = min(thread.wanted, self.room)
        self.room -= allowed
        self.alive += allowed
        self.seen["spawns_refused"] += thread.wanted - allowed
        thread.missing = allowed
        born = [Thread(self, child(thread.key, number), thread, thread.warm) for number in range(allowed)]
        if self.policy == "work_stealing":
            self.own[core].extend(born)
        else:
            self.shared.extend(born)
        return allowed

    def end(self, core: int, thread: Thread) -> Steps:
        self.alive -= 1
        if thread.parent is None and not thread.warm:
            self.seen["n_sojourns"] += 1
            self.seen["sum_sojourn_ns"] += self.now - thread.born
        if self.alive == 0:
            self.finish()
        parent = thread.parent
        if parent is None or self.spec["join"] == "none":
            return
        parent.missing -= 1
        if parent.missing == 0 and self.spec["join"] == "block":
            parent.all_done.succeed()
        elif parent.missing == 0:
            yield from self.go_on(core, parent)

    def go_on(self, core: int, thread: Thread) -> Steps:
        self.seen["switches"] += 1
        if self.spec["join_ns"]:
            yield self.after(self.spec["join_ns"], core)
        yield from self.end(core, thread)

    # What is drawn and measured

    def children(self, thread: Thread) -> int:
        if thread.depth >= self.spec["max_depth"]:
            return 0
        table, draw = self.spec["offspring"], child(thread.key, 2**40) >> 32
        row = table["thresholds"][thread.depth % len(table["thresholds"])]
        return next(value for value, threshold in zip(table["values"], row, strict=True) if draw < threshold)

    def work(self, thread: Thread) -> int:
        numbers, word = self.spec["work"]["numbers"], child(thread.key, 2**40 + 1)
        match self.spec["work"]["law"]:
            case "fixed":
                return int(numbers[0])
            case "uniform":
                return int(numbers[0] + (numbers[1] * (word >> 32) >> 32))
            case _:
                return max(1, exponential(numbers[0], word))

    def measure(self, thread: Thread) -> None:
        self.seen["n_measured"] += not thread.warm
        if not thread.warm:
            self.seen["sum_wait_ns"] += thread.waited
            self.seen["n_waited"] += thread.waited > 0
            self.seen["max_wait_ns"] = max(self.seen["max_wait_ns"], thread.waited)

    def stuck(self) -> None:
        if self.blocked == self.cores:
            self.seen["outcome"] = 1
            self.finish()

    def finish(self) -> None:
        self.seen["makespan_ns"] = self.now
        self.over.succeed()

    def row(self) -> dict[str, int]:
        if not self.seen["outcome"] and self.seen["spawns_refused"]:
            self.seen["outcome"] = 2
        names = (
            "makespan_ns",
            "threads",
            "attempts",
            "steals",
            "switches",
            "sum_wait_ns",
            "n_measured",
            "n_waited",
            "max_wait_ns",
            "spawns_refused",
            "sum_sojourn_ns",
            "n_sojourns",
            "outcome",
        )
        return {name: self.seen[name] for name in names}
