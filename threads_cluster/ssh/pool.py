"""Pool of SSH connections. A command on an open connection takes one round trip, but connecting takes many."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from getpass import getuser
from pathlib import Path
from typing import Any

import asyncssh

from threads_cluster import errors
from threads_cluster.ssh import refusals
from threads_cluster.ssh.configuration import ClusterConfig, Node
from threads_cluster.ssh.refusals import HostTrouble

#: Maximum number of concurrent commands per connection. By default, sshd allows ten (MaxSessions).
CHANNELS = 8
#: Default files with the keys of known hosts.
_KNOWN = ("~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts")
#: Number of keep-alive packets without a response after which a connection is closed.
_ALIVE_COUNT = 2
#: Seconds to wait until a connection closes cleanly.
_CLOSE_SECONDS = 1.0


class _Line:
    """SSH connection, with its ProxyCommand process and its number of running commands."""

    def __init__(self, connection: Any, proxy: asyncio.subprocess.Process | None) -> None:
        self.connection, self._proxy = connection, proxy
        self.used = 0
        #: True after a command was aborted. The connection then accepts no new commands.
        self.left = False

    @property
    def usable(self) -> bool:
        return not (self.left or self.connection.is_closed())

    @contextlib.contextmanager
    def command(self) -> Iterator[Any]:
        """Yield the connection for one command. If a command was aborted, the last command closes the connection."""
        try:
            yield self.connection
        except BaseException:
            self.left = True
            raise
        finally:
            self.used -= 1
            if self.left and not self.used:
                self.connection.close()

    async def close(self) -> None:
        self.connection.close()
        with contextlib.suppress(TimeoutError, OSError, asyncssh.Error):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.connection.wait_closed()
        self.connection.abort()
        if self._proxy:
            await _kill(self._proxy)


class _HostLines:
    """Connections to one host. The number depends on the running commands, up to the configured maximum."""

    def __init__(self, node: Node, config: ClusterConfig) -> None:
        self._node, self._config = node, config
        self._lines: list[_Line] = []
        #: All connections that may still be open.
        self._all: list[_Line] = []
        self._connecting = asyncio.Lock()
        self._room = asyncio.Semaphore(config.ssh.pool_size * CHANNELS)

    @contextlib.asynccontextmanager
    async def channel(self, seconds: float) -> AsyncIterator[Any]:
        async with self._room:
            line = await self._reserve(seconds)
            with line.command() as connection:
                yield connection

    async def _reserve(self, seconds: float) -> _Line:
        """Reserve capacity for one command on a connection. If all connections are full, open another one."""
        if line := self._free():
            return line
        async with self._connecting:  # Another task may have connected in the meantime
            if line := self._free():
                return line
            await self._forget_ended()
            line = await _connect(self._node, self._config, seconds)
            line.used = 1
            self._lines.append(line)
            self._all.append(line)
            return line

    async def _forget_ended(self) -> None:
        ended = [line for line in self._all if not (line.usable or line.used)]
        self._all = [line for line in self._all if line not in ended]
        await asyncio.gather(*(line.close() for line in ended))

    def _free(self) -> _Line | None:
        self._lines = [line for line in self._lines if line.usable]
        line = min((line for line in self._lines if line.used < CHANNELS), key=lambda each: each.used, default=None)
        if line:
            line.used += 1
        return line

    async def close(self) -> None:
        await asyncio.gather(*(line.close() for line in self._all))


class Pool:
    """SSH connections to all hosts of a configuration. Create and use the pool in one event loop."""

    def __init__(self, config: ClusterConfig) -> None:
        self.config = config
        self._hosts: dict[str, _HostLines] = {}

    @contextlib.asynccontextmanager
    async def channel(self, node: Node, seconds: float | None = None) -> AsyncIterator[Any]:
        """Yield a connection for one command. Connection errors are raised as HostTrouble.

        `seconds` is the connect timeout, by default `ssh.timeout`.
        """
        patience = seconds or self.config.ssh.timeout
        host = self._hosts.setdefault(node.name, _HostLines(node, self.config))
        try:
            async with host.channel(patience) as connection:
                yield connection
        except (OSError, asyncssh.Error) as error:
            raise refusals.trouble(node, error, seconds=patience, user=_user(node)) from None

    async def close(self) -> None:
        """Close all connections. This aborts their running commands."""
        await asyncio.gather(*(host.close() for host in self._hosts.values()))
        self._hosts.clear()


def _user(node: Node) -> str:
    return node.user or getuser()


async def _connect(node: Node, config: ClusterConfig, seconds: float) -> _Line:
    """Connect to a host and verify its host key. Raises HostTrouble."""
    keys = _KnownKeys(config)
    offered: list[Any] = []

    class Client(asyncssh.SSHClient):  # type: ignore[misc]
        def validate_host_public_key(self, host: str, addr: str, port: int, key: Any) -> bool:
            """Reject the host key. asyncssh calls this method only for unknown keys."""
            offered.append(key)
            return False

    given: dict[str, Any] = {
        "known_hosts": keys.of,
        "client_factory": Client,
        "encoding": None,
        "connect_timeout": None,
        "keepalive_interval": config.ssh.timeout / (_ALIVE_COUNT + 1),
        "keepalive_count_max": _ALIVE_COUNT,
        "agent_forwarding": False,
        **_options(node, config),
    }
    proxy = None
    try:
        async with asyncio.timeout(seconds):
            if node.proxy_command:
                proxy, given["sock"] = await _start_proxy(node)
            return _Line(await asyncssh.connect(node.host, **given), proxy)
    except BaseException as error:
        if proxy:
            await _kill(proxy)
        if isinstance(error, asyncssh.HostKeyNotVerifiable) and offered:
            raise refusals.unknown_key(node, offered[0], known=keys.found, files=keys.file) from None
        if isinstance(error, (OSError, ValueError, asyncssh.Error)):
            raise refusals.trouble(node, error, seconds=seconds, user=_user(node)) from None
        raise


def _options(node: Node, config: ClusterConfig) -> dict[str, Any]:
    """Return the configured connection options. Other options come from ~/.ssh/config and the SSH agent."""
    key_file = node.key_file or config.ssh.key_file
    stated = {
        "username": node.user,
        "port": node.port,
        "client_keys": [str(Path(key_file).expanduser())] if key_file else None,
    }
    return {name: value for name, value in stated.items() if value is not None}


async def _start_proxy(node: Node) -> tuple[asyncio.subprocess.Process, socket.socket]:
    """Start a ProxyCommand without a shell. Return its process, and a socket that is its stdin and stdout."""
    values = {"%h": node.host, "%p": str(node.port or 22), "%r": _user(node), "%%": "%"}
    try:
        words = shlex.split(node.proxy_command or "")
    except ValueError as error:
        raise HostTrouble(node, f"invalid proxy_command: {error}") from None
    words = [re.sub("%[hpr%]", lambda match: values[match[0]], word) for word in words]
    local, remote = socket.socketpair()
    try:
        with remote:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=remote.fileno(), stdout=remote.fileno(), start_new_session=True
            )
    except BaseException:
        local.close()
        raise
    return process, local


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill a ProxyCommand and its child processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


class _KnownKeys:
    """Keys of known hosts."""

    def __init__(self, config: ClusterConfig) -> None:
        stated = config.ssh.known_hosts
        self._files = [Path(name).expanduser() for name in ((stated,) if stated else _KNOWN)]
        #: File to which users should add a new host key.
        self.file = stated or _KNOWN[0]
        #: True if a key of the host is known.
        self.found = False

    def of(self, host: str, address: str, port: int | None) -> Any:
        """Return the known keys of a host in asyncssh's format. Raises Misconfigured if a file is invalid."""
        files = [str(path) for path in self._files if path.is_file()]
        try:
            known = asyncssh.match_known_hosts(asyncssh.read_known_hosts(files) if files else b"", host, address, port)
        except (OSError, ValueError) as error:
            raise errors.Misconfigured(f"{', '.join(files)}: cannot read known host keys: {error}") from None
        self.found = bool(known[0])
        return known
