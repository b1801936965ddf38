"""Webhook deliveries. The function that ends a job writes a delivery, which a sender then claims and sends.

`lua/webhooks.lua` describes the keys. A delivery is written once and sent at least once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from jobs.models import ANONYMOUS, Actor
from jobs.store import keys, unreadable_entries
from jobs.store.server.functions import Part
from jobs.store.server.records import record, texts

State = Literal["pending", "delivered", "dead"]
STATES: tuple[State, ...] = ("pending", "delivered", "dead")
#: Maximum number of deliveries that are listed per state. Older finished deliveries are deleted.
MAX_LISTED = 1000
#: Pattern of delivery IDs. Receivers get the ID of a delivery in the header webhook-id.
ID = r"^msg_[a-z0-9]{1,40}$"
_ORIGIN, _PORT = re.compile(r"[A-Za-z]+://[^/?#]*"), re.compile(r":[0-9]+$")


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """Message that a job or a workflow has ended, which is sent to a URL."""

    delivery_id: str
    tenant: str
    url: str
    #: Event type: job or workflow, a dot, and the final state, for example job.done.
    type: str
    #: ID of the job, or empty for a workflow.
    job: str
    kind: str
    error: str
    state: str
    #: Time at which the job ended, in milliseconds since 1970.
    created: int
    ended: int
    #: Time of the next attempt, or 0 if there is none.
    due: int
    attempts: int
    #: Result of the last attempt, as a message to users.
    said: str
    #: ID of the workflow, or empty for a job.
    workflow: str = ""
    name: str = ""
    #: Number of removed tenants that had the same name.
    generation: int = 0

    @property
    def place(self) -> str:
        """Return the tenant and the URL's origin, which identify a receiver. A slow receiver delays only its own
        deliveries.
        """
        found = _ORIGIN.match(self.url)
        return f"{self.tenant}|{found[0] if found else ''}"

    @property
    def host(self) -> str:
        """Return the tenant and the URL's host without the port. The load on each host is limited."""
        return f"{self.tenant}||{_PORT.sub('', self.place.partition('|')[2].partition('://')[2])}"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on the deliveries of a sender."""

    #: Milliseconds after which another sender can claim an unfinished delivery.
    lease_ms: int
    #: Maximum number of attempts before a delivery fails permanently.
    attempts: int
    #: Maximum number of concurrent deliveries per origin, per host and per tenant.
    per_place: int
    per_host: int
    per_tenant: int


class Webhooks(Part):
    """Claims, ends and lists webhook deliveries in Redis."""

    def take(self, want: int, limits: Limits, busy: Mapping[str, int]) -> tuple[int, list[Delivery]]:
        """Claim up to `want` due deliveries for one attempt each. Return Redis time in milliseconds, and the
        deliveries.

        `busy` contains the number of the sender's active deliveries by `place`, by `host` and by tenant.
        """
        most = (limits.per_place, limits.per_host, limits.per_tenant)
        arguments = (limits.lease_ms, limits.attempts, *most, json.dumps(busy or {"": 0}))
        now, *taken = self._functions.run("take_deliveries", want, *arguments)
        return int(now), _readable((words[0].decode(), words[1:]) for words in taken)

    def end(self, delivery: Delivery, outcome: Literal["delivered", "dead", "again"], wait_ms: int, text: str) -> str:
        """Record the outcome of an attempt to deliver. After `again`, the next attempt is due in `wait_ms`
        milliseconds.

        Return ended, again, missing, or stale if the claim has expired and another sender has the delivery.
        """
        arguments = (delivery.delivery_id, delivery.attempts, outcome, wait_ms, text)
        reply: bytes = self._functions.run("end_delivery", *arguments)
        return reply.decode()

    def retry(self, tenant: str, delivery_id: str, actor: Actor = ANONYMOUS) -> str:
        """Make a delivery due immediately. Return `ok`, or the reason why this is not possible.

        The reasons are `missing`, and `full` if too many of the tenant's deliveries are pending.
        """
        reply: bytes = self._functions.run_acknowledged("retry_delivery", delivery_id, tenant, *actor)
        return reply.decode()

    def listed(self, tenant: str, state: State, limit: int) -> list[Delivery]:
        """Return a tenant's deliveries in one state, latest first."""
        [ids] = self._functions.read(("ZREVRANGE", keys.deliveries_of(tenant, state), "0", str(limit - 1)))
        return self._each([one.decode() for one in ids])

    def one(self, tenant: str, delivery_id: str) -> Delivery | None:
        """Return a delivery of a tenant by its ID, or None if it does not exist."""
        found = self._each([delivery_id])
        return found[0] if found and found[0].tenant == tenant else None

    def counts(self, tenant: str) -> dict[State, int]:
        """Return the number of a tenant's deliveries in each state."""
        sizes = self._functions.read(*(("ZCARD", keys.deliveries_of(tenant, state)) for state in STATES))
        return dict(zip(STATES, map(int, sizes), strict=True))

    def pending(self, tenants: Sequence[str]) -> tuple[int, int]:
        """Return the number of pending deliveries of several tenants, and the age of the oldest one in milliseconds."""
        asked = [keys.deliveries_of(tenant, "pending") for tenant in tenants]
        replies = self._functions.read(
            *(("ZCARD", key) for key in asked),
            *(("ZRANGE", key, "0", "0", "WITHSCORES") for key in asked),
            ("TIME",),
        )
        seconds, micros = replies[-1]
        now = int(seconds) * 1000 + int(micros) // 1000
        oldest = [float(first[1]) for first in replies[len(asked) : -1] if first]
        return sum(map(int, replies[: len(asked)])), max(0, int(now - min(oldest, default=now)))

    def dead(self, tenants: Sequence[str]) -> int:
        """Return the number of permanently failed deliveries of several tenants."""
        return sum(map(int, self._functions.read(*(("ZCARD", keys.deliveries_of(each, "dead")) for each in tenants))))

    def generation(self, tenant: str) -> int:
        """Return the number of removed tenants that had this name. Each of them had its own signing key."""
        return int(self._client.hget(keys.GENERATIONS, tenant) or 0)

    def log_disclosure(self, tenant: str, actor: Actor) -> None:
        """Record in the audit log that a user read the signing key of a tenant."""
        self._functions.run_acknowledged("log_disclosure", "show webhook key", tenant, *actor)

    def _each(self, ids: Sequence[str]) -> list[Delivery]:
        if not ids:
            return []
        commands = (("HGETALL", keys.delivery(one)) for one in ids)
        words = unreadable_entries.replies_at_once(self._functions, *commands)
        known = _readable((one, found) for one, found in zip(ids, words, strict=True) if found)
        if not known:
            return []
        due = self._functions.read(*(("ZSCORE", keys.outbox(one.place), one.delivery_id) for one in known))
        return [replace(one, due=int(float(score or 0))) for one, score in zip(known, due, strict=True)]


def _readable(stored: Iterable[tuple[str, Sequence[bytes]]]) -> list[Delivery]:
    """Return the deliveries that are readable. `stored` contains the ID and the fields of each delivery."""
    return unreadable_entries.readable("webhook", stored, _delivery)


def _delivery(delivery_id: str, reply: Sequence[bytes]) -> Delivery:
    return record(Delivery, texts(reply), delivery_id=delivery_id, due=0)
