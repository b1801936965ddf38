"""Verifies all numbers below 2^N by a search of the tree of their lowest bits. frontier.md explains and proves it."""

from __future__ import annotations

from functools import lru_cache
from time import monotonic
from typing import Any

import numpy as np

from jobs.kinds.collatz import frontier_pools as pools
from jobs.kinds.collatz import frontier_rules as rules
from jobs.kinds.collatz import frontier_tables, quads, vectors
from jobs.kinds.collatz import frontier_walk as walk
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
    powers = [3**c for c in range(min(leaf, rules.MOST_ODD) + 1)]
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
    from jobs.kinds.collatz import frontier_sweep_quad as quad
    from jobs.kinds.collatz import frontier_sweep_vector as vector

    return [portable, *[quad] * quads.available(), *[vector] * vectors.available()]


class Search:
    """Follows the numbers of nodes, and sums up the results of one block after the other."""

    def __init__(self, bits: int, module: Any) -> None:
        self.bits, self.leaf, self.module, self.tables = bits, bits - rules.LEAF_BITS, module, tables(bits)
        words = (np.zeros(walk.LEAVES, np.int64 if name == "c" else np.uint64) for name in walk.Leaves._fields)
        self.leaves, self.count, self.size = walk.Leaves(*words), 0, 0
        self.stack, self.tall = (np.zeros((size, walk.WORDS), np.uint64) for size in (walk.STACK, walk.TALL))
        self.pools, self.waiting = (pools.pool(bits), pools.pool(bits)), np.zeros(2, np.int64)
        self.room, self.counts = pools.room(), np.zeros(pools.COUNTS, np.uint64)
        #: Survivors, passes and checksum of numbers that Python followed, and the OR of their values.
        self.sums, self.every = [0, 0, 0], 0
        self.largest_bits = 0

    def start(self, node: rules.Node) -> None:
        """Add a node. Large nodes are walked at once, and small ones once STARTS of them wait."""
        row = [node.b % _WORD, node.b // _WORD, node.x % _WORD, node.x // _WORD, node.k, node.c]
        self.stack[self.size] = [*row, node.x % 3**rules.JOINS]
        self.size += 1
        if self.size == walk.STARTS or node.k < self.leaf + rules.LEAF_BITS - LARGE_BITS:
            self.walk()

    def walk(self, is_last: bool = False) -> None:
        """Walk down from all nodes that wait. With `is_last`, follow all numbers to their floors."""
        while self.size or is_last:
            args = (self.tall, self.tables, self.leaves, self.pools, self.waiting, self.room, self.counts)
            self.size, self.count, heads = self.module.search(self.size, self.count, is_last, self.stack, *args)
            self._check(heads >= 0)
            for node in self.tall[:heads].tolist():
                self._follow_tall(node[walk.B_LOW] + (node[walk.B_HIGH] << 64), node[walk.K])
            is_last = is_last and bool(self.size or heads)

    def finish_block(self) -> list[int]:
        """Follow all numbers to their floors. Return the sums since the last call: survivors, passes, checksum."""
        self.walk(is_last=True)
        return self._take_sums()

    def _take_sums(self) -> list[int]:
        counts, lanes = self.counts.tolist(), vectors.WIDTH
        low, high, every_low, every_high = (counts[at : at + lanes] for at in range(0, 4 * lanes, lanes))
        checksum = sum(low) + (sum(high) << rules.LIMB) + counts[pools.SUM] + self.sums[2]
        every = self.every | every_low[0] | every_high[0] << rules.LIMB
        every |= sum(word << 64 * at for at, word in enumerate(counts[pools.BITS : pools.BITS + 3]))
        self.largest_bits = max(self.largest_bits, every.bit_length())
        sums = [counts[pools.SURVIVORS] + self.sums[0], counts[pools.PASSED] + self.sums[1], checksum % _WORD]
        self.counts[:], self.sums, self.every = 0, [0, 0, 0], 0
        return sums

    def _follow_tall(self, b: int, k: int) -> None:
        """Follow the numbers of a node one by one in Python."""
        for n in range(b, 2**self.bits, 2**k):
            if rules.survives(n, self.bits):
                passes, x, every = rules.follow(n, self.bits)
                self.sums = [self.sums[0] + 1, self.sums[1] + passes, self.sums[2] + x]
                self.every |= every

    @staticmethod
    def _check(is_done: bool) -> None:
        if not is_done:
            most = pools.PASSES * rules.PASS_STEPS
            raise ArithmeticError(f"a number exceeds 192 bits or does not fall below its start within {most:,} steps")


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
    return at, {"units": at - lo, "blocks": blocks, "largest_bits": search.largest_bits} if at > lo else {}


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
            x = rules.step(x)
            if x < n:
                break
        else:
            raise ArithmeticError(f"{n} does not fall below itself within 1,000 steps")


def warm() -> None:
    """Compile the functions for numbers of one word and of two words."""
    search_units(division(rules.LEAST_BITS), Search(rules.LEAST_BITS, all_sweeps()[-1]), 0, 1, lambda _: True)
