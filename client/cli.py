"""The `cluster` command: data on stdout, chatter on stderr, exit codes that scripts can use."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Any, NoReturn, TypeAlias

import typer
from typer.core import TyperGroup

from client import errors, show
from client.session import Session, as_json_option
from client.submitting import Kinds

_EPILOG = """\b
Exit codes:
  0    it worked; with --wait or watch: the job is done
  1    the job failed or was cancelled
  2    bad usage, or the cluster refused the request
  3    no cluster answers, or it has trouble of its own
  130  Ctrl-C; what was submitted goes on

\b
--json prints one object on one line; jobs, nodes, kinds and watch print one line for each thing.
The address is --url, else CLUSTER_URL, else the local cluster's. CLUSTER_TOKEN is sent when it is set.
"""


class InOrder(TyperGroup):
    """Help lists submit first."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(self.commands, key=lambda name: name != "submit")


app = typer.Typer(
    name="cluster", help="Submit jobs to a cluster and watch them.", epilog=_EPILOG, no_args_is_help=True,
    rich_markup_mode=None, add_completion=True, pretty_exceptions_enable=False,
    cls=InOrder, context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 110},
)  # fmt: skip
app.add_typer(
    typer.Typer(cls=Kinds, no_args_is_help=True, rich_markup_mode=None),
    name="submit", help="Submit a job; each kind has its own flags.", subcommand_metavar="KIND [FLAGS]...",
    epilog="cluster submit KIND --help lists the flags of a kind.",
)  # fmt: skip

AsJson: TypeAlias = as_json_option("For programs: JSON, one object a line.")  # type: ignore[valid-type]
JobId: TypeAlias = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]


@app.callback()
def connect(
    ctx: typer.Context,
    url: Annotated[str | None, typer.Option(metavar="URL", help="Where the cluster's API is.")] = None,
) -> None:
    ctx.obj = Session(url)
    ctx.call_on_close(ctx.obj.close)


@app.command()
def status(ctx: typer.Context, as_json: AsJson = False) -> None:
    """What the cluster has and does."""
    cluster = ctx.obj.cluster
    found = cluster.status()
    if as_json:
        show.json_line(found)
        return
    show.status(found, cluster.url)
    if not found["workers"]["live"]:
        show.say("no worker lives, so jobs wait; see: cluster nodes, and the workers' logs")
    elif not any(found["jobs"].values()):
        show.say(_FIRST_JOB)


_FIRST_JOB = "no jobs yet; try: cluster submit collatz --start-number 1 --number-count 1000000 --wait"


@app.command()
def jobs(
    ctx: typer.Context,
    state: Annotated[str | None, typer.Option(metavar="STATE", help="Only jobs in this state.")] = None,
    kind: Annotated[str | None, typer.Option("--type", metavar="KIND", help="Only jobs of this kind.")] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="COUNT", help="Most jobs shown, newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Jobs, newest first."""
    found = list(ctx.obj.cluster.jobs(state=state, kind=kind, limit=limit))
    if as_json:
        _lines(found)
    elif found:
        show.jobs(found)
        if len(found) == limit:
            show.say(f"the newest {limit}; more with --limit")
    else:
        show.say("no such jobs; all: cluster jobs" if state or kind else _FIRST_JOB)


@app.command()
def job(ctx: typer.Context, job_id: JobId, as_json: AsJson = False) -> None:
    """One job: state, parameters, who computed it."""
    found = ctx.obj.cluster.job(job_id)
    show.json_line(found) if as_json else show.job(found)


@app.command()
def watch(ctx: typer.Context, job_id: JobId, as_json: AsJson = False) -> None:
    """Watch a job until it ends; Ctrl-C leaves it running."""
    from client import watching

    if as_json:
        job = _print_events(ctx.obj.cluster, job_id)
    else:
        job = watching.until_end(ctx.obj.cluster, job_id)
        show.say(show.ended_line(job))
        if job["state"] == "done":
            show.say(f"see its result with: cluster result {job_id}")
    raise typer.Exit(watching.exit_code(job))


def _print_events(cluster: Any, job_id: str) -> dict[str, Any]:
    from client import watching

    event: dict[str, Any] = {}
    try:
        for event in cluster.events(job_id):
            show.json_line(event)
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise watching.Interrupted(watching.goes_on(job_id)) from None
    return event


@app.command()
def result(
    ctx: typer.Context,
    job_id: JobId,
    as_csv: Annotated[bool, typer.Option("--csv", help="A table of the result as CSV; the first one.")] = False,
    table: Annotated[str | None, typer.Option(metavar="NAME", help="Which table --csv prints.")] = None,
    partial: Annotated[bool, typer.Option("--partial", help="What is there so far.")] = False,
    trace: Annotated[
        typer.FileTextWrite | None, typer.Option(help="Write one replica of a thread job here, for Perfetto.")
    ] = None,
    replica: Annotated[int, typer.Option(min=0, help="Which replica --trace writes.")] = 0,
    as_json: AsJson = False,
) -> None:
    """The result of a finished job."""
    if trace is not None:
        json.dump(ctx.obj.cluster.ask(job_id, "trace", replica=replica), trace)
        show.say(f"replica {replica}: {trace.name}; open it in https://ui.perfetto.dev")
        return
    answer = ctx.obj.cluster.result(job_id, partial=partial)
    if as_json:
        show.json_line(answer)
    elif as_csv or table:
        _print_csv(answer["result"], table)
    else:
        show.result(answer)


def _print_csv(found: Any, name: str | None) -> None:
    from client import tables

    try:
        picked, others = tables.chosen(found, name)
    except LookupError as error:
        raise typer.BadParameter(str(error.args[0]), param_hint="'--table'") from None
    sys.stdout.write(tables.as_csv(picked))
    if others and name is None:
        show.say(f"that was {picked.name}; with --table: {', '.join(others)}")


def _each(what: str, done: str) -> Callable[..., None]:
    """A command that does one thing to each of several jobs; the first refusal ends with its exit code."""

    def act(
        ctx: typer.Context,
        job_ids: Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids of jobs.")],
        as_json: AsJson = False,
    ) -> None:
        worst = 0
        for job_id in job_ids:
            try:
                found = getattr(ctx.obj.cluster, what)(job_id)
            except errors.ApiError as error:
                worst = worst or _complain(error)
                continue
            _acted(found or {"job_id": job_id, "state": done}, as_json=as_json)
        raise typer.Exit(worst)

    return act


def _acted(found: dict[str, Any], *, as_json: bool) -> None:
    show.json_line(found) if as_json else print(f"{found['job_id']} {found['state']}")


for _name, _done, _help in (
    ("cancel", "cancelled", "Stop jobs. What is computed is kept; retry goes on from there."),
    ("pause", "paused", "Stop jobs until resume."),
    ("resume", "queued", "Let paused jobs go on."),
    ("retry", "queued", "Let failed or cancelled jobs go on where they stopped."),
    ("delete", "deleted", "Forget jobs that have ended, with their results."),
):
    app.command(_name, help=_help)(_each(_name, _done))


@app.command()
def nodes(ctx: typer.Context, as_json: AsJson = False) -> None:
    """The workers."""
    found = ctx.obj.cluster.nodes()
    if as_json:
        _lines(found)
    elif found:
        show.nodes(found)
    else:
        show.say("no workers; start a local cluster with: ./deploy-cluster.sh local")


@app.command()
def verified(ctx: typer.Context, as_json: AsJson = False) -> None:
    """How far the Collatz map is verified by finished jobs, without a hole."""
    found = ctx.obj.cluster.mark("collatz", "verified")
    if as_json:
        show.json_line(found)
    else:
        show.mark(found)


@app.command()
def drain(
    ctx: typer.Context,
    node: Annotated[str, typer.Argument(metavar="NODE", help="The worker's id; see cluster nodes.")],
    off: Annotated[bool, typer.Option("--off", help="Let it take work again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let a worker finish what it holds and take nothing new."""
    found = ctx.obj.cluster.drain(node, on=not off)
    if as_json:
        show.json_line(found)
    else:
        print(f"{node} takes work again" if off else f"{node} drains; back with: cluster drain {node} --off")


@app.command()
def kinds(ctx: typer.Context, as_json: AsJson = False) -> None:
    """The kinds of jobs; --json with the schema of their parameters."""
    found = ctx.obj.cluster.kinds()
    if as_json:
        _lines(found)
    else:
        show.kinds(found)
        show.say("flags of a kind: cluster submit KIND --help")


@app.command()
def version(ctx: typer.Context, as_json: AsJson = False) -> None:
    """The version of the cluster that answers."""
    found = ctx.obj.cluster.status()["version"]
    show.json_line({"version": found}) if as_json else print(found)


def _lines(found: Iterable[dict[str, Any]]) -> None:
    for one in found:
        show.json_line(one)


#: What the API advises, in the words of the command line.
_ADVICE = {
    "GET /api/jobs": "cluster jobs",
    "GET /api/nodes": "cluster nodes",
    "GET /api/job-types": "cluster kinds",
    "partial=true": "--partial",
}


def _complain(error: errors.ClientError) -> int:
    """Says what went wrong in the words of the command line; the exit code."""
    from client import options

    text = re.sub(r"\bparameters\.(\w+)", lambda match: options.option_name(match[1]), str(error))
    field = getattr(error, "field", None)
    if field and text.startswith(f"{field}:"):
        text = options.option_name(field) + text.removeprefix(field)
    for theirs, ours in _ADVICE.items():
        text = text.replace(theirs, ours)
    show.say(text if error.exit_code == errors.INTERRUPTED else f"error: {text}")
    if error.next:
        show.say(f"next: {error.next}")
    return error.exit_code


def main(arguments: list[str] | None = None) -> NoReturn:
    """The entry point: runs a command and exits."""
    try:
        app(arguments, prog_name="cluster")
    except errors.ClientError as error:
        sys.exit(_complain(error))
    sys.exit(0)


if __name__ == "__main__":
    main()
