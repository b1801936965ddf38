"""Session of a running command: its connection to the cluster, and the kinds of the cluster or of this checkout."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from threads_cluster import errors, terminal
from threads_protocol import numbers

if TYPE_CHECKING:
    from threads_cluster.client.api import Cluster, Json


def as_json_option(help: str) -> Any:
    """Return the type annotation for the option --json."""
    return Annotated[bool, typer.Option("--json", help=help)]


AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
Tenant: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="TENANT", help="Tenant to act for; needs the scope admin. Default: the token's tenant."),
]


def command_group(help: str) -> typer.Typer:
    """Return a command group that prints its help if the user names no command."""
    return typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=help)


def time_parser(example: str) -> Callable[[str], int]:
    """Return a parser for durations in seconds. Its error message contains `example`."""

    def read(text: str) -> int:
        found = numbers.parse_duration(text)
        if found is None:
            raise typer.BadParameter(f"must be a number with s, m, h or d, such as {example}; got {text!r}")
        return found

    return read


class Session:
    def __init__(self, url: str | None, context: str | None = None) -> None:
        self.stated_url, self.stated_context = url, context
        #: Error of the request for the cluster's kinds, or None.
        self.missing: errors.ClientError | None = None
        self._others: list[Cluster] = []

    @cached_property
    def cluster(self) -> Cluster:
        import_httpx()
        from threads_cluster.client import logins

        if self.stated_url == "":
            raise errors.Misconfigured("--url must not be empty; it has the form http://host:port")
        cluster = self._connect()
        cluster.notify(report_retry, partial(report_delay, cluster.url))
        if not logins.is_local(cluster.url):
            cluster.connection.before_end = partial(report_cluster, cluster)
        return cluster

    def another(self) -> Cluster:
        """Open another connection to the same cluster, for use in another thread. The session closes the connection."""
        self._others.append(self._connect())
        return self._others[-1]

    def _connect(self) -> Cluster:
        from threads_cluster.client import api

        chosen: dict[str, Any] = {"context": self.stated_context} if self.stated_context is not None else {}
        return api.Cluster(self.stated_url, **chosen)

    def kinds(self) -> list[Json]:
        """Return the kinds of the cluster. If the cluster is not reachable, return the kinds of this checkout."""
        try:
            return [terminal.visible_everywhere(kind) for kind in self.cluster.kinds()]
        except errors.ClientError as error:
            self.missing = error
            return local_kinds()

    def check(self, kind: str, parameters: Json) -> None:
        """Do nothing if the cluster was reachable. Otherwise, raise an error about the parameters or the connection."""
        if self.missing is None:
            return
        from pydantic import ValidationError

        try:
            from jobs.kinds import registry

            registry.definition(kind).parameters.model_validate(parameters)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, ("parameters", *first["loc"])))
            raise errors.ApiError(422, {"detail": f"{where}: {first['msg']}", "field": where}) from None
        except ModuleNotFoundError:
            pass
        raise self.missing

    @property
    def submitted(self) -> bool:
        """Return True if this command may have submitted a job."""
        cluster: Cluster | None = self.__dict__.get("cluster")
        return cluster is not None and cluster.submitted

    def close(self) -> None:
        if "cluster" in self.__dict__:
            self.cluster.close()
        for other in self._others:
            other.close()


def report_cluster(cluster: Cluster) -> None:
    """Report on stderr which cluster a command uses, before the command stops or deletes something there."""
    from threads_cluster.cli import show

    show.say(f"acting on {cluster.connection.cluster}")


def import_httpx() -> None:
    """Import httpx without its command line, whose packages take as long to import as httpx itself.

    httpx leaves its command line out if a package of it is missing. None in sys.modules makes a package missing.
    """
    packages = [name for name in ("click", "pygments") if name not in sys.modules]
    sys.modules.update(dict.fromkeys(packages))  # type: ignore[arg-type]
    try:
        import_module("httpx")
    finally:
        for name in packages:
            del sys.modules[name]


def report_retry(error: errors.ClientError) -> None:
    """Report on stderr that a failed call is repeated, so that the user knows about the delay."""
    from threads_cluster.cli import show

    show.say(f"{error}; retrying")


def report_delay(url: str, seconds: float) -> None:
    """Report on stderr that a response is late. A coordinator that hangs still accepts connections."""
    from threads_cluster.cli import show

    show.say(f"no response from {url} yet; waiting for up to {seconds:.0f} s more")


def local_kinds() -> list[Json]:
    """Return the kinds of this checkout as the API describes them. Outside of a checkout, return an empty list."""
    try:
        from jobs.kinds import registry
    except ModuleNotFoundError:
        return []
    definitions = {name: registry.definition(name) for name in registry.names()}
    return [
        {
            "type": name,
            "summary": module.summary,
            "schema": module.parameters.model_json_schema(),
            "example": module.example,
        }
        for name, module in definitions.items()
    ]
