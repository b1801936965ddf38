"""Size of a lane's next lease: learned per lane and per job, since rates differ a hundredfold between modes."""

from __future__ import annotations

from dataclasses import dataclass

#: Seconds of work that a lane's first lease of a job aims at, and every later one.
FIRST_SECONDS = 0.2
TARGET_SECONDS = 1.0
#: Seconds of work in the smallest lease of a job's tail.
LEAST_SECONDS = 0.05
#: A rate may grow this much a lease: a guess 100 times too low then costs three short leases, not thousands.
GROWTH = 8.0


@dataclass
class Pace:
    """Units/s of one lane on one job."""

    rate: float
    measured: bool = False

    def want(self, seconds: float = TARGET_SECONDS) -> int:
        """Return the units of the next lease, which aims at so much work once a rate was measured."""
        return max(1, int(self.rate * (seconds if self.measured else FIRST_SECONDS)))

    def least(self) -> int:
        """Return the units of the smallest lease worth its overhead."""
        return max(1, int(self.rate * LEAST_SECONDS))

    def learn(self, units: int, seconds: float) -> None:
        """Take a committed lease in; short ones count too, growth is bounded."""
        seen = units / max(seconds, 1e-6)
        if self.measured:
            seen = (self.rate + seen) / 2 if seen < self.rate else seen
        self.rate = max(min(seen, self.rate * GROWTH), 1e-9)
        self.measured = True
