"""The command `cluster engine`, which lists engines and installs their packages on runners."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

import typer

from threads_cluster import errors
from threads_cluster.cli import show
from threads_cluster.cli.session import AsJson, command_group

app = command_group("List the engines that run services, and install their packages.")

EXAMPLES = """\b
Examples:
  cluster engine list
  cluster engine install transformers --host gpu1
"""
#: Name of the requirements file in the program's folder.
_LIST = "requirements.txt"
_SAY = "import sys; print('installed for', sys.version.split()[0], 'at', sys.prefix)"


@app.command("list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List engines."""
    columns: show.Columns = {
        "engine": "engine",
        "for": "summary",
        "packages": lambda row: "gigabytes" if row["large"] else None,
    }
    show.listing(ctx.obj.cluster.services.engines(), columns, as_json=as_json, none="no engines")


@app.command(epilog=EXAMPLES)
def install(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="ENGINE", help="See: cluster engine list.")],
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="Install on this host; default: any host with a runner.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="Install on a runner with this label.")
    ] = None,
) -> None:
    """Install an engine's packages on a runner now, so that replicas start faster. Ctrl-C cancels the job."""
    from threads_cluster.cli import running
    from threads_cluster.client.programs import Program

    row = find_engine(ctx, name)
    if not row["packages"]:
        show.say(f"the engine {name} needs no packages")
        return
    with tempfile.TemporaryDirectory() as folder:
        # The requirements must equal those of a replica, because runners identify an environment by their hash.
        Path(folder, _LIST).write_text(row["packages"])
        program = Program(command=["python3", "-c", _SAY], python=_LIST, host=host, labels=label or ())
        job = ctx.obj.cluster.programs.submit(program, files=folder)["job_id"]
    _, code = running.run(ctx.obj, job)
    if code:
        raise typer.Exit(code)


def find_engine(ctx: typer.Context, name: str) -> Mapping[str, Any]:
    """Return an engine by its name. Raises BadArgument with a list of the valid engines."""
    rows = {row["engine"]: row for row in ctx.obj.cluster.services.engines()}
    if name not in rows:
        raise errors.BadArgument(f"engine {name} does not exist; the engines are {', '.join(rows)}")
    row: Mapping[str, Any] = rows[name]
    return row


def confirm_download(ctx: typer.Context, name: str) -> None:
    """Ask the user to confirm a download of gigabytes of packages.

    Raises BadArgument if stdin is not a terminal, and Exit if the user declines.
    """
    try:
        large = {row["engine"] for row in ctx.obj.cluster.services.engines() if row["large"]}
    except errors.ApiError as error:
        if error.status == HTTPStatus.FORBIDDEN:  # Tokens that have only the scope run cannot list engines
            return
        raise
    if name not in large:
        return
    what = f"engine {name} needs gigabytes of packages, which each runner downloads once"
    if not sys.stdin.isatty():
        refused = errors.BadArgument(what)
        refused.next = f"allow the download with --install, or run before: cluster engine install {name}"
        raise refused
    if not typer.confirm(f"{what}. Continue?", err=True):
        raise typer.Exit(1)
