"""The command `cluster queue`, an alternative name for commands that list and cancel jobs."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from threads_cluster.cli import show
from threads_cluster.cli.session import AsJson, command_group

app = command_group("Jobs as a task queue. Same as: cluster jobs, cluster cancel")

Limit: TypeAlias = Annotated[
    int, typer.Option(min=1, max=500, metavar="COUNT", help="Maximum number of jobs to list, newest first.")
]


@app.command()
def status(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Count jobs by state."""
    counts = ctx.obj.cluster.queue()
    show.json_line({"tasks": counts}) if as_json else show.pairs({name: str(count) for name, count in counts.items()})


@app.command()
def tasks(
    ctx: typer.Context,
    state: Annotated[
        str | None,
        typer.Option("--status", "--state", metavar="STATE", help="Only jobs in this state, such as running."),
    ] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first. Same as: cluster jobs"""
    rows = list(ctx.obj.cluster.jobs(state=state, limit=limit))
    show.listing(rows, show.jobs, as_json=as_json, none="No matching jobs. List all with: cluster queue tasks")


@app.command()
def cancel(
    ctx: typer.Context,
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's ID.")],
    as_json: AsJson = False,
) -> None:
    """Stop a job. Same as: cluster cancel"""
    row = ctx.obj.cluster.cancel(job_id)
    show.json_line(row) if as_json else show.line(f"{row['job_id']} {row['state']}")


@app.command()
def history(ctx: typer.Context, limit: Limit = 20, as_json: AsJson = False) -> None:
    """List jobs that have ended, most recent first."""
    rows = ctx.obj.cluster.history(limit)
    show.listing(rows, show.jobs, as_json=as_json, none="No job has ended.")
