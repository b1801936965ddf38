"""Daily usage of tenants, by days in UTC. Functions that commit work count the usage, and it is kept for DAYS days."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jobs.store import keys, unreadable_entries
from jobs.store.server.functions import Part

#: Number of days for which usage is kept, including today.
DAYS = 400
_DAY_MS = 86_400_000


@dataclass(kw_only=True)
class DayUsage:
    """Usage of one tenant on one day. Durations are in milliseconds."""

    #: Time of lanes that computed the tenant's jobs, keyed by device.
    lane_ms: dict[str, int] = field(default_factory=dict)
    #: Number of committed units, keyed by kind.
    units: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, int] = field(default_factory=dict)
    #: Time of devices that computed the tenant's jobs. Leases that share a device share its time.
    device_ms: int = 0
    millijoules: int | None = None
    #: Number of requests, keyed by model.
    requests: dict[str, int] = field(default_factory=dict)
    prompt_tokens: dict[str, int] = field(default_factory=dict)
    answer_tokens: dict[str, int] = field(default_factory=dict)

    def add(self, what: str, label: str, amount: int) -> None:
        """Add a stored counter to this usage. Raises LookupError if the counter is unknown."""
        if what == "device_ms":
            self.device_ms += amount
        elif what == "mj":
            self.millijoules = (self.millijoules or 0) + amount
        else:
            counts = {
                "ms": self.lane_ms,
                "units": self.units,
                "jobs": self.jobs,
                "requests": self.requests,
                "prompt": self.prompt_tokens,
                "answer": self.answer_tokens,
            }[what]
            counts[label] = counts.get(label, 0) + amount


class Usage(Part):
    """Reads the daily usage of tenants from Redis."""

    def today(self) -> int:
        """Return the current day in Redis time, as the number of days since 1970."""
        seconds, _ = self._client.time()
        return int(seconds) * 1000 // _DAY_MS

    def tenants(self) -> list[str]:
        """Return the sorted names of all tenants that have used the cluster."""
        [names] = unreadable_entries.replies(self._pipe().smembers(keys.USAGES))
        return sorted(name.decode(errors="replace") for name in names or ())

    def by_day(self, tenants: Sequence[str], since: int) -> dict[tuple[str, int], DayUsage]:
        """Return the usage of each tenant on each day from `since` on. Days without usage are omitted."""
        days: dict[tuple[str, int], DayUsage] = {}
        for tenant, stored in self._stored(tenants):
            for day, what, label, amount in _counters(stored):
                if day.isdecimal() and int(day) >= since:
                    days.setdefault((tenant, int(day)), DayUsage()).add(what, label, amount)
        return days

    def totals(self, tenants: Sequence[str]) -> dict[str, DayUsage]:
        """Return the total usage of each tenant. The totals never decrease."""
        totals = {tenant: DayUsage() for tenant in tenants}
        for tenant, stored in self._stored(tenants):
            for _, what, label, amount in _counters(stored):
                totals[tenant].add(what, label, amount)
        return totals

    def _stored(self, tenants: Sequence[str]) -> list[tuple[str, Mapping[bytes, bytes]]]:
        pipe = self._pipe()
        for tenant in tenants:
            pipe.hgetall(keys.usage(tenant))
        return [
            (tenant, stored or {}) for tenant, stored in zip(tenants, unreadable_entries.replies(pipe), strict=True)
        ]

    def prune(self) -> None:
        """Remove days that are more than DAYS days old from the daily usage. The totals still include them.

        Only the leader calls this method.
        """
        for tenant in self.tenants():
            self._functions.run("usage_prune", tenant, self.today() - DAYS + 1)


def _counters(stored: Mapping[bytes, bytes]) -> list[tuple[str, str, str, int]]:
    """Return the day, name, label and amount of each readable counter."""
    return unreadable_entries.readable("figure", stored.items(), _counter)


def _counter(name: bytes, amount: bytes) -> tuple[str, str, str, int]:
    day, what, *label = name.decode().split("|", 2)
    DayUsage().add(what, "", 0)
    return day, what, label[0] if label else "", int(amount)
