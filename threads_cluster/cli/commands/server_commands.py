"""Commands that start, stop and manage the cluster of this machine. deploy-cluster.sh implements them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import typer

#: Arguments that deploy-cluster.sh checks.
Arguments: TypeAlias = Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS", hidden=True)]

#: Options of this command, with the commands of deploy-cluster.sh that they select.
_KINDS = {"--docker": "docker", "--kubernetes": "kubernetes"}
_START = """\
Start a cluster on this machine, and keep it running until Ctrl-C.

The first start installs the server's packages, which takes a minute or two. The command `cluster` then finds the
cluster by itself."""
_START_OPTIONS = """\b
Processes of this user:
  --port P       port of the API and the pages (default: 3000, or the next free port)
  --workers N    number of CPU workers that share the cores (default: 1)
  --no-runner    start no runner, which runs programs with your user's permissions
  --once         compute two sample jobs, print their results, and stop
  --no-samples   do not submit the sample jobs at the first start
  --bundle FILE  install all packages from a bundle, without a network
  --user         let systemd start the cluster whenever this machine boots
  --system       the same as a system user. Needs root
  --tracing      send the spans of jobs to an OpenTelemetry collector

\b
Containers or pods instead:
  --docker [N [G]]      build and start containers: N workers, G of them on GPUs
  --kubernetes [N [G]]  start pods in the Kubernetes cluster of the current context
\b
cluster stop stops the cluster and keeps its jobs. --dry-run prints commands instead of running them.
The data is in $XDG_DATA_HOME/threads-cluster, by default ~/.local/share/threads-cluster, or in CLUSTER_HOME.
"""
#: Help and options of the other commands.
_TEXTS: dict[str, tuple[str, str]] = {
    "stop": ("Stop the cluster of this machine, and keep its jobs and results.", "stop [--user|--system]"),
    "bundle": (
        "Write an archive with all packages of a cluster, for machines without a network.",
        "bundle FILE [--platform P,P] [--python V,V] [--engine E,E] [--gpu]",
    ),
    "scale": ("Change the number of workers of this machine's cluster.", "scale N [--gpu G]"),
    "update": (
        "Replace the running release of this machine's cluster, without losing a job.",
        "update [--check] [--drain SECONDS] [WHEEL|URL|threads-cluster==VERSION]",
    ),
    "rollback": ("Return this machine's cluster to the release before.", "rollback [--drain SECONDS]"),
    "backup": ("Write jobs, results and the audit log of this machine's cluster to a .tar.gz file.", "backup FILE"),
    "restore": ("Replace the data of this machine's cluster with a backup.", "restore FILE [--yes]"),
    "report": ("Print versions, health and errors of this machine's cluster, without secrets.", "report [FILE]"),
    "cleanup": ("Delete the cluster of this machine with all jobs and results.", "cleanup [--yes] [--secrets]"),
    "invite": (
        "Print a command with which one machine can join the cluster of this machine.",
        "invite [--address A] [--port P] [--ttl T] [--gpu] [--runner] [--labels L,M] [--close ID]",
    ),
    "join": (
        "Work for the cluster of another machine until Ctrl-C.",
        "join INVITATION|- [--name N] [--workers N] [--gpu] [--runner] [--labels L,M] [--service]",
    ),
    "leave": ("Revoke the tokens of this machine's workers, and forget the cluster.", "leave [--anyway]"),
}
#: Names of all commands of this module.
NAMES = ("start", *_TEXTS)
#: Commands that unpack the server of this client if necessary.
_INSTALLS = ("bundle", "join", "restore")


def add_commands(app: typer.Typer) -> None:
    """Add the commands for the cluster of this machine to the `cluster` command."""
    settings: dict[Any, Any] = {"ignore_unknown_options": True, "allow_interspersed_args": False}
    app.command(help=_START, epilog=_START_OPTIONS, context_settings=settings)(start)
    for name, (text, usage) in _TEXTS.items():
        epilog = f"\b\nUsage: cluster {usage}\n" if usage else None
        app.command(name, help=text, epilog=epilog, context_settings=settings)(_passed_on(name))


def start(arguments: Arguments = None) -> None:
    from threads_cluster import installation

    words = arguments or []
    kind = next((word for word in words if word in _KINDS), "")
    rest = [word for word in words if word != kind]
    installation.run_server_command(_KINDS.get(kind, "local"), rest, installs=True)


def _passed_on(name: str) -> Callable[..., None]:
    """Return the function of a command that passes its arguments on."""

    def run(arguments: Arguments = None) -> None:
        from threads_cluster import installation

        words = arguments or []
        if name == "update" and all(word.startswith("-") or word.isdecimal() for word in words):
            words = [*words, *installation.unpack_own_release()]
        installation.run_server_command(name, words, installs=name in _INSTALLS)

    return run
