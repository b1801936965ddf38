"""`cluster health`: how the hosts of cluster.yaml and of the cluster are."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from threads_cluster import show
from threads_cluster.session import Session, as_json_option

if TYPE_CHECKING:
    from threads_cluster.ssh.configuration import ClusterConfig
    from threads_cluster.ssh.probe import Health

AsJson: TypeAlias = as_json_option("For programs: JSON, one object a host.")  # type: ignore[valid-type]
ConfigFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="The hosts and how they are reached; default: ./cluster.yaml."),
]
_RULE = "─" * 50

EPILOG = """\b
Score: cpu_weight * 100 * load1 / cpus + gpu_weight * mean use of its GPUs in percent; less is better.
Unhealthy: not reached within health_check.timeout, load1 / cpus over 2, or every GPU used by 95 % or more.
docs/ssh.md has cluster.yaml.
"""


def health(
    ctx: typer.Context,
    config: ConfigFile = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Again and again, until Ctrl-C; see health_check.refresh_interval.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show how hosts are, all asked at once: those of cluster.yaml over SSH, and those of the cluster."""
    from threads_cluster.ssh.hosts import Hosts

    session: Session = ctx.find_root().obj
    with Hosts(lambda: session.another().hosts(), found(config)) as hosts:
        _show(hosts.health(), as_json=as_json)
        while watch:
            time.sleep(hosts.refresh_seconds)
            _show(hosts.health(), as_json=as_json)


def found(path: Path | None) -> ClusterConfig | None:
    """Return the configuration; None where none is named and ./cluster.yaml is not there."""
    from threads_cluster.ssh import hosts

    return hosts.configuration(path)


def _show(several: list[Health], *, as_json: bool) -> None:
    from threads_cluster.ssh import health as hosts

    best = hosts.best(several)
    if as_json:
        for each in several:
            show.json_line(hosts.row(each, best))
    else:
        show.line("Cluster Health Status:")
        show.line(_RULE)
        for each in several:
            show.line(hosts.line(each, best))
        for each in several:
            if each.advice:
                show.say(f"next: {each.name}: {each.advice}")
    sys.stdout.flush()
