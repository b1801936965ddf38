"""Indexes of the random numbers that a simulation draws; see the section "Random numbers" of README.md."""

from __future__ import annotations

#: Indexes of a thread's random numbers in the thread's key; the indexes 0..2^20-1 belong to its children.
OFFSPRING, WORK, BRANCH = 2**40, 2**40 + 1, 2**40 + 2
#: Indexes, in a replica's key, of the keys for arrival times and steal victims; the indexes 0..2^20-1 belong to roots.
ARRIVALS, VICTIMS = 2**40 + 2, 2**40 + 3
