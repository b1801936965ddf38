"""Constants of the random numbers; README, `Random numbers`. Both devices and the reference read them from here."""

from __future__ import annotations

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
FIRST_FACTOR = 0xBF58476D1CE4E5B9
SECOND_FACTOR = 0x94D049BB133111EB

#: Numbers of a thread's draws below its key; children have 0..2^20-1.
OFFSPRING, WORK, BRANCH = 2**40, 2**40 + 1, 2**40 + 2
#: Numbers of the streams of interarrival times and of steal victims below a replica's key; roots have 0..2^20-1.
ARRIVALS, VICTIMS = 2**40 + 2, 2**40 + 3
