"""Ports for servers of tests."""

from __future__ import annotations

import itertools
import os
import random
import re
import socket

#: Below the ports that the kernel gives to outgoing connections, which could take one between its choice and its use.
FIRST, LAST = 10_000, 30_000
#: Ports of one process of pytest-xdist.
SHARE = 1_000


def port_range(worker: str) -> range:
    """Return the ports of a process of pytest-xdist, by its name: gw0, gw1 ...; by its number where there is none."""
    number = re.fullmatch(r"gw(\d+)", worker)
    shares = (LAST - FIRST) // SHARE
    # The first half is for processes side by side; the other for sessions that know nothing of each other.
    share = int(number[1]) % (shares // 2) if number else shares // 2 + os.getpid() % (shares // 2)
    return range(FIRST + share * SHARE, FIRST + (share + 1) * SHARE)


def _from_anywhere(share: range) -> list[int]:
    """Return the ports of a share, beginning anywhere: another run on this machine may have the same share."""
    begin = random.SystemRandom().randrange(len(share))
    return [*share[begin:], *share[:begin]]


_candidates = itertools.cycle(_from_anywhere(port_range(os.environ.get("PYTEST_XDIST_WORKER", ""))))


def free_port() -> int:
    """Return a port of loopback that is free now and that no other test of this run gets."""
    for port in itertools.islice(_candidates, SHARE):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no port is free")
