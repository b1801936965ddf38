"""State that the commands of one run share: the connection, and the kinds with or without a cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from threads_cluster import errors, terminal
from threads_protocol import numbers

if TYPE_CHECKING:
    from threads_cluster.client.api import Cluster, Json


def as_json_option(help: str) -> Any:
    """The --json flag, the same everywhere."""
    return Annotated[bool, typer.Option("--json", help=help)]


AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="For programs: JSON, one object a line.")]
Tenant: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TENANT", help="Another tenant than one's own; needs the scope admin.")
]


def command_group(help: str) -> typer.Typer:
    """Return a group of commands that prints its help when it is called without a command."""
    return typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=help)


def time_parser(example: str) -> Callable[[str], int]:
    """Return a function that reads the seconds of an option, written as the example is."""

    def read(text: str) -> int:
        found = numbers.seconds(text)
        if found is None:
            raise typer.BadParameter(f"must be a number with s, m, h or d, as {example}; got {text!r}")
        return found

    return read


class Session:
    def __init__(self, url: str | None) -> None:
        self._url = self.stated_url = url
        #: Why no cluster could be asked for its kinds.
        self.missing: errors.ClientError | None = None
        self._others: list[Cluster] = []

    @cached_property
    def cluster(self) -> Cluster:
        from threads_cluster.client.api import Cluster

        if self._url == "":
            raise errors.Misconfigured("--url is empty; it has the form http://host:port")
        cluster = Cluster(self._url)
        cluster.notify(say_trouble, partial(say_silence, cluster.url))
        return cluster

    def another(self) -> Cluster:
        """A further connection to the same cluster, for another thread; closed with this session."""
        from threads_cluster.client.api import Cluster

        self._others.append(Cluster(self._url))
        return self._others[-1]

    def kinds(self) -> list[Json]:
        """The cluster's kinds; this checkout's when none answers, good for help and for finding mistakes."""
        try:
            return [terminal.visible_everywhere(kind) for kind in self.cluster.kinds()]
        except errors.ClientError as error:
            self.missing = error
            return known_here()

    def check(self, kind: str, parameters: Json) -> None:
        """When no cluster answered: says what is wrong with the parameters, else that nothing answers."""
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
        """Whether something may have been submitted; asks nobody."""
        cluster: Cluster | None = self.__dict__.get("cluster")
        return cluster is not None and cluster.submitted

    def close(self) -> None:
        if "cluster" in self.__dict__:
            self.cluster.close()
        for other in self._others:
            other.close()


def say_trouble(error: errors.ClientError) -> None:
    """One line on stderr while a call is tried again: silence would look like work."""
    from threads_cluster.cli import show

    show.say(f"{error}; still trying")


def say_silence(url: str, seconds: float) -> None:
    """One line on stderr while an answer is late: a coordinator that hangs keeps its port open."""
    from threads_cluster.cli import show

    show.say(f"no answer from {url} yet; waiting for up to {seconds:.0f} s more")


def known_here() -> list[Json]:
    """Return the kinds of this checkout in the API's shape; none where the client is installed without them."""
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
