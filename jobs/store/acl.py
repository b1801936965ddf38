"""Redis users and their permissions, with one user for each role. See docs/redis-acl.md.

`python -m jobs.store.acl > deploy/redis-users.acl` writes a template; deploy/secrets.sh inserts the passwords. `python
-m jobs.store.acl sentinels` prints the template for Sentinels, deploy/sentinel-users.acl.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from jobs.store import keys

#: Keys that workers can access. Frequent keys are first, because Redis compares the patterns in order.
WORKER_KEYS = (
    keys.job("*"),
    keys.in_state("*"),
    keys.pending("*"),
    keys.WAITS,
    keys.DURATIONS,
    keys.usage("*"),
    keys.RECHECK,
    keys.tenant_pending("*", "*"),
    keys.lanes("*"),
    keys.SPAN,
    keys.SHARES,
    keys.EVENTS,
    keys.EXPIRY,
    keys.order("*"),
    keys.admitted("*"),
    keys.backlog("*"),
    keys.LOAD,
    keys.OUTCOMES,
    keys.UNITS,
    keys.ENDED,
    keys.unsupported_member("*"),
    keys.CAPPED,
    keys.OF_RQ,
    keys.SLOTS,
    keys.SLOT_JOBS,
    keys.held("*", "*"),
    keys.holding("*"),
    keys.worker("*"),
    keys.WORKERS,
    keys.AGED,
    keys.finish("*"),
    keys.virtual("*"),
    keys.PACE,
    keys.SEQUENCE,
    keys.UNSUPPORTED,
    keys.DEADLINES,
    keys.NODES,
    keys.SPANS,
    keys.BROKEN,
    keys.DAMAGED,
    keys.AGING,
    keys.USAGES,
    keys.DEFERRED,
    keys.deferred("*", "*"),
    keys.STORED,
    keys.stored("*"),
    keys.workers_of("*"),
    keys.gpu("*"),
    keys.mark("*", "*"),
    keys.quarantined("*"),
    keys.JOBS,
    keys.WORKFLOWS_DUE,
    keys.WAKING,
    keys.blocked("*"),
    keys.DELIVERIES,
    keys.outbox("*"),
    keys.delivery("*"),
    keys.deliveries_of("*", "*"),
    keys.WEBHOOKS,
    keys.PROFILING,
    keys.profile("*"),
    keys.profile_claims("*"),
    keys.profile_recordings("*"),
    keys.PROFILE_PARTS,
    keys.RELEASE,
)
#: Keys that workers only read.
READ_BY_WORKERS = (keys.SHARES, keys.RELEASE)

#: Commands for data, without configuration, Lua scripts and server shutdown.
#:
#: Redis checks permissions at each command, so a function without a permission would stop halfway.
_COMMANDS = (
    "+@read +@write +@transaction +@connection -@scripting -@admin -@dangerous +fcall +time +info +client|setname"
)
#: Permissions of workers. They cannot list key names. RQ workers need CLIENT LIST.
_WORKER = f"{_COMMANDS} +subscribe -scan -randomkey -client +client|setname +client|list"
#: Permissions of coordinators, which can load functions and rewrite the append-only file.
_COORDINATOR = f"{_COMMANDS} +publish +bgrewriteaof +function|load +function|list +function|delete"
#: Commands that a replica sends to its master.
_REPLICA = "+psync +replconf +ping"
#: Commands that a Sentinel sends to Redis during a failover.
_SENTINEL = (
    "+multi +exec +slaveof +ping +subscribe +publish +info +role +config|rewrite +client|setname +client|kill"
    " +script|kill"
)
#: Commands that clients send to a Sentinel.
_ASKS_SENTINELS = "+ping +sentinel|masters +client|setname"
#: Commands that Sentinels send to other Sentinels.
_OTHER_SENTINELS = "+ping +publish +sentinel|is-master-down-by-addr +client|setname"
_EXPORTER = "+ping +info +client|setname +config|get +slowlog|len +slowlog|get +latency|latest"


#: The disabled default user keeps all permissions, because Redis 7.0 loads its append-only file as this user.
_DEFAULT = "user default off ~* &* +@all"


@dataclass(frozen=True, kw_only=True)
class Role:
    """Redis user with its permissions."""

    name: str
    keys: tuple[str, ...]
    #: Keys that the user can only read. They are also in `keys`.
    read: tuple[str, ...] = ()
    commands: str
    #: Publish/subscribe channels that the user can access.
    channels: tuple[str, ...] = ()
    #: Commands that the user can send to Sentinels, or empty if the user does not exist there.
    on_sentinels: str = ""

    def line(self, password: str) -> str:
        """Return the user's line in a Redis ACL file. `password` is `>` and the password, or `#` and its SHA-256 in
        hex.
        """
        patterns = " ".join(f"{'%R' if pattern in self.read else ''}~{pattern}" for pattern in self.keys)
        channels = " ".join(f"&{channel}" for channel in self.channels)
        rules = f"resetchannels {channels} {patterns} -@all {self.commands}"
        return " ".join(["user", self.name, "on", password, *rules.split()])

    def line_on_sentinels(self, password: str) -> str:
        """Return the user's line in the ACL file of a Sentinel. Sentinels have no keys."""
        rules = f"allchannels -@all {self.on_sentinels}"
        return " ".join(["user", self.name, "on", password, *rules.split()])


ROLES = (
    Role(
        name="worker",
        keys=WORKER_KEYS,
        read=READ_BY_WORKERS,
        commands=_WORKER,
        channels=(keys.stops("*"),),
        on_sentinels=_ASKS_SENTINELS,
    ),
    Role(
        name="coordinator",
        keys=(f"{keys.PREFIX}*", keys.OF_RQ),
        commands=_COORDINATOR,
        channels=(keys.stops("*"),),
        on_sentinels=_ASKS_SENTINELS,
    ),
    Role(name="exporter", keys=(), commands=_EXPORTER),
    #: User for health checks, backups and administrators.
    Role(name="operator", keys=("*",), commands="+@all", on_sentinels="+@all"),
    Role(name="replica", keys=(), commands=_REPLICA),
    Role(name="sentinel", keys=(), commands=_SENTINEL, channels=("__sentinel__:hello",), on_sentinels=_OTHER_SENTINELS),
)


def lines(passwords: Mapping[str, str]) -> list[str]:
    """Return the lines of a Redis ACL file, which also disables the default user.

    `passwords` are as in `Role.line`.
    """
    return [_DEFAULT, *(role.line(passwords[role.name]) for role in ROLES)]


def lines_on_sentinels(passwords: Mapping[str, str]) -> list[str]:
    """Return the lines of an ACL file for Sentinels."""
    return [_DEFAULT, *(role.line_on_sentinels(passwords[role.name]) for role in ROLES if role.on_sentinels)]


def _template(asked: str) -> list[str]:
    """Return ACL lines for Redis or for Sentinels, with @ROLE@ in place of each password digest."""
    places = {role.name: f"#@{role.name}@" for role in ROLES}
    return lines_on_sentinels(places) if asked == "sentinels" else lines(places)


if __name__ == "__main__":
    print("\n".join(_template("".join(sys.argv[1:2]))))
