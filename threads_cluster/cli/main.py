"""Entry point of the `cluster` command. Data is printed on stdout, and messages on stderr."""

from __future__ import annotations

import atexit
import gc
import json
import re
import sys
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeAlias

import typer

from threads_cluster import errors, settings, terminal
from threads_cluster.cli import show
from threads_cluster.cli.command_index import GroupedCommands, LazyCommands
from threads_cluster.cli.session import AsJson, Session

_EPILOG = """\
Cluster: --url, --context, CLUSTER_URL, this checkout's, or the selected context
Options of a command: cluster COMMAND --help   Exit codes: cluster watch --help"""
_EXIT_CODES = """\b
Exit codes:
  0    success; with --wait or watch: the job is done
  1    the job failed or was cancelled; audit, verify-certificate: the data was altered
  2    wrong usage or settings, or the cluster rejected the request
  3    the cluster cannot be reached, has an error, or sent an invalid response
  4    the command could not write its output
  70   internal error of this command
  130  Ctrl-C; submitted jobs keep running
  141  the reader of the output closed it, as in: cluster jobs | head -1

--json prints one JSON object per line, and lists print one line for each item.
The cluster is --url or --context, else CLUSTER_URL, else the cluster of this checkout, else the selected context. The
token is CLUSTER_TOKEN, else the token stored by cluster login, else the token of the local cluster.
"""


#: New objects after which Python searches for garbage. Importing the client creates about half of them.
_OBJECTS = 100_000
#: Session of the running command. Typer does not return the context of an interrupted command.
_sessions: list[Session] = []

#: The commands that this module defines. threads_cluster.cli.command_index names the modules of the others.
app = typer.Typer()
_root = typer.Typer(
    name="cluster",
    help="Run programs, Python functions and models on a cluster.",
    epilog=_EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=True,
    pretty_exceptions_enable=False,
    cls=GroupedCommands,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 110},
)

JobId: TypeAlias = Annotated[str, typer.Argument(metavar="JOB", help="The job's ID.")]


@_root.callback()
def connect(
    ctx: typer.Context,
    url: Annotated[str | None, typer.Option(metavar="URL", help="The address of the cluster's API.")] = None,
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="The context of the cluster; see cluster context list.")
    ] = None,
) -> None:
    # A schedule parses the arguments of its job within its own command, so the session is reused.
    ctx.obj = ctx.obj or Session(url, context)
    ctx.call_on_close(ctx.obj.close)
    _sessions[:] = [ctx.obj]


@app.command()
def status(
    ctx: typer.Context,
    processes: Annotated[
        bool, typer.Option("--processes", help="Show the processes or containers of this machine's cluster, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show numbers of workers and jobs, queues, and speed."""
    if processes:
        from threads_cluster import installation

        installation.run_server_command("status", ["--json"] if as_json else [], installs=False)
    cluster = ctx.obj.cluster
    summary = cluster.status()
    if as_json:
        show.json_line(summary)
        return
    from threads_cluster.client import checkouts  # import only here, so that --help does not load pydantic

    show.status(summary, cluster.url, checkouts.ports_of(cluster.url))
    if not summary["workers"]["live"]:
        show.say("No live workers; jobs stay queued. See: cluster workers, and the workers' logs")
    elif not any(summary["jobs"].values()):
        show.say(_FIRST_JOB)


_FIRST_JOB = "No jobs yet. Try: cluster submit collatz --start-number 1 --number-count 1000000 --wait"


@app.command()
def jobs(
    ctx: typer.Context,
    search: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Only jobs whose ID begins with each word, or whose title, kind or tags contain it."
        ),
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="Only jobs with this tag. Repeat for jobs with all tags.")
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Only jobs in this state, such as running. Repeat for more states."),
    ] = None,
    kind: Annotated[str | None, typer.Option("--type", metavar="KIND", help="Only jobs of this kind.")] = None,
    tenant: Annotated[str | None, typer.Option(metavar="TENANT", help="Only jobs of this tenant.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only jobs submitted since then: 30m, 12h, 7d or 2026-01-31.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only jobs submitted before then.")] = None,
    limit: Annotated[
        int, typer.Option(min=1, metavar="COUNT", help="Maximum number of jobs to list, newest first.")
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    from threads_cluster.cli import times

    conditions: dict[str, Any] = {"state": state, "kind": kind, "search": search, "tags": tag, "tenant": tenant}
    conditions |= {name: text and times.parse_time(text, name) for name, text in (("since", since), ("until", until))}
    conditions = {name: value for name, value in conditions.items() if value}
    found: list[dict[str, Any]] = []
    rows = list(ctx.obj.cluster.jobs(limit=limit, on_page=found.append, **conditions))
    none = "No matching jobs. List all with: cluster jobs" if conditions else _FIRST_JOB
    show.listing(rows, show.jobs, as_json=as_json, none=none)
    if not as_json:
        show.matching_jobs(len(rows), found[0] if found else {}, is_filtered=bool(conditions))


@app.command()
def job(ctx: typer.Context, job_id: JobId, as_json: AsJson = False) -> None:
    """Show a job: its state, why it is waiting, and which workers computed it."""
    row = ctx.obj.cluster.job(job_id)
    show.json_line(row) if as_json else show.job(row)


@app.command()
def relations(ctx: typer.Context, job_id: JobId, as_json: AsJson = False) -> None:
    """List the jobs that a job depends on, the jobs that wait for it, and the jobs skipped because of it."""
    row = ctx.obj.cluster.relations(job_id)
    if as_json:
        show.json_line(row)
    elif row["parents"] or row["children"] or row["skipped"]:
        show.relations(row)
    else:
        show.say(f"{job_id} does not depend on another job, and no job depends on it")


@app.command(epilog=_EXIT_CODES)
def watch(ctx: typer.Context, job_id: JobId, as_json: AsJson = False) -> None:
    """Watch a job until it ends. Ctrl-C stops watching; the job continues."""
    from threads_cluster.cli import running, watching

    if as_json:
        job = _print_events(ctx.obj.cluster, job_id)
    else:
        job = watching.wait_for_end(ctx.obj, job_id, soon=True)
        show.say(show.ended_line(job))
        running.note_new_files(ctx.obj, job)
        if job["state"] == "done":
            show.say(f"Print its result with: cluster result {job_id}")
    raise typer.Exit(watching.exit_code(job))


def _print_events(cluster: Any, job_id: str) -> dict[str, Any]:
    from threads_cluster.cli import watching

    event: dict[str, Any] = {}
    try:
        for event in cluster.events(job_id):
            show.json_line(event)
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise watching.Interrupted(watching.describe_running_job(job_id)) from None
    return event


@app.command()
def result(
    ctx: typer.Context,
    job_id: JobId,
    as_csv: Annotated[
        bool,
        typer.Option(
            "--csv", help="Print a table of the result as CSV: the first table, or the table named by --table."
        ),
    ] = False,
    table: Annotated[str | None, typer.Option(metavar="NAME", help="The table that --csv prints.")] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Print the committed part of the result of an unfinished job.")
    ] = False,
    trace: Annotated[
        typer.FileTextWrite | None,
        typer.Option(metavar="FILE", help="Write a Perfetto trace of one replica of a thread job to this file."),
    ] = None,
    replica: Annotated[int, typer.Option(min=0, metavar="NUMBER", help="The replica that --trace writes.")] = 0,
    fetch: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Download the output files of programs into this folder, for example of unit 3 into DIR/3.",
        ),
    ] = None,
    flat: Annotated[
        bool, typer.Option("--flat", help="With --fetch: download the files of all units into DIR itself.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the result of a job, or download the output files of its programs."""
    from threads_cluster.client import answers

    if fetch is not None:
        from threads_cluster.cli.commands import program_commands

        program_commands.fetch(ctx.obj, job_id, fetch, flat=flat, as_json=as_json)
        return

    if trace is not None:
        answer = ctx.obj.cluster.ask(job_id, "trace", replica=replica)
        json.dump(answers.checked(answers.Trace, answer, ctx.obj.cluster.url), trace)
        show.say(f"replica {replica}: {trace.name}; open this file in https://ui.perfetto.dev")
        return
    answer = ctx.obj.cluster.result(job_id, partial=partial)
    if as_json:
        show.json_line(answer)
    elif as_csv or table:
        _print_csv(answer["result"], table)
    else:
        show.result(answer)


def _print_csv(value: Any, name: str | None) -> None:
    from threads_cluster.cli import tables

    try:
        table, others = tables.select(value, name)
    except LookupError as error:
        raise typer.BadParameter(str(error.args[0]), param_hint="'--table'") from None
    sys.stdout.write(tables.to_csv(table))
    if others and name is None:
        show.say(f"Printed {table.name}. Other tables for --table: {', '.join(others)}")


JobIds: TypeAlias = Annotated[list[str], typer.Argument(metavar="JOB", help="Job IDs.")]
Hold: TypeAlias = Annotated[
    bool, typer.Option("--hold", help="If a job exceeds a cap of its tenant, queue it until the cap allows it.")
]


def _command_for_jobs(what: str, done: str, *, holds: bool) -> Callable[..., None]:
    """Create a command that applies an API call to several jobs. Its exit code is the code of the first error."""

    def act(ctx: typer.Context, job_ids: JobIds, as_json: AsJson = False) -> None:
        _act_on(ctx.obj, job_ids, getattr(ctx.obj.cluster, what), done, as_json)

    def act_or_hold(ctx: typer.Context, job_ids: JobIds, hold: Hold = False, as_json: AsJson = False) -> None:
        call = getattr(ctx.obj.cluster, what)
        _act_on(ctx.obj, job_ids, lambda job_id: call(job_id, hold=hold), done, as_json)

    return act_or_hold if holds else act


def _act_on(session: Session, job_ids: list[str], call: Callable[[str], Any], done: str, as_json: bool) -> NoReturn:
    worst = 0
    for job_id in job_ids:
        try:
            after = call(job_id)
        except (errors.ApiError, errors.BadArgument) as error:
            worst = worst or _print_error(error)
            continue
        after = {"job_id": job_id, "state": done} if after is None else after
        _print_state(after, as_json=as_json)
    raise typer.Exit(worst)


def _print_state(job: dict[str, Any], *, as_json: bool) -> None:
    show.json_line(job) if as_json else show.line(f"{job['job_id']} {job['state']}")


for _name, _done, _help in (
    ("cancel", "cancelled", "Stop jobs. Committed units are kept, and retry continues from there."),
    ("pause", "paused", "Stop jobs until they are resumed."),
    ("resume", "queued", "Continue paused jobs."),
    ("retry", "queued", "Continue failed or cancelled jobs, and restore the jobs skipped because of them."),
    ("delete", "deleted", "Delete jobs that have ended or are blocked, with their results."),
):
    app.command(_name, help=_help)(_command_for_jobs(_name, _done, holds=_name in ("resume", "retry")))


@app.command()
def dead(
    ctx: typer.Context,
    job_id: Annotated[str | None, typer.Argument(metavar="JOB", help="The job's ID; default: all jobs.")] = None,
    retry: Annotated[
        int | None, typer.Option(min=0, metavar="FIRST", help="Retry the range that starts at this unit.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List units that could not be computed, with their errors. To retry all units of a job: cluster retry JOB"""
    if retry is not None:
        if job_id is None:
            raise typer.BadParameter("needs a JOB", param_hint="'--retry'")
        _print_state(ctx.obj.cluster.retry_dead(job_id, retry), as_json=as_json)
        return
    show.listing(ctx.obj.cluster.dead(job_id), show.dead, as_json=as_json, none="No dead units.")


@app.command()
def ask(
    ctx: typer.Context,
    job_id: JobId,
    question: Annotated[
        str, typer.Argument(metavar="QUESTION", help="Question that the job's kind supports; see cluster kinds.")
    ],
    choices: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Arguments of the question, such as replica=3.")
    ] = None,
    output: Annotated[
        typer.FileTextWrite | None, typer.Option(metavar="FILE", help="Write the response to this file.")
    ] = None,
    as_csv: Annotated[
        bool,
        typer.Option(
            "--csv", help="Print a table of the response as CSV: the first table, or the table named by --table."
        ),
    ] = False,
    table: Annotated[str | None, typer.Option(metavar="NAME", help="The table that --csv prints.")] = None,
) -> None:
    """Ask a worker a question about a job, and print the response as JSON."""
    answer = ctx.obj.cluster.ask(job_id, question, **_choices(choices or []))
    if output is not None:
        json.dump(answer, output)
        show.say(f"{question}: {output.name}")
    elif as_csv or table:
        _print_csv(answer, table)
    else:
        show.json_line(answer)


def _choices(texts: list[str]) -> dict[str, str]:
    """Parse texts of the form NAME=VALUE into a dictionary."""
    pairs = [text.partition("=") for text in texts]
    wrong = [text for text, (name, equals, _) in zip(texts, pairs, strict=True) if not (name and equals)]
    if wrong:
        raise typer.BadParameter(f"must have the form NAME=VALUE; got {wrong[0]!r}", param_hint="'NAME=VALUE'")
    return {name: value for name, _, value in pairs}


@app.command()
def workers(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List workers, including those lost within the last hour."""
    rows = ctx.obj.cluster.workers()
    none = "No workers. Start a local cluster with: ./deploy-cluster.sh local"
    show.listing(rows, show.workers, as_json=as_json, none=none)


@app.command()
def hosts(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List hosts and the load of their workers. To add a host: ./deploy-cluster.sh invite"""
    none = "No hosts. Start a local cluster with: ./deploy-cluster.sh local"
    show.listing(ctx.obj.cluster.hosts(), show.HOSTS, as_json=as_json, none=none)


@app.command()
def host(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The host's name; see cluster hosts.")],
    as_json: AsJson = False,
) -> None:
    """Show a host: its load, disks, clock, versions, workers and GPUs."""
    row = ctx.obj.cluster.host(name)
    show.json_line(row) if as_json else show.host(row)


@app.command()
def mark(
    ctx: typer.Context,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="A kind of job; see cluster kinds.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the mark, such as verified for collatz.")],
    as_json: AsJson = False,
) -> None:
    """Show how far finished jobs have proved a property: the longest range from the start without a gap."""
    proved = ctx.obj.cluster.mark(kind, name)
    show.json_line(proved) if as_json else show.mark(proved)


@app.command()
def verified(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show how far the Collatz map is verified. Same as: cluster mark collatz verified"""
    mark(ctx, "collatz", "verified", as_json)


@app.command()
def drain(
    ctx: typer.Context,
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="The worker's ID; see cluster workers.")],
    off: Annotated[bool, typer.Option("--off", help="Let the worker accept work again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let a worker finish its leases, and assign it no new work."""
    answer = ctx.obj.cluster.drain(worker, on=not off)
    if as_json:
        show.json_line(answer)
    else:
        show.line(
            f"{worker} accepts work again" if off else f"{worker} is draining; undo with: cluster drain {worker} --off"
        )


@app.command()
def usage(
    ctx: typer.Context,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Only this tenant.")] = None,
    days: Annotated[
        int, typer.Option(min=1, max=400, metavar="COUNT", help="Number of days, counted back from today.")
    ] = 30,
    as_json: AsJson = False,
) -> None:
    """Show usage by tenant and day. Tokens with the scope admin see all tenants."""
    rows = ctx.obj.cluster.usage(tenant=tenant, days=days)
    show.listing(rows, show.USAGE, as_json=as_json, none="No usage in this period.")


@app.command()
def audit(
    ctx: typer.Context,
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="Verify this AUDIT_FILE.")] = None,
    after: Annotated[
        int | None, typer.Option(min=0, metavar="NUMBER", help="Only entries with higher numbers.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=1000, metavar="COUNT", help="Maximum number of entries to list.")
    ] = 50,
    verify: Annotated[bool, typer.Option("--verify", help="Verify all entries in the cluster, or in FILE.")] = False,
    head: Annotated[
        str,
        typer.Option(
            metavar="HASH", help="Also verify that the log contains this head hash of an earlier verification."
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """List audit entries: who changed what, and which requests were denied.

    With FILE, --verify or --head, verify that the log was not altered.
    """
    from threads_cluster.cli.commands import auditing

    if file or verify or head:
        auditing.verify(ctx.obj, file, head.lower(), as_json=as_json)
    else:
        auditing.listing(ctx.obj, after, limit, as_json=as_json)


@app.command()
def kinds(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the kinds of jobs. With --json, include the schemas of their parameters."""
    rows = ctx.obj.cluster.kinds()
    show.listing(rows, show.KINDS, as_json=as_json)
    if not as_json:
        show.say("List the flags of a kind with: cluster submit KIND --help")


@app.command()
def version(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Print the version of the cluster."""
    text = ctx.obj.cluster.version()
    show.json_line({"version": text}) if as_json else show.line(text)


#: API calls in the cluster's error messages, with the commands that users can type instead.
_ADVICE = {
    "GET /api/jobs": "cluster jobs",
    "GET /api/workers": "cluster workers",
    "GET /api/workflows": "cluster workflow list",
    "GET /api/job-types": "cluster kinds",
    "GET /api/tenants": "cluster tenant list",
    "PUT /api/tenants/": "cluster tenant create ",
    "GET /api/secrets": "cluster secret list",
    "GET /api/schedules": "cluster schedule list",
    "GET /api/profiles": "cluster profile list",
    "GET /api/hosts": "cluster hosts",
    "GET /api/services": "cluster services",
    "GET /api/v1/models": "cluster model list",
    "GET /api/v1/data": "cluster data list",
    "GET /api/webhooks": "cluster webhook list",
    "GET /api/tokens": "cluster token list",
    "With hold ": "With --hold ",
    "partial=true": "--partial",
}


#: Request fields in error messages, with the names of the matching arguments or options.
_FIELD_NAMES = {
    "action_id": "ACTION",
    "delivery_id": "ID",
    "every_seconds": "--every",
    "model_name": "MODEL",
    "name": "NAME",
    "token_id": "ID",
    "url": "URL",
    "workflow_id": "WORKFLOW",
}


def _print_error(error: errors.ClientError) -> int:
    """Print an error with names from the command line instead of the API, and return its exit code."""
    from threads_cluster.cli import options

    text = re.sub(r"\bparameters\.(\w+)", lambda match: options.option_name(match[1]), str(error))
    field = getattr(error, "field", None)
    if field and text.startswith(f"{field}:"):
        # An error in an item of a list is reported for the option with the list.
        named = re.sub(r"\.\d+$", "", field)
        text = _FIELD_NAMES.get(named, options.option_name(named)) + text.removeprefix(field)
    for call, command in _ADVICE.items():
        text = text.replace(call, command)
    show.say(text if error.exit_code == errors.INTERRUPTED else f"error: {text}")
    if error.next:
        show.say(f"next: {error.next}")
    for context in getattr(error, "__notes__", ()):
        show.say(f"cluster: {context}")
    return error.exit_code


class InternalError(errors.ClientError):
    """Unexpected error of the command. The message contains only its location, because its text can contain secrets."""

    exit_code = errors.FAULT
    next = "report this error with the command and its version: cluster version"

    def __init__(self, error: BaseException) -> None:
        places = traceback.extract_tb(error.__traceback__)
        place = f"{places[-1].filename}:{places[-1].lineno}" if places else "an unknown location"
        super().__init__(f"internal error of this command: {type(error).__name__} at {place}")


class UsageError(errors.ClientError):
    """The arguments of the command are not valid."""

    exit_code = errors.REFUSED

    def __init__(self, error: Any) -> None:
        super().__init__(error.format_message().removesuffix("."))
        self.next = f"see {error.ctx.command_path} --help" if getattr(error, "ctx", None) else ""


class OutputError(errors.ClientError):
    """The command could not write its output."""

    exit_code = errors.UNWRITTEN

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write the output: {error.strerror or error}")


class FileError(errors.ClientError):
    """A file or folder could not be opened."""

    exit_code = errors.REFUSED

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot open {error.filename}: {error.strerror or error}")


def _to_client_error(error: Exception) -> errors.ClientError:
    if isinstance(error, errors.ClientError):
        return error
    if hasattr(error, "format_message"):
        return UsageError(error)
    if isinstance(error, OSError):  # Network errors and most file errors already are ClientErrors
        return OutputError(error) if error.filename is None else FileError(error)
    if isinstance(error, RecursionError):
        return errors.ClientError("the response is nested too deeply to display; print it with --json")
    return InternalError(error)


@cache
def commands() -> Any:
    """Return all commands as a click group. The group is cached, because a schedule parses a second command."""
    group: Any = typer.main.get_command(_root)
    group.commands = LazyCommands(app)
    return group


def _run(arguments: list[str] | None) -> int:
    """Run a command, flush its output, and return its exit code."""
    terminal.prepare()
    ended = commands()(arguments, prog_name="cluster", standalone_mode=False)
    sys.stdout.flush()
    if ended == errors.INTERRUPTED:  # Typer has caught the interrupt
        raise KeyboardInterrupt
    return ended if isinstance(ended, int) else 0


def run_command(arguments: list[str] | None) -> int:
    """Run a command and return its exit code. Prints an error on one line, and its remedy on a second line."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        submitted = any(session.submitted for session in _sessions)
        show.say("interrupted; submitted jobs keep running" if submitted else "interrupted")
        return errors.INTERRUPTED
    except BrokenPipeError:
        return errors.PIPE_CLOSED
    except SystemExit as ended:
        # Typer raises SystemExit after shell completion, and if a pipe closes.
        gone = isinstance(ended.__context__, BrokenPipeError)
        return errors.PIPE_CLOSED if gone else int(ended.code or 0)
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # type: ignore[attr-defined]
            return errors.REFUSED
        return _print_error(_to_client_error(error))


def _start_fast() -> None:
    """Skip interpreter work that would take a quarter of the time of a short command."""
    settings.disable_pydantic_plugins()
    gc.set_threshold(_OBJECTS)
    atexit.register(gc.freeze)  # Without it, Python searches all objects for cycles when it exits


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line, and exit with its exit code."""
    _start_fast()
    code = run_command(arguments)
    if code in (errors.UNWRITTEN, errors.PIPE_CLOSED):
        terminal.discard(sys.stdout)
    sys.exit(code)


if __name__ == "__main__":
    main()
