"""Times at which a schedule runs, in whole seconds since 1970. Pure.

A cron expression is read in a timezone as Debian's cron does: a fixed time of day that a clock change leaves out comes
at the end of the gap, one that it repeats comes once; a time of every hour or minute follows what has elapsed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

#: Seconds between two runs, at least and at most.
SHORTEST, LONGEST = 10, 366 * 86400
#: Characters of a cron expression.
MAX_CRON = 200
#: Runs that are counted after an absence; more are as many.
MOST_MISSED = 100_000
_FIELDS = 5
#: Names that say which zone this machine is in, and not which one is meant.
_LOCAL = ("localtime", "posixrules", "Factory")


@dataclass(frozen=True, kw_only=True)
class Times:
    """Either every so many seconds, counted from an anchor, or by a cron expression in a timezone."""

    every: int = 0
    anchor: int = 0
    cron: str = ""
    timezone: str = "UTC"

    def after(self, moment: int) -> int | None:
        """Return the first time after a moment; None when there is none any more."""
        return next(self.all_after(moment), None)

    def all_after(self, moment: int) -> Iterator[int]:
        """Yield the times after a moment."""
        if self.every:
            at = self.anchor + ((moment - self.anchor) // self.every + 1) * self.every
            while True:
                yield at
                at += self.every
        for found in CronSim(self.cron, datetime.fromtimestamp(moment, zone(self.timezone))):
            # In the hour that comes twice, the library goes on from its first pass.
            if (at := int(found.timestamp())) > moment:
                yield at

    def passed(self, first: int, now: int) -> tuple[int, int, int | None]:
        """Return how many times there are from `first`, which is one, to now; the last of them; and the next one."""
        if self.every:
            count = max(0, (now - first) // self.every)
            return count + 1, first + count * self.every, first + (count + 1) * self.every
        count, last = 1, first
        for at in islice(self.all_after(first), MOST_MISSED):
            if at > now:
                return count, last, at
            count, last = count + 1, at
        return count, last, self.after(now)


def zone(name: str) -> ZoneInfo:
    """Return a timezone. ValueError when there is none of this name."""
    if name in _LOCAL:
        raise ValueError("a timezone is named as Europe/Berlin or UTC")
    try:
        return ZoneInfo(name)
    except (OSError, KeyError, ValueError):  # ZoneInfoNotFoundError is a KeyError; a folder is an OSError
        raise ValueError("there is no timezone of this name; they are named as Europe/Berlin or UTC") from None


def check_cron(text: str) -> None:
    """Raise ValueError unless this is a cron expression with five fields that has a time to come."""
    if len(text.split()) != _FIELDS:
        raise ValueError("must have five fields: minute, hour, day of month, month, day of week, as 0 3 * * *")
    try:
        found = next(CronSim(text, datetime.now(UTC)), None)
    except CronSimError as error:
        raise ValueError(f"is no cron expression: {str(error)[:1].lower()}{str(error)[1:]}") from None
    if found is None:
        raise ValueError("names a day that never comes")
