"""A cluster with a master, two replicas and three sentinels as separate processes."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import redis
from redis.sentinel import Sentinel

from jobs.store import acl
from tests.integration.live import Live, until
from tests.ports import free_port

#: Name of the master for the sentinels.
SERVICE = "threads"
SERVERS = SENTINELS = 3
#: Milliseconds of silence after which a sentinel takes a server for down, and between two tries of a failover, halved.
DOWN_AFTER_MS, FAILOVER_MS = 2000, 2000

_SERVER = """\
port {port}
bind 127.0.0.1
dir {folder}
aclfile {users}
masteruser replica
masterauth replica
replica-announce-ip localhost
appendonly yes
appendfsync everysec
save ""
repl-diskless-sync-delay 0
min-replicas-to-write 1
min-replicas-max-lag 3
"""

_SENTINEL = f"""\
port {{port}}
bind 127.0.0.1
dir {{folder}}
aclfile {{users}}
sentinel resolve-hostnames yes
sentinel announce-hostnames yes
sentinel announce-ip localhost
sentinel sentinel-user sentinel
sentinel sentinel-pass sentinel
sentinel monitor {SERVICE} localhost {{master}} 2
sentinel auth-user {SERVICE} sentinel
sentinel auth-pass {SERVICE} sentinel
sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}
sentinel failover-timeout {SERVICE} {FAILOVER_MS}
sentinel parallel-syncs {SERVICE} 2
"""


class SentinelLive(Live):
    """A Live with three Redis servers (redis-0 is the first master) and three sentinels."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, REDIS_REPLICAS_TO_WAIT="1", **options)
        self.server_ports = [free_port() for _ in range(SERVERS)]
        self.sentinel_ports = [free_port() for _ in range(SENTINELS)]
        self._sentinel = Sentinel(
            [("127.0.0.1", port) for port in self.sentinel_ports], sentinel_kwargs={"socket_timeout": 1}
        )
        self._redis = self._sentinel.master_for(SERVICE, socket_timeout=2)

    def start_redis(self) -> None:
        self.users()
        for number in range(SERVERS):
            self._write_server(number)
            self.start_server(number)
        until(lambda: self.info(0)["connected_slaves"] == SERVERS - 1)
        for number in range(SENTINELS):
            self._start_sentinel(number)
        until(lambda: all(self._knows_all(port) for port in self.sentinel_ports))

    def users(self) -> list[str]:
        options = super().users()
        lines = acl.lines_on_sentinels({role.name: f">{role.name}" for role in acl.ROLES})
        text = "\n".join(["user default on nopass ~* &* +@all", *lines[1:], ""])
        (self.folder / "sentinels.acl").write_text(text)
        return options

    def _write_server(self, number: int) -> None:
        port, folder = self.server_ports[number], self.folder / f"redis-{number}"
        folder.mkdir()
        text = _SERVER.format(port=port, folder=folder, users=self.folder / "users.acl")
        master = f"replicaof localhost {self.server_ports[0]}\n" if number else ""
        (folder / "redis.conf").write_text(f"{text}replica-announce-port {port}\n{master}")

    def start_server(self, number: int) -> None:
        """Start a Redis server with its last role."""
        assert self.binary
        self.start_process(f"redis-{number}", [self.binary, str(self.folder / f"redis-{number}" / "redis.conf")])
        until(lambda: self.server(number).ping())

    def _start_sentinel(self, number: int) -> None:
        assert self.binary
        folder = self.folder / f"sentinel-{number}"
        folder.mkdir()
        port, users = self.sentinel_ports[number], self.folder / "sentinels.acl"
        text = _SENTINEL.format(port=port, folder=folder, users=users, master=self.server_ports[0])
        (folder / "sentinel.conf").write_text(text)
        self.start_process(f"sentinel-{number}", [self.binary, str(folder / "sentinel.conf"), "--sentinel"])

    def _knows_all(self, port: int) -> bool:
        with redis.Redis(port=port, socket_timeout=1) as sentinel:
            [master] = sentinel.sentinel_masters().values()
        return bool(master["num-slaves"] == SERVERS - 1 and master["num-other-sentinels"] == SENTINELS - 1)

    def redis_url(self, role: str, port: int | None = None) -> str:
        hosts = ",".join(f"127.0.0.1:{each}" for each in self.sentinel_ports)
        return f"redis+sentinel://{role and f'{role}:{role}@'}{hosts}/{SERVICE}/0"

    def server(self, number: int) -> redis.Redis:
        """Return a client of one Redis server in any role."""
        return redis.Redis(port=self.server_ports[number], socket_timeout=2)

    def info(self, number: int) -> dict[str, Any]:
        """Return the replication status of one Redis server."""
        with self.server(number) as client:
            return dict(client.info("replication"))

    def master(self) -> int:
        """Return the number of the master according to the sentinels."""
        _, port = self._sentinel.discover_master(SERVICE)
        return self.server_ports.index(port)

    def kill_master(self) -> int:
        """Kill the master, as in a power failure, and return its number."""
        number = self.master()
        self.kill(f"redis-{number}")
        return number

    def whole(self) -> bool:
        """Return True if the master has both replicas and the sentinels know it."""
        with contextlib.suppress(redis.RedisError, ValueError):
            info = self.info(self.master())
            links = [self.info(number).get("master_link_status", "up") for number in range(SERVERS)]
            return info["role"] == "master" and info["connected_slaves"] == SERVERS - 1 and links == ["up"] * SERVERS
        return False

    def denied(self) -> list[str]:
        """Return which commands each server and sentinel has denied to which users."""
        entries: list[str] = []
        for port in (*self.server_ports, *self.sentinel_ports):
            with contextlib.suppress(redis.RedisError), redis.Redis(port=port, socket_timeout=2) as client:
                found = [
                    each for each in client.acl_log() if (each["object"], each["context"]) != ("client", "toplevel")
                ]
                entries += [
                    f"{each['username']}: {each['reason']} {each['object']} ({each['context']})" for each in found
                ]
        return entries
