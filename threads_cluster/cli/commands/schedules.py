"""The command `cluster schedule`, for jobs and workflows that the cluster submits repeatedly."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from threads_cluster import errors
from threads_cluster.cli import show
from threads_cluster.cli.commands import workflow_commands
from threads_cluster.cli.session import AsJson, Session, Tenant, command_group, time_parser

app = command_group("Schedules: jobs and workflows that the cluster submits repeatedly.")

Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]
_EXAMPLES = """\b
Examples:
  cluster schedule add sweep --every 1h -- submit collatz --start-number 1 --number-count 1e9
  cluster schedule add nightly --cron "0 3 * * *" --timezone Europe/Berlin -- submit command --files . -- ./report.sh
  cluster schedule add nightly --cron "0 3 * * *" -- workflow submit nightly.yaml
"""


@app.command(epilog=_EXAMPLES)
def add(
    ctx: typer.Context,
    name: Name,
    words: Annotated[
        list[str],
        typer.Argument(metavar="-- submit KIND ...", help="Arguments of cluster submit or cluster workflow submit."),
    ],
    every: Annotated[
        int | None,
        typer.Option(
            metavar="TIME", parser=time_parser("15m"), help="Interval between runs, such as 30s, 15m, 1h or 7d."
        ),
    ] = None,
    cron: Annotated[
        str | None, typer.Option(metavar="TEXT", help='Minute, hour, day, month and day of week, such as "0 3 * * *".')
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Time zone of --cron, such as Europe/Berlin; default: UTC.")
    ] = None,
    overlap: Annotated[
        bool, typer.Option("--overlap", help="Start a run even if the previous run is still running.")
    ] = False,
    catch_up: Annotated[
        str | None,
        typer.Option(metavar="last|none", help="After a downtime, run the last missed run (last) or none."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add a schedule and print its next five runs."""
    if (every is None) == (cron is None):
        raise typer.BadParameter("give either --every TIME or --cron TEXT", param_hint="'--every'")
    if timezone is not None and cron is None:
        raise typer.BadParameter("applies only to --cron", param_hint="'--timezone'")
    what = _submission(ctx.obj, words)
    try:
        row = ctx.obj.cluster.add_schedule(
            name, **what, every_seconds=every, cron=cron, timezone=timezone, overlap=overlap, catch_up=catch_up
        )
    except errors.ApiError as error:
        if "workflow" not in what:
            raise
        file = next(word for word in words[2:] if word == "-" or not word.startswith("-"))
        workflow_commands.refuse(Path(file), error)
    if as_json:
        show.json_line(row)
        return
    show.line(f"{row['name']}  {row['type']}  {show.schedule_text(row)}")
    show.next_runs(row)


class _ParsedSubmission(Exception):
    """Exception that contains a parsed submission. It is raised instead of submitting the job."""

    def __init__(self, **what: Any) -> None:
        super().__init__()
        #: Keyword arguments for `add_schedule`: the job or the workflow.
        self.what = what


def _submission(session: Session, words: list[str]) -> dict[str, Any]:
    """Parse a `cluster` command line and return the submission that it describes. Uploads the files."""
    from threads_cluster.cli import main as cli
    from threads_cluster.client import api

    if words[0] != "submit" and words[:2] != ["workflow", "submit"]:
        how = "-- submit collatz ... or -- workflow submit FILE"
        raise typer.BadParameter(f"must start with submit, as in: {how}; got {words[0]!r}", param_hint="--")
    if "--wait" in words[: words.index("--") if "--" in words else len(words)]:
        raise typer.BadParameter("does not apply to scheduled jobs; remove it", param_hint="'--wait'")

    def read_it(kind: str, parameters: Mapping[str, Any] | None = None, **choices: Any) -> Any:
        body = api.submission(kind, parameters, **{"idempotency_key": None, **choices})
        body.pop("idempotency_key")
        raise _ParsedSubmission(job=body)

    def read_text(text: bytes, *, notify: str | None = None) -> Any:
        if notify is not None:
            why = "does not apply to scheduled workflows; write notify: URL in the workflow file"
            raise typer.BadParameter(why, param_hint="'--notify'")
        try:
            raise _ParsedSubmission(workflow=text.decode())
        except UnicodeDecodeError as error:
            raise errors.BadArgument(
                f"the workflow is not UTF-8: byte {error.start} is {text[error.start]:#04x}"
            ) from None

    reading = Session(session.stated_url, session.stated_context)
    reading.cluster.submit = read_it  # type: ignore[method-assign]
    # A suitable runner may join before the schedule's first job
    reading.cluster.estimate = lambda *_: {"unschedulable": None}  # type: ignore[method-assign]
    reading.cluster.workflows.submit = read_text  # type: ignore[method-assign, assignment]
    try:
        cli.commands()(words, prog_name="cluster", standalone_mode=False, obj=reading)
    except _ParsedSubmission as read:
        return read.what
    raise errors.BadArgument("these arguments do not submit a job; see: cluster submit --help")


@app.command("list")
def list_schedules(ctx: typer.Context, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """List schedules with their next run and the outcome of the last one."""
    none = "No schedules. Add one with: cluster schedule add NAME --every 1h -- submit KIND ..."
    show.listing(ctx.obj.cluster.schedules(tenant=tenant), show.SCHEDULES, as_json=as_json, none=none)


@app.command("show")
def show_one(ctx: typer.Context, name: Name, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Show a schedule with its job or workflow, and its next runs."""
    row = ctx.obj.cluster.schedule(name, tenant=tenant)
    show.json_line(row) if as_json else show.schedule(row)


@app.command()
def pause(ctx: typer.Context, name: Name, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Pause a schedule until it is resumed."""
    _print_schedule(ctx.obj.cluster.pause_schedule(name, tenant=tenant), as_json=as_json)


@app.command()
def resume(ctx: typer.Context, name: Name, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Resume a paused schedule at its next time."""
    _print_schedule(ctx.obj.cluster.resume_schedule(name, tenant=tenant), as_json=as_json)


def _print_schedule(row: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        show.json_line(row)
        return
    show.line(f"{row['name']} {row['state']}")
    show.next_runs(row)


@app.command("run-now")
def run_now(ctx: typer.Context, name: Name, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Submit the job or workflow of a schedule now, in addition to its regular times. Prints its ID."""
    made = ctx.obj.cluster.run_schedule(name, tenant=tenant)
    field = "job_id" if made.startswith("s-") else "workflow_id"
    show.json_line({"name": name, field: made}) if as_json else show.line(made)


@app.command()
def delete(ctx: typer.Context, name: Name, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Delete a schedule. Its submitted jobs continue."""
    ctx.obj.cluster.delete_schedule(name, tenant=tenant)
    show.json_line({"name": name, "deleted": True}) if as_json else show.line(f"{name} deleted")
