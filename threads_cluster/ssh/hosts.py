"""Hosts on which programs can run. Hosts of cluster.yaml are reached over persistent connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from getpass import getuser
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

from threads_cluster import errors, settings
from threads_cluster.cli import show
from threads_cluster.ssh import refusals

if TYPE_CHECKING:
    from threads_cluster.ssh.configuration import ClusterConfig
    from threads_cluster.ssh.probe import Health

#: Function that returns hosts in the format of /api/hosts. Raises ClientError if the cluster is not reachable.
ListHosts: TypeAlias = Callable[[], list[dict[str, Any]]]
#: Default configuration file, which is optional.
_FILE = Path("cluster.yaml")
#: Default interval in seconds between health checks.
_REFRESH_SECONDS = 2.0


def configuration(path: Path | None) -> ClusterConfig | None:
    """Read a configuration file. Return None if `path` is None and ./cluster.yaml does not exist.

    Raises BadArgument if the file is invalid, and Misconfigured if a package is missing.
    """
    if path is None and not _FILE.exists():
        return None
    refusals.check_installed()
    from threads_cluster.ssh.configuration import ClusterConfig

    return ClusterConfig.from_yaml(path or _FILE)


def best(tell: ListHosts, path: Path | None) -> str:
    """Return the name of the best host. Raises ClientError if no host is reachable."""
    from threads_cluster.ssh import health

    with Hosts(tell, configuration(path)) as hosts:
        return health.choose(hosts.health()).name


class Connections:
    """SSH connections to the hosts of a configuration, with the event loop that uses them."""

    def __init__(self, config: ClusterConfig) -> None:
        from threads_cluster.ssh.background import Background
        from threads_cluster.ssh.pool import Pool

        self.origin = _read_origin(config)
        self.background = Background()
        self.pool = Pool(config)

    def close(self) -> None:
        self.background.close(self.pool.close())


class KeptConnections:
    """Connections that stay open for the next command with the same configuration and the same SSH files."""

    def __init__(self) -> None:
        self._connections: Connections | None = None
        #: Seconds for which the connections of the last command stay open.
        self.persist_seconds = 0.0

    def open(self, config: ClusterConfig) -> Connections:
        """Return the open connections, or new ones if the configuration has changed."""
        self.persist_seconds = config.ssh.persist
        if self._connections is None or self._connections.origin != _read_origin(config):
            self.close()
            self._connections = Connections(config)
        return self._connections

    def close(self) -> None:
        if self._connections is not None:
            self._connections.close()
            self._connections = None


def _read_origin(config: ClusterConfig) -> tuple[Any, ...]:
    """Return everything that decides how to connect: the configuration, the SSH agent, and the state of SSH files."""
    key_files = {config.ssh.key_file, config.ssh.known_hosts, *(node.key_file for node in config.nodes)} - {None}
    files = [*Path("~/.ssh").expanduser().glob("*"), Path("/etc/ssh/ssh_known_hosts")]
    files += [Path(str(name)).expanduser() for name in sorted(map(str, key_files))]
    return config, settings.variable("SSH_AUTH_SOCK"), getuser(), [_describe_file(file) for file in files]


def _describe_file(file: Path) -> tuple[Any, ...]:
    try:
        about = file.stat()
    except OSError:
        return (file,)
    return file, about.st_ino, about.st_size, about.st_mtime_ns


class Hosts:
    """Hosts of cluster.yaml and of the cluster. SSH connections stay open during a `with` block."""

    #: Connections that stay open after a `with` block, or None in a process that runs one command.
    kept: ClassVar[KeptConnections | None] = None

    def __init__(self, tell: ListHosts, config: ClusterConfig | None) -> None:
        self._tell, self.config = tell, config
        self._connections: Any = None
        self.pool: Any = None

    def __enter__(self) -> Self:
        if self.config is not None:
            self._connections = self.kept.open(self.config) if self.kept else Connections(self.config)
            self.pool = self._connections.pool
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._connections is not None and (self.kept is None or error is not None):
            (self.kept or self._connections).close()

    @property
    def refresh_seconds(self) -> float:
        """Return the interval in seconds between health checks."""
        return (self.config.health_check.refresh_interval if self.config else 0) or _REFRESH_SECONDS

    def run(self, work: Coroutine[Any, Any, Any], seconds: float | None = None) -> Any:
        """Run a coroutine that uses SSH connections. Ctrl-C cancels it. Raises TimeoutError after `seconds`."""
        return self._connections.background.run(work, seconds)

    def health(self) -> list[Health]:
        """Check all hosts in parallel. Raises ClientError without cluster.yaml and without a reachable cluster."""
        from threads_cluster.ssh import health
        from threads_cluster.ssh.configuration import HealthCheck

        if self.config is None:
            return health.from_cluster(self._tell(), HealthCheck())
        told = _HostsRequest(self._tell)
        nodes: list[Health] = self.run(health.check_nodes(self.pool))
        return health.merge(nodes, health.from_cluster(told.rows(), self.config.health_check))


class _HostsRequest:
    """Request for the hosts of the cluster, which runs in parallel with checks over SSH."""

    #: Seconds to wait for the response after all checks over SSH have finished.
    _PATIENCE_SECONDS = 1.0

    def __init__(self, tell: ListHosts) -> None:
        self._tell = tell
        self._rows: list[dict[str, Any]] = []
        self._why = "the cluster did not respond in time"
        self._asking = threading.Thread(target=self._ask, daemon=True)
        self._asking.start()

    def _ask(self) -> None:
        try:
            self._rows, self._why = self._tell(), ""
        except errors.ClientError as error:
            self._why = str(error)

    def rows(self) -> list[dict[str, Any]]:
        """Return the hosts of the cluster. If the request failed, print a note on stderr and return an empty list."""
        self._asking.join(self._PATIENCE_SECONDS)
        if self._why:
            show.say(f"note: showing only the hosts of cluster.yaml: {self._why}")
        return self._rows
