"""Chooses the number of units of a lane's next lease from the lane's measured rate.

Rates of jobs differ by up to a factor of 100.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Target duration in seconds of a lane's first lease of a job.
FIRST_SECONDS = 0.2
#: Target duration in seconds of later leases of the job.
TARGET_SECONDS = 1.0
#: Target duration in seconds of the smallest lease near the end of a job.
LEAST_SECONDS = 0.05
#: Maximum factor by which one lease can raise a measured rate.
#: Three short leases then correct an estimate that is 100 times too low.
GROWTH = 8.0


@dataclass
class Pace:
    """Measured rate of one lane for one job, in units per second."""

    rate: float
    measured: bool = False

    def want(self, seconds: float = TARGET_SECONDS) -> int:
        """Return the number of units of the next lease, which should take `seconds` if the rate is measured."""
        return max(1, int(self.rate * (seconds if self.measured else FIRST_SECONDS)))

    def least(self) -> int:
        """Return the number of units of the smallest lease that is worth its overhead."""
        return max(1, int(self.rate * LEAST_SECONDS))

    def learn(self, units: int, seconds: float) -> None:
        """Update the rate with the duration of a committed lease. Growth is bounded, so short leases count too."""
        seen = units / max(seconds, 1e-6)
        if self.measured:
            seen = (self.rate + seen) / 2 if seen < self.rate else seen
        self.rate = max(min(seen, self.rate * GROWTH), 1e-9)
        self.measured = True
