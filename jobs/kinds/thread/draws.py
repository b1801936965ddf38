"""Indexes of the random words of a key; see the section "Random numbers" of README.md."""

from __future__ import annotations

#: Indexes of a thread's draws. Children use the indexes 0..2^20-1 of the same key.
OFFSPRING, WORK, BRANCH = 2**40, 2**40 + 1, 2**40 + 2
#: Indexes, in a replica's key, of the keys for interarrival times and steal victims. Roots use 0..2^20-1.
ARRIVALS, VICTIMS = 2**40 + 2, 2**40 + 3
