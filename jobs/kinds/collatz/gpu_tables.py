"""Tables of the Collatz kernels in GPU memory."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from jobs.kinds import gpu
from jobs.kinds.collatz import tables
from jobs.kinds.collatz.verify_sieve import Sieve, sieve


class Descent(NamedTuple):
    """Tables in GPU memory for statistics: residue classes modulo 2^bits, and delays of small numbers."""

    packed: gpu.Array
    first: Any
    delays: gpu.Array
    powers: gpu.Array


@lru_cache(maxsize=4)
def sieve_on(device: Any) -> Sieve:
    host = sieve()
    return Sieve(
        residues=host.residues,
        packed=device.put(host.packed),
        masks=device.put(host.masks),
        threes=device.put(host.threes),
        powers=device.put(host.powers),
    )


@lru_cache(maxsize=4)
def descent_on(device: Any, bits: int) -> Descent:
    groups, lookup = tables.groups(bits), tables.lookup()
    return Descent(
        packed=device.put(groups.packed),
        first=groups.first,
        delays=device.put(lookup.delays),
        powers=device.put(lookup.powers),
    )
