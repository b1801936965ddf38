"""F1: numbers/s of Collatz mode `frontier` on one thread, compared with Angeltveit's search (arXiv 2602.10466).

ANGELTVEIT_SEARCH is the path of the peer's programs, in which {bits} stands for N: for example /path/to/search-{bits}.
F1_WHOLE lists the N of complete searches (default 40), and F1_SAMPLE the N of samples (default 60 70) of F1_CLASSES
(default 8) random classes. Both programs search the same classes. CPU time excludes the time to build tables.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import time

from benchmarks.measure import Row
from jobs.kinds.collatz import frontier, frontier_plan
from jobs.kinds.collatz.frontier_rules import Node, step
from jobs.kinds.contract import Tick

PEER_NAME = "Angeltveit's search"
#: Number of lowest bits that a random class leaves open, so that the peer takes about a second for it.
OPEN_BITS = 31
#: Class that the peer drops at once, and the class of all numbers that it has to search.
DROPPED, WHOLE = Node(0, 1, 0, 0), Node(3, 2, 2, 8)


def _numbers(name: str, default: str) -> list[int]:
    return [int(word) for word in os.environ.get(name, default).split()]


def _peer_seconds(program: str, node: Node) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    # The peer computes with values that are greater by 1.
    text = f"{node.b} {node.k} {node.c} {node.x + 1}"
    subprocess.run([program], input=text, capture_output=True, text=True, check=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def _peer(program: str, node: Node) -> float:
    """Return the CPU seconds in which the peer searches a class, without the time to build its tables."""
    setup = _peer_seconds(program, DROPPED)
    return max(_peer_seconds(program, node) - setup, 0.01)


def random_class(draw: random.Random, depth: int) -> Node:
    """Return a random class of a depth, none of whose first values is below its start."""
    while True:
        b = x = draw.getrandbits(depth)
        c = 0
        for k in range(1, depth + 1):
            c, x = c + x % 2, step(x)
            if 3**c < 2**k:
                break
        else:
            return Node(b, depth, c, x)


def classes(depth: int) -> int:
    """Return the number of classes from which `random_class` chooses: one for each possible order of parities."""
    ways = {0: 1}
    for k in range(1, depth + 1):
        following: dict[int, int] = {}
        for c, count in ways.items():
            for more in (c, c + 1):
                if 3**more >= 2**k:
                    following[more] = following.get(more, 0) + count
        ways = following
    return sum(ways.values())


def _whole(bits: int, program: str) -> Row:
    cut, search = frontier_plan.division(bits), frontier.Search(bits, frontier.all_sweeps()[-1])
    frontier.root_nodes(cut.root)
    go_on: Tick = lambda _: True  # noqa: E731
    started = time.process_time()
    frontier.search_units(cut, search, 0, cut.units, go_on)
    ours, peer = time.process_time() - started, _peer(program, WHOLE)
    return Row(id=f"F1@{bits}", ours=2**bits / ours, peer=2**bits / peer, unit="numbers/s", peer_name=PEER_NAME)


def _sample(bits: int, program: str, count: int) -> Row:
    search, draw, depth = frontier.Search(bits, frontier.all_sweeps()[-1]), random.Random(bits), bits - OPEN_BITS
    ours = peer = 0.0
    for number in range(count):
        node = random_class(draw, depth)
        started = time.process_time()
        search.start(node)
        search.finish_block()
        mine, theirs = time.process_time() - started, _peer(program, node)
        print(f"F1@{bits} class {number + 1}: ours {mine:.3f} s, peer {theirs:.3f} s", file=sys.stderr)
        ours, peer = ours + mine, peer + theirs
    numbers = count * 2**bits / classes(depth)
    unit = f"numbers/s, {count} random classes"
    return Row(id=f"F1@{bits}", ours=numbers / ours, peer=numbers / peer, unit=unit, peer_name=PEER_NAME)


def run() -> list[Row]:
    named = os.environ.get("ANGELTVEIT_SEARCH")
    if not named:
        print("F1 is left out: set ANGELTVEIT_SEARCH; see docs/benchmarks.md", file=sys.stderr)
        return []
    frontier.warm()
    whole = [_whole(bits, named.format(bits=bits)) for bits in _numbers("F1_WHOLE", "40")]
    count = _numbers("F1_CLASSES", "8")[0]
    return whole + [_sample(bits, named.format(bits=bits), count) for bits in _numbers("F1_SAMPLE", "60 70")]
