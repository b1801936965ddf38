"""Verifies all numbers below 2^N by a search of the tree of their lowest bits. frontier.md explains and proves it."""

from __future__ import annotations

from functools import lru_cache
from time import monotonic
from typing import Any

import numpy as np

from jobs.kinds.collatz import frontier_pools as pools
from jobs.kinds.collatz import frontier_rules as rules
from jobs.kinds.collatz import frontier_tables, vectors, verify
from jobs.kinds.collatz import frontier_walk as walk
from jobs.kinds.collatz import verify_sweep as sweep
from jobs.kinds.collatz.frontier_plan import Division, division
from jobs.kinds.contract import Tick
from jobs.models import Partial, Spec

#: Interval in seconds between calls of `tick`.
TICK_SECONDS = 0.08
#: Number of open bits above which a node takes milliseconds.
LARGE_BITS = 22

_WORD = 2**64


@lru_cache
def root_nodes(root: int) -> list[rules.Node]:
    """Return the numbered nodes of a division."""
    return rules.nodes(root)


def find_node(cut: Division, unit: int) -> tuple[rules.Node | None, int]:
    """Return the node of a unit, and the next unit.

    If a rule drops the unit, return None, and the first unit that the rule does not drop with it.
    """
    node = root_nodes(cut.root)[cut.node(unit)]
    for level in range(cut.more - 1, -1, -1):
        bit = unit >> level & 1
        found = [child for child in rules.children(node) if child.b >> node.k & 1 == bit]
        if not found:
            return None, ((unit >> level) + 1) << level
        node = found[0]
    return node, unit + 1


@lru_cache(1)
def tables(bits: int) -> walk.Tables:
    """Return the tables of a search of all numbers below 2^bits."""
    leaf, starts, size = bits - rules.LEAF_BITS, 3**rules.START_JOINS, 3**rules.JOINS
    joins = np.array([[rules.join(t, r) if r < 3**t else 0 for r in range(size)] for t in range(rules.JOINS + 1)])
    least = leaf * rules.ONE // rules.LOG3
    windows = np.zeros((leaf + 1, 2**rules.WINDOW // 64 + 1), np.uint64)
    for c in range(least, leaf + 1):
        frontier_tables.fill_window(c, leaf, joins, windows[c])
    live = [rules.join(rules.START_JOINS, r) >= rules.NEGATIVE for r in range(starts)]
    alive = [sum(live[(r + (a << leaf)) % starts] << a for a in range(2**rules.LEAF_BITS)) for r in range(starts)]
    powers = [3**c for c in range(leaf + 1)]
    return walk.Tables(
        joins=joins[rules.JOINS].copy(),
        power_low=np.array([power % _WORD for power in powers], np.uint64),
        power_high=np.array([power // _WORD for power in powers], np.uint64),
        inverses=np.array([pow(power, -1, 2**rules.WINDOW) for power in powers], np.uint64),
        windows=windows,
        starts=np.array(alive, np.uint64),
    )


def all_sweeps() -> list[Any]:
    """Return the modules that can follow numbers on this CPU, the fastest last."""
    from jobs.kinds.collatz import frontier_sweep_portable as portable
    from jobs.kinds.collatz import frontier_sweep_vector as vector

    return [portable, *[vector] * vectors.available()]


class Search:
    """Follows the numbers of nodes, and sums up the results of one block after the other."""

    def __init__(self, bits: int, module: Any) -> None:
        self.leaf, self.module, self.tables = bits - rules.LEAF_BITS, module, tables(bits)
        words = (np.zeros(walk.LEAVES, np.int64 if name == "c" else np.uint64) for name in walk.Leaves._fields)
        self.leaves, self.count, self.size = walk.Leaves(*words), 0, 0
        self.stack = np.zeros((walk.STACK, walk.WORDS), np.uint64)
        self.pools, self.waiting = (pools.pool(bits), pools.pool(bits)), [0, 0]
        self.room = verify.room_tables()[1]
        self.task = verify.piece(1 << 32, 2 << 32).task()
        self.counts = np.zeros(sweep.WORDS, np.uint64)
        self.bits = 0

    def start(self, node: rules.Node) -> None:
        """Add a node. Large nodes are walked at once, and small ones once STARTS of them wait."""
        row = [node.b % _WORD, node.b // _WORD, node.x % _WORD, node.x // _WORD, node.k, node.c]
        self.stack[self.size] = [*row, node.x % 3**rules.JOINS]
        self.size += 1
        if self.size == walk.STARTS or node.k < self.leaf + rules.LEAF_BITS - LARGE_BITS:
            self.walk()

    def walk(self) -> None:
        """Walk down from all nodes that wait."""
        while self.size:
            args = (self.size, self.count, self.leaf, self.tables, self.leaves)
            self.size, self.count = walk.walk(self.stack, *args)
            if self.count == walk.LEAVES:
                self._follow()

    def finish_block(self) -> list[int]:
        """Follow all numbers to their floors. Return the sums since the last call: survivors, passes, checksum."""
        self.walk()
        self._follow()
        for is_narrow in (True, False):
            args = (is_narrow, self.pools[is_narrow], self.task, self.room, self.counts)
            self._keep(is_narrow, self.module.down(self.waiting[is_narrow], 0, *args))
        totals = verify.SweepTotals()
        totals.add(self.counts.tolist())
        self.counts[:] = 0
        self.bits = max(self.bits, totals.bits)
        return [totals.candidates, totals.blocks, totals.checksum % _WORD]

    def _follow(self) -> None:
        walk.look_up(self.count, self.tables, self.leaves)
        args = (self.tables, self.leaves, self.pools[0], self.task, self.room, self.counts)
        self._check(pools.prepare(self.count, *args))
        for is_narrow in (True, False):
            args = (self.tables, self.leaves, self.pools[is_narrow], *args[3:])
            self._keep(is_narrow, self.module.sweep(self.waiting[is_narrow], self.count, is_narrow, *args))
        self.count = 0

    def _keep(self, is_narrow: bool, waiting: int) -> None:
        self.waiting[is_narrow] = waiting
        self._check(waiting >= 0)

    @staticmethod
    def _check(is_done: bool) -> None:
        if not is_done:
            raise ArithmeticError("a number exceeds 192 bits or does not fall below its start within 64,000 steps")


def run(spec: Spec, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
    """Verify units lo..hi-1 and return (upto, partial result of units lo..upto-1)."""
    cut = division(int(spec["bits"]))
    search = Search(cut.bits, all_sweeps()[-1])
    if lo == 0:
        check_base()
    return search_units(cut, search, lo, hi, tick)


def search_units(cut: Division, search: Search, lo: int, hi: int, tick: Tick) -> tuple[int, Partial]:
    """Search units lo..hi-1, block by block."""
    at, blocks = lo, []
    going = True
    clock = _Clock(tick, hi)
    while at < hi and going:
        block = cut.block(at)
        at, going = _search_block(cut, search, at, min(hi, cut.block_range(block)[1]), clock)
        blocks.append([block, *search.finish_block()])
    return at, {"units": at - lo, "blocks": blocks, "largest_bits": search.bits} if at > lo else {}


class _Clock:
    """Calls `tick` at most every TICK_SECONDS."""

    def __init__(self, tick: Tick, end: int) -> None:
        self.tick, self.end, self.ticked = tick, end, monotonic()

    def is_stopped(self, at: int) -> bool:
        """Note that the units before `at` are done. Return True if the lease must stop there."""
        now = monotonic()
        if now - self.ticked < TICK_SECONDS or at >= self.end:
            return False
        self.ticked = now
        return not self.tick(at)


def _search_block(cut: Division, search: Search, low: int, high: int, clock: _Clock) -> tuple[int, bool]:
    """Search units of one block. Return the next unit, and whether the lease goes on."""
    while low < high:
        node, after = find_node(cut, low)
        if node is not None:
            search.start(node)
        low = min(after, high)
        if clock.is_stopped(low):
            return low, False
    return low, True


def check_base() -> None:
    """Verify the numbers below 2^BASE_BITS, for which the rules are not proved, one by one."""
    for n in range(2, 2**rules.BASE_BITS):
        x = n
        for _ in range(1000):
            x = verify.steps(x, 1)
            if x < n:
                break
        else:
            raise ArithmeticError(f"{n} does not fall below itself within 1,000 steps")


def warm() -> None:
    """Compile the functions for numbers of one word and of two words."""
    search_units(division(rules.LEAST_BITS), Search(rules.LEAST_BITS, all_sweeps()[-1]), 0, 1, lambda _: True)
