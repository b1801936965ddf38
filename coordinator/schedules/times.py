"""Times at which a schedule runs, in whole seconds since 1970. Functions here are pure.

Cron expressions follow Debian's cron when the clock changes. A fixed time that the change skips runs at the end of the
gap, and a fixed time that occurs twice runs once. Hourly and more frequent times follow the elapsed time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

#: Minimum and maximum interval between runs in seconds.
SHORTEST, LONGEST = 10, 366 * 86400
#: Maximum length of a cron expression in characters.
MAX_CRON = 200
#: Maximum number of missed runs that are counted after downtime.
MOST_MISSED = 100_000
_FIELDS = 5
#: Names that mean the machine's local timezone and are therefore ambiguous.
_LOCAL = ("localtime", "posixrules", "Factory")


@dataclass(frozen=True, kw_only=True)
class Times:
    """Run times: either at an interval in seconds from an anchor, or by a cron expression in a timezone."""

    every: int = 0
    anchor: int = 0
    cron: str = ""
    timezone: str = "UTC"

    def after(self, moment: int) -> int | None:
        """Return the first run time after the given time, or None if there is none."""
        return next(self.all_after(moment), None)

    def all_after(self, moment: int) -> Iterator[int]:
        """Yield the run times after the given time."""
        if self.every:
            at = self.anchor + ((moment - self.anchor) // self.every + 1) * self.every
            while True:
                yield at
                at += self.every
        for found in CronSim(self.cron, datetime.fromtimestamp(moment, zone(self.timezone))):
            # In the repeated hour of a clock change, CronSim starts from the first pass.
            if (at := int(found.timestamp())) > moment:
                yield at

    def passed(self, first: int, now: int) -> tuple[int, int, int | None]:
        """Count the run times from `first` to `now`. Return the count, the last of these times, and the next run time.

        `first` must be a run time.
        """
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
    """Return a timezone by name. Raises ValueError if it does not exist."""
    if name in _LOCAL:
        raise ValueError("must be a timezone name such as Europe/Berlin or UTC")
    try:
        return ZoneInfo(name)
    except (OSError, KeyError, ValueError):  # ZoneInfoNotFoundError is a KeyError; a folder is an OSError
        raise ValueError("is not a known timezone; use a name such as Europe/Berlin or UTC") from None


def check_cron(text: str) -> None:
    """Raise ValueError unless the text is a cron expression with five fields and a future time."""
    if len(text.split()) != _FIELDS:
        raise ValueError("must have five fields: minute, hour, day of month, month and day of week, such as 0 3 * * *")
    try:
        found = next(CronSim(text, datetime.now(UTC)), None)
    except CronSimError as error:
        raise ValueError(f"is not a valid cron expression: {str(error)[:1].lower()}{str(error)[1:]}") from None
    if found is None:
        raise ValueError("never matches a future date")
