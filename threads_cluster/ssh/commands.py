"""The commands `health`, `up` and `down`, for the hosts of cluster.yaml and of the cluster."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from threads_cluster import errors, settings
from threads_cluster.cli import show
from threads_cluster.cli.session import Session, as_json_option

if TYPE_CHECKING:
    from threads_cluster.ssh.configuration import ClusterConfig, Node
    from threads_cluster.ssh.probe import Health
    from threads_cluster.ssh.up import Outcome

AsJson: TypeAlias = as_json_option("Print JSON, one object per host.")  # type: ignore[valid-type]
ConfigFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Configuration of the hosts; default: ./cluster.yaml."),
]
_RULE = "─" * 50

EPILOG = """\b
Score: cpu_weight * 100 * load1 / cpus + gpu_weight * mean GPU utilization in percent; lower is better.
Unhealthy: no response within health_check.timeout, load1 / cpus over 2, or every GPU at 95 % or more.
docs/ssh.md describes cluster.yaml.
"""


def add_commands(app: typer.Typer) -> None:
    """Add the commands for the hosts of cluster.yaml to the `cluster` command."""
    app.command(epilog=EPILOG)(health)
    app.command()(up)
    app.command()(down)


def health(
    ctx: typer.Context,
    config: ConfigFile = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Repeat until Ctrl-C, every health_check.refresh_interval seconds.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the health of the hosts of cluster.yaml, checked over SSH, and of the cluster's hosts."""
    from threads_cluster.ssh.hosts import Hosts

    session: Session = ctx.find_root().obj
    with Hosts(lambda: session.another().hosts(), read_configuration(config)) as hosts:
        _show(hosts.health(), as_json=as_json)
        while watch:
            time.sleep(hosts.refresh_seconds)
            _show(hosts.health(), as_json=as_json)


def read_configuration(path: Path | None) -> ClusterConfig | None:
    """Read the configuration. Return None if the user names no file and ./cluster.yaml does not exist."""
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


Only: TypeAlias = Annotated[
    list[str] | None, typer.Option("--host", metavar="NAME", help="Only this host of cluster.yaml. Repeat for more.")
]


def up(
    ctx: typer.Context,
    host: Only = None,
    address: Annotated[
        str | None, typer.Option(metavar="A", help="Name or address of this machine as seen from the hosts.")
    ] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Install the hosts of cluster.yaml over SSH and join them to the cluster of this checkout.

    Hosts that already work for the cluster are not changed.
    """
    from threads_cluster.ssh import up as hosts
    from threads_cluster.ssh.hosts import Hosts

    _require_own_cluster(ctx.find_root().obj)
    read = _require_configuration(config)
    nodes = [read.node(name) for name in host or ()] or list(read.nodes)
    tree = hosts.checkout()
    with Hosts(list, read) as opened:
        installer = hosts.Installer(opened.pool, tree, _say, lambda labels: hosts.invitation(address, labels))
        _show_outcomes(opened.run(hosts.process_all(nodes, installer.up)), as_json=as_json)


def down(
    ctx: typer.Context,
    host: Only = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Leave even if the cluster is unreachable; the tokens then stay valid.")
    ] = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Remove the hosts of cluster.yaml from the cluster. Their workers stop, and their tokens are revoked."""
    from threads_cluster.ssh import up as hosts
    from threads_cluster.ssh.hosts import Hosts

    read = _require_configuration(config)
    nodes = [read.node(name) for name in host or ()] or list(read.nodes)
    with Hosts(list, read) as opened:
        leave = partial(hosts.down, opened.pool, say=_say, anyway=anyway)
        _show_outcomes(opened.run(hosts.process_all(nodes, leave)), as_json=as_json)


def _require_own_cluster(session: Session) -> None:
    """Raise Misconfigured if the user chose another cluster than the local cluster of this checkout.

    Otherwise, store the context of the cluster. Raises NotRunning if the local cluster is not running.
    """
    from threads_cluster.client import contexts, logins

    stated = settings.load()
    if session.stated_url or session.stated_context or stated.coordinator_url:
        chosen = contexts.choose(stated, session.stated_url, session.stated_context)
        if not logins.is_local(chosen.url.rstrip("/")):
            error = errors.Misconfigured(f"up joins hosts to the cluster of this checkout, not to {chosen}")
            error.next = "omit --url and --context and unset CLUSTER_URL, or run the command in the other checkout"
            raise error
    own = contexts.of_own_checkout(stated)
    if own and own.folder:
        with suppress(errors.Misconfigured):  # Without a writable home directory, no contexts are stored
            contexts.keep(own, stated, select=False)


def _require_configuration(path: Path | None) -> ClusterConfig:
    read = read_configuration(path)
    if read is None:
        error = errors.BadArgument("this folder has no cluster.yaml, which lists the hosts")
        error.next = "write one, such as: nodes: [gpu1, gpu2]   docs/ssh.md describes the format"
        raise error
    return read


def _say(node: Node, text: str) -> None:
    show.say(f"[INFO] {node.name} {text}")


def _show_outcomes(several: list[Outcome], *, as_json: bool) -> None:
    rows = [{"host": each.name, "state": each.state, "detail": each.detail} for each in several]
    show.listing(rows, {name: name for name in ("host", "state", "detail")}, as_json=as_json)
    for each in several:
        if each.advice:
            show.say(f"next: {each.name}: {each.advice}")
    if any(each.state == "failed" for each in several):
        raise typer.Exit(errors.JOB_FAILED)
