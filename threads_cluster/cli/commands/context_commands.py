"""The command `cluster context`, which lists, selects and deletes the names of clusters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from threads_cluster import errors, settings
from threads_cluster.cli import show
from threads_cluster.cli.session import AsJson, command_group

if TYPE_CHECKING:
    from threads_cluster.client.contexts import Context

app = command_group("List, select and delete contexts, which are names for clusters.")

Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="Name of a context; see cluster context list.")]

_COLUMNS: show.Columns = {
    "selected": lambda row: "*" if row["selected"] else "",
    "name": "name",
    "address": lambda row: row["url"] or row["state"],
    "token": "token",
}
_NONE = "No contexts. Start a local cluster with ./deploy-cluster.sh local, or log in with cluster login URL"


@app.command("list")
def list_contexts(as_json: AsJson = False) -> None:
    """List contexts with the addresses of their clusters and the files with their tokens."""
    from threads_cluster.client import contexts

    stated = settings.load()
    known = contexts.load(stated)
    rows = [
        {"name": name, "selected": name == known.selected, **_state(context), "token": _token(context, stated)}
        for name, context in sorted(known.by_name.items())
    ]
    show.listing(rows, _COLUMNS, as_json=as_json, none=_NONE)
    if not as_json and known.selected:
        report_precedence(known.selected)


def _state(context: Context) -> dict[str, str]:
    """Return the present address of a cluster, or the reason why it has none."""
    try:
        return {"url": context.current().url, "state": ""}
    except errors.Misconfigured:
        return {"url": "", "state": "its folder does not exist"}
    except errors.ClientError:
        return {"url": "", "state": f"not running in {Path(context.folder).parent}"}


def _token(context: Context, stated: settings.Settings) -> str:
    """Return the file that contains the token of a cluster, or an empty string if there is no token."""
    from threads_cluster.client import logins

    file = context.token_file(stated)
    has_token = file is not None and (file.is_file() if context.folder else logins.has_token(context.url, stated))
    return str(file) if has_token else ""


@app.command()
def use(name: Name) -> None:
    """Select the context of later commands."""
    from threads_cluster.client import contexts

    contexts.select(name, settings.load())
    show.line(f"{name} selected")
    report_precedence(name)


@app.command()
def delete(name: Name) -> None:
    """Delete a context and its stored token. The cluster and its token in .cluster are not changed."""
    from threads_cluster.client import contexts, logins

    stated = settings.load()
    context = contexts.load(stated).named(name)
    contexts.delete(name, stated)
    if not context.folder:
        logins.forget(context.url, stated)
    show.line(f"{name} deleted")


def report_precedence(name: str) -> None:
    """Report on stderr if commands without options use another cluster than the context with this name."""
    from threads_cluster.client import contexts

    first = contexts.preferred(settings.load(), name)
    if first:
        show.say(f"note: here, commands use {first} instead; to use {name}: cluster --context {name} COMMAND")
