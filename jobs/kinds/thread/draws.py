"""Numbers of the random words below a key, for both devices and the reference; README, `Random numbers`."""

from __future__ import annotations

#: Numbers of a thread's draws below its key; children have 0..2^20-1.
OFFSPRING, WORK, BRANCH = 2**40, 2**40 + 1, 2**40 + 2
#: Numbers, below a replica's key, of the keys of interarrival times and of steal victims; roots have 0..2^20-1.
ARRIVALS, VICTIMS = 2**40 + 2, 2**40 + 3
