"""Hosts on which programs can run. Hosts of cluster.yaml are reached over persistent connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from threads_cluster import errors
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


class Hosts:
    """Hosts of cluster.yaml and of the cluster. SSH connections stay open during a `with` block."""

    def __init__(self, tell: ListHosts, config: ClusterConfig | None) -> None:
        self._tell, self.config = tell, config
        self._background: Any = None
        self.pool: Any = None

    def __enter__(self) -> Self:
        if self.config is not None:
            from threads_cluster.ssh.background import Background
            from threads_cluster.ssh.pool import Pool

            self._background = Background()
            self.pool = Pool(self.config)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._background is not None:
            self._background.close(self.pool.close())

    @property
    def refresh_seconds(self) -> float:
        """Return the interval in seconds between health checks."""
        return (self.config.health_check.refresh_interval if self.config else 0) or _REFRESH_SECONDS

    def run(self, work: Coroutine[Any, Any, Any], seconds: float | None = None) -> Any:
        """Run a coroutine that uses SSH connections. Ctrl-C cancels it. Raises TimeoutError after `seconds`."""
        return self._background.run(work, seconds)

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
