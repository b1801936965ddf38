"""The commands that run programs on runners: `run`, `map`, `logs`, `units`, `attach` and `submit command`."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeAlias

import typer

from threads_cluster import errors
from threads_cluster.cli import formatting, show
from threads_cluster.cli import program_options as options
from threads_cluster.cli.commands import artifact_commands
from threads_cluster.cli.session import AsJson, Session

if TYPE_CHECKING:
    from threads_cluster.client.api import Json
    from threads_cluster.client.programs import Program

JobId: TypeAlias = Annotated[str, typer.Argument(metavar="JOB", help="The job's ID.")]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and the program's output.")]
Items: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE|A..B",
        help="Run one unit for each item: integers A..B; the list in FILE.json; each JSON line of "
        "FILE.jsonl; else each line of FILE, including empty lines; - for stdin. Repeat the option "
        "to append items. Unlike in parallel, several inputs are not combined.",
    ),
]

_RUN_EPILOG = """\b
Examples:
  cluster run -- python3 train.py --epochs 100
  cluster run --gpus 1 --output 'model/*' -- python3 train.py
  cluster run --no-files --shell 'nproc; free -m'
  cluster run --python requirements.txt --timeout 3600 -- python3 fit.py
  cluster run --on ssh -- python3 train.py

\b
The program starts in a copy of this folder, with an empty stdin. Only files that changed since the last run are
uploaded. CLUSTER_JOB_ID, CLUSTER_UNIT and CLUSTER_ATTEMPT identify the run. Variables of this shell are passed only
with --env. A terminal skips output that arrives too fast; a file or pipe receives all output.
This command needs a runner, such as ./deploy-cluster.sh local starts, and a token with the scope run.
Without a suitable runner, it uploads nothing and fails, unless --queue lets it wait for one.

\b
Exit codes: the program's exit code, 128+n if signal n killed it, and
  124  the program exceeded --timeout
  125  invalid options, or the cluster could not run the program
  130  Ctrl-C: the program was cancelled
"""
SUBMIT_EPILOG = """\b
Examples:
  cluster submit command --count 1000 --files . -- ./simulate --seed {unit}
  cluster submit command --items names.txt --files . --output '*.png' -- ./draw {item}
  cluster submit command --count 8 --shell 'sort "part-$CLUSTER_UNIT" | uniq -c'

\b
In CMD, {unit} is replaced by the unit's number, which starts at 0, and {item} by its item. With --shell and in the
program, use the variables CLUSTER_UNIT, CLUSTER_UNITS, CLUSTER_ITEM (a string, or JSON of other values),
CLUSTER_ITEM_JSON and CLUSTER_ATTEMPT. Other placeholders such as {} and {.} do not exist; with --shell, write
"${CLUSTER_ITEM%.*}" instead. A unit can write its value as JSON to the file CLUSTER_RESULT.
Continue with: cluster watch JOB, cluster units JOB, cluster logs JOB, cluster result JOB --fetch DIR.
"""
_MAP_EPILOG = """\b
Examples:
  cluster map simulation:mean 1..10000
  cluster map simulation:mean --items cases.jsonl --python requirements.txt > means.jsonl

\b
Line N of the output is the return value of item N as JSON, or null if the call failed. Errors go to stderr.
Exit codes: 0 on success, 1 if a call failed, and 130 after Ctrl-C, which cancels the job.
"""
_ATTACH_EPILOG = """\b
Examples:
  cluster attach JOB
  cluster attach JOB --unit 17
  cluster attach JOB -- nvidia-smi
  echo 'ls -l; df -h .' | cluster attach JOB

\b
The shell starts in the program's folder, with the program's user, environment, secrets, GPUs and limits. The
shell is killed when the program exits, and its child processes are killed when the shell exits. To leave the shell,
type ~. at the start of a line. You need a token of the job's tenant with the scope run.

\b
Exit codes: the exit code of the shell or CMD, 128+n if signal n killed it, and
  0    you left the shell with ~.
  125  the shell could not start, or the cluster ended it, for example because the program exited
"""
#: Maximum number of running units whose output `cluster logs` prints, because each takes seconds.
_LIVE = 4
#: Maximum number of failed calls that `cluster map` reports one by one.
_NAMED = 5


def add_commands(app: typer.Typer) -> None:
    """Add the commands that run programs to the `cluster` command."""
    app.command("run", cls=options.ExitCodeCommand, context_settings=options.BEFORE_PROGRAM, epilog=_RUN_EPILOG)(run)
    app.command("map", epilog=_MAP_EPILOG)(map_items)
    app.command()(logs)
    app.command()(units)
    app.command("attach", cls=options.AttachCommand, epilog=_ATTACH_EPILOG)(attach)


# -- programs with one unit --------------------------------------------------------------------------------------------


@options.accept_options(options.OUTPUT, options.SHELL, options.COMMON)
def run(
    ctx: typer.Context,
    words: options.Words = None,
    files: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to upload; default: the current one.")
    ] = None,
    no_files: Annotated[bool, typer.Option("--no-files", help="Upload no folder.")] = False,
    retries: options.Retries = 0,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Print the job's ID and exit while the job runs.")] = False,
    on: Annotated[
        str | None,
        typer.Option(metavar="ssh", help="Run it on the best host of cluster.yaml over SSH: docs/ssh.md."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --on ssh: file that lists the hosts; default: ./cluster.yaml."),
    ] = None,
    quiet: Quiet = False,
    **given: Any,
) -> None:
    """Run a program on the cluster as if it were local.

    Its output is streamed to stdout and stderr, its exit code is returned, and Ctrl-C cancels it. Files that match
    --output are downloaded into the folder when it exits.
    """
    if no_files and files is not None:
        raise typer.BadParameter("cannot be combined with --files", param_hint="'--no-files'")
    if on is not None:
        given |= {"retries": retries, "no_wait": no_wait}
        _run_over_ssh(ctx, on, words, given, files, no_files, quiet=quiet, config=config)
    if config is not None:
        raise typer.BadParameter("needs --on ssh", param_hint="'--config'")
    session: Session = ctx.find_root().obj
    program = options.program(words, given, retries=retries)
    folder = None if no_files else options.folder(files)
    _warn_of_stdin()
    job_id = _submit(session, program, given, folder, quiet=quiet)["job_id"]
    if no_wait:
        _print_job(session, job_id, quiet=quiet)
        return
    from threads_cluster.cli import running

    row, code = running.run(session, job_id, quiet=quiet or bool(program.outputs))
    if program.outputs:
        _fetch(session, row, folder or Path.cwd(), quiet=quiet)
    if code == _NOT_FOUND and isinstance(program.command, list) and len(program.command) == 1:
        _explain_one_word(program.command[0])
    sys.stdout.flush()
    sys.exit(code)


def _run_over_ssh(
    ctx: typer.Context,
    on: str,
    words: list[str] | None,
    given: dict[str, Any],
    files: Path | None,
    no_files: bool,
    *,
    quiet: bool,
    config: Path | None,
) -> NoReturn:
    from threads_cluster.ssh import daemon_client

    if on != "ssh":
        raise typer.BadParameter(
            f"must be ssh, or omitted to use a runner of the cluster; got {on!r}", param_hint="'--on'"
        )
    _warn_of_stdin()
    code = daemon_client.run(ctx.meta["arguments"])
    if code is None:
        from threads_cluster.ssh import running  # import only here, because asyncssh loads slowly

        code = running.run(words, given, files=files, no_files=no_files, quiet=quiet, config_file=config)
    sys.stdout.flush()
    sys.exit(code)


#: Exit code that shells use for a program that does not exist.
_NOT_FOUND = 127


def _explain_one_word(word: str) -> None:
    from threads_cluster.cli import running

    if " " in word:
        running.note(f"no program has this name; pass the arguments without quotes: cluster run -- {word}")


def _print_job(session: Session, job_id: str, *, quiet: bool) -> None:
    show.line(job_id)
    sys.stdout.flush()
    _say_why_it_waits(session, job_id)
    if not quiet:
        show.say(f"Show its output with: cluster logs {job_id} -f   Stop it with: cluster cancel {job_id}")


def _submit(
    session: Session, program: Program, given: dict[str, Any], folder: Path | None, *, quiet: bool = False, **units: Any
) -> Json:
    """Submit a program with its folder, and report the upload on stderr. After Ctrl-C, cancel the submission."""
    import uuid

    def sent(answer: Json) -> None:
        row, count = answer["artifact"], answer["sent_files"]
        if not quiet:
            what = f"{formatting.files(count)}, {answer['sent_bytes']:,} bytes"
            show.say(f"uploaded {what} of {formatting.files(row['files'])}")

    key = given.get("idempotency_key") or uuid.uuid4().hex
    choices = options.job_options(given) | {"idempotency_key": key}
    if not given["queue"]:
        with options.translate_errors():
            session.cluster.programs.require_runner(program)
    with options.translate_errors(), artifact_commands.progress("sent", quiet=quiet or folder is None) as progress:
        answer = session.cluster.programs.submit(
            program, files=folder, exclude=given.get("exclude") or (), progress=progress, sent=sent, **units, **choices
        )
    for each in answer.get("notes", []):
        show.say(f"note: {each}")
    return answer


def _fetch(session: Session, row: Mapping[str, Any], folder: Path, *, quiet: bool) -> None:
    from threads_cluster.cli import running

    answer = session.cluster.programs.fetch_unit(row, folder, replace=True)
    if not quiet:
        count = formatting.files(answer["fetched_files"])
        running.note(f"downloaded {count}, {formatting.size(answer['fetched_bytes'])}")


def _warn_of_stdin() -> None:
    """Warn the user if data on stdin would be ignored. The program gets an empty stdin."""
    if sys.stdin is None or sys.stdin.closed:
        return
    try:
        number = sys.stdin.fileno()
        mode = os.fstat(number).st_mode
        given = stat.S_ISREG(mode) and os.fstat(number).st_size > 0
        waiting = stat.S_ISFIFO(mode) and bool(select.select([number], [], [], 0)[0])
    except (OSError, ValueError):
        return
    if given or (waiting and _has_bytes(number)):
        show.say("note: stdin is not sent to the program; put its input into a file of the folder")


def _has_bytes(number: int) -> bool:
    """Return True if a pipe contains data. A pipe without writers is readable, but contains none."""
    import array
    import fcntl
    import termios

    count = array.array("i", [0])
    fcntl.ioctl(number, termios.FIONREAD, count)
    return count[0] > 0


# -- programs with many units ------------------------------------------------------------------------------------------


@options.accept_options(options.OUTPUT, options.SHELL, options.MANY, options.COMMON)
def submit(
    ctx: typer.Context,
    words: options.Words = None,
    count: Annotated[int | None, typer.Option(min=1, metavar="UNITS", help="Number of runs; default: 1.")] = None,
    items: Items = None,
    files: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to upload; each unit gets a copy. Default: none.")
    ] = None,
    retries: options.Retries = 0,
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Submitting again with the same key returns the same job.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the job ends, and print a summary of its result.")
    ] = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Run a program many times: once for each number, or once for each item of a list."""
    from threads_cluster.cli.commands import submitting

    if count is not None and items:
        raise typer.BadParameter("cannot be combined with --count", param_hint="'--items'")
    if idempotency_key == "":
        raise typer.BadParameter("must not be empty", param_hint="'--idempotency-key'")
    session: Session = ctx.find_root().obj
    program = options.program(words, given, retries=retries)
    given["idempotency_key"] = idempotency_key
    values = _read(items) if items else None
    answer = _submit(session, program, given, files, quiet=as_json, count=count, values=values)
    if wait:
        submitting.finish(session, answer["job_id"], as_json=as_json)
    elif as_json:
        submitting.print_submission(answer, as_json=True)
    else:
        submitting.print_submission(answer, as_json=False)
        _say_why_it_waits(session, answer["job_id"])


def _read(sources: Sequence[str]) -> list[Any]:
    from threads_cluster.client import items

    return items.read(sources)


def _say_why_it_waits(session: Session, job_id: str) -> None:
    from threads_cluster.cli import running

    because = running.wait_for_start(session.cluster, job_id).get("waiting_because")
    if because:
        show.say(f"{job_id} is waiting: {because}")


@options.accept_options(options.MANY, options.COMMON)
def map_items(
    ctx: typer.Context,
    function: Annotated[str, typer.Argument(metavar="MODULE:FUNCTION", help="Function in a module of the folder.")],
    numbers: Annotated[str | None, typer.Argument(metavar="A..B", help="Whole numbers, both ends included.")] = None,
    items: Items = None,
    files: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to upload; default: the current one.")
    ] = None,
    retries: options.Retries = 0,
    quiet: Quiet = False,
    **given: Any,
) -> None:
    """Call a Python function once for each item.

    Prints the return values as JSON lines in the order of the items. Each call runs in a new interpreter on a runner,
    which imports the module from the folder. Items and return values are JSON.
    """
    from threads_cluster.client import programs

    sources = [*([] if numbers is None else [numbers]), *(items or ())]
    if not sources or (numbers is not None and items):
        raise typer.BadParameter("needs items: A..B or --items FILE", param_hint="'A..B'")
    session: Session = ctx.find_root().obj
    words = programs.call_command(function)
    program = options.program(words, given, retries=retries)
    answer = _submit(session, program, given, options.folder(files), quiet=quiet, values=_read(sources))
    _print_values(session, answer["job_id"], quiet=quiet)


def _print_values(session: Session, job_id: str, *, quiet: bool) -> NoReturn:
    from threads_cluster.cli import running

    programs = session.cluster.programs
    count, failed, said = 0, 0, set[str]()
    with running.ending_signals():
        try:
            if not quiet:
                running.note(f"job {job_id}")
            _say_why_it_waits(session, job_id)
            for row in programs.finished(job_id):
                show.json_line(programs.value(row) if row["state"] == "done" else None)
                sys.stdout.flush()
                count += 1
                if row["state"] != "done":
                    failed += 1
                    if failed <= _NAMED:
                        _say_failed(job_id, row, said)
        except KeyboardInterrupt:
            _cancel(session, job_id)
        except OSError:
            session.cluster.cancel(job_id)
            raise
    if failed > len(said):
        running.note(f"{_failures(count, failed, said)}; list them with: cluster units {job_id} --state dead")
    sys.exit(errors.JOB_FAILED if failed else 0)


def _say_failed(job_id: str, row: Mapping[str, Any], said: set[str]) -> None:
    """Report why a call failed, unless the same reason was already reported. `said` contains the reported reasons."""
    from threads_cluster.cli import running
    from threads_cluster.client import programs

    why = programs.failure(row)
    if why not in said:
        running.note(
            f"item {row['unit']} failed: {why}; show its output with: cluster logs {job_id} --unit {row['unit']}"
        )
    said.add(why)


def _failures(count: int, failed: int, said: set[str]) -> str:
    """Describe how many calls failed, and how many of them failed for the same reason."""
    whole = f"all {failed:,} calls" if failed == count and failed > 1 else f"{failed:,} calls"
    if len(said) > 1:
        return f"{whole} failed"
    return (
        f"{whole} failed for this reason" if failed <= _NAMED else f"{whole} failed, the first {_NAMED} for this reason"
    )


def _cancel(session: Session, job_id: str) -> NoReturn:
    from threads_cluster.cli import running

    try:
        running.cancel(session, job_id)
        state = session.cluster.wait(job_id)["state"]
    except KeyboardInterrupt:
        raise running.StoppedWaiting(running.describe_remaining(session, job_id)) from None
    raise running.StoppedWaiting(f"job {job_id} is {state} and has no running processes")


# -- output and state of units -----------------------------------------------------------------------------------------


def logs(
    ctx: typer.Context,
    job_id: Annotated[str | None, typer.Argument(metavar="JOB", help="The job's ID.")] = None,
    process: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Instead of a job, print the log of a process or container of this machine's cluster, or of all.",
        ),
    ] = None,
    unit: Annotated[
        int | None, typer.Option(min=0, metavar="NUMBER", help="The unit; default: all units in order.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Stream new output; Ctrl-C does not stop the program.")
    ] = False,
    stream: Annotated[
        Literal["stdout", "stderr"] | None, typer.Option(metavar="stdout|stderr", help="Only this stream.")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Do not escape control characters on a terminal.")] = False,
) -> None:
    """Print the output that a program has written so far, or the log of a process of the cluster.

    Of long output, the cluster stores the first 1 MiB and the last 8 MiB.
    """
    from threads_cluster.cli import running

    if process is not None:
        _print_process_log(process, follow=follow)
    if job_id is None:
        raise typer.BadParameter("needs a JOB, or --process NAME", param_hint="'JOB'")
    session: Session = ctx.find_root().obj
    counts = session.cluster.programs.counts(job_id)
    several = sum(counts.values()) > 1
    if follow and several and unit is None:
        error = errors.BadArgument(
            f"job {job_id} has {sum(counts.values()):,} units, but only one can be followed at a time"
        )
        error.next = (
            f"cluster logs {job_id} -f --unit NUMBER; list running units with: cluster units {job_id} --state running"
        )
        raise error
    if several and unit is None:
        _print_all(session, job_id, stream, raw=raw)
        return
    try:
        if not follow:
            _require_log(session, job_id, unit or 0)
        _print_log(session, job_id, unit or 0, stream, follow=follow, raw=raw)
    except KeyboardInterrupt:
        raise running.StoppedWaiting(f"the job keeps running; stop it with: cluster cancel {job_id}") from None


def _print_process_log(name: str, *, follow: bool) -> NoReturn:
    """Print the log of a process of this machine's cluster, or the logs of all processes if the name is `all`."""
    from threads_cluster import installation

    names = [] if name == "all" else [name]
    installation.run_server_command("logs", [*names, *(["-f"] if follow else [])], installs=False)


def _print_log(session: Session, job_id: str, unit: int, stream: str | None, *, follow: bool, raw: bool) -> None:
    """Print the output of a unit, or report that it was deleted. Clients delete artifacts with large results."""
    from threads_cluster.cli import running

    try:
        running.print_log(session, job_id, unit, stream, follow=follow, raw=raw)
    except errors.ApiError as error:
        if error.field != "artifact":
            raise
        show.say(f"the output of unit {unit} was deleted together with the artifact that contained it")


def _print_all(session: Session, job_id: str, stream: str | None, *, raw: bool) -> None:
    none, live = True, 0
    for row in session.cluster.programs.units(job_id):
        live += row["state"] == "running"
        if row.get("artifact") or (row["state"] == "running" and live <= _LIVE):
            none = False
            show.line(f"==> unit {row['unit']} <==")
            _print_log(session, job_id, row["unit"], stream, follow=False, raw=raw)
    if live > _LIVE:
        show.say(f"{live - _LIVE} more units are running; print one with: cluster logs {job_id} --unit NUMBER")
    if none:
        show.say(f"no unit of {job_id} has output; show their states with: cluster units {job_id}")


def _require_log(session: Session, job_id: str, unit: int) -> None:
    """Report why a unit has no output. Raise BadArgument if the unit is not running and has not finished."""
    row = session.cluster.programs.unit(job_id, unit)
    if row.get("artifact") or row["state"] == "running":
        return
    if row["state"] in ("done", "dead"):
        ended = "" if row["state"] == "done" else f" and failed: {row.get('error') or 'it did not run'}"
        show.say(f"unit {unit} wrote nothing{ended}")
        return
    why = session.cluster.job(job_id).get("waiting_because") if row["state"] == "waiting" else None
    error = errors.BadArgument(f"unit {unit} is {row['state']}{f': {why}' if why else ''}")
    error.next = f"stream its output with: cluster logs {job_id} -f --unit {unit}"
    raise error


def units(
    ctx: typer.Context,
    job_id: JobId,
    state: Annotated[
        str | None,
        typer.Option(metavar="STATE", help="Only units in this state: waiting, running, done, retrying or dead."),
    ] = None,
    first: Annotated[
        int, typer.Option("--from", min=0, metavar="NUMBER", help="Number of the first unit to list.")
    ] = 0,
    limit: Annotated[int, typer.Option(min=1, metavar="COUNT", help="Maximum number of units to list.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List the units of a program.

    For each unit: state, exit code, duration, attempts, worker, value, and the reason of a failure.
    """
    from itertools import islice

    programs = ctx.obj.cluster.programs
    rows = list(islice(programs.units(job_id, state=state, first=first), limit))
    show.listing(rows, show.UNITS, as_json=as_json, none="No matching units.")
    if as_json:
        return
    counts = {name: count for name, count in programs.counts(job_id).items() if count}
    show.say(", ".join(f"{count:,} {name}" for name, count in counts.items()))
    if len(rows) == limit:
        show.say(f"List more with --from {rows[-1]['unit'] + 1} or --limit.")


def attach(
    ctx: typer.Context,
    job_id: JobId,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="CMD", help="Command to run instead of a shell.", show_default=False)
    ] = None,
    unit: Annotated[
        int | None,
        typer.Option(min=0, metavar="NUMBER", help="The unit; default: the only unit, or the only running unit."),
    ] = None,
    terminal: Annotated[
        bool | None,
        typer.Option(
            "--tty/--no-tty",
            "-t/-T",
            help="Use a terminal or pipes; default: a terminal if stdin and stdout are one.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Open a shell next to a running program."""
    from threads_cluster.cli.commands import attaching

    session: Session = ctx.find_root().obj
    number = _only_unit(session, job_id) if unit is None else unit
    sys.exit(attaching.attach(session, job_id, number, words, terminal=terminal))


def _only_unit(session: Session, job_id: str) -> int:
    """Return the unit in which a shell starts by default: the only unit, or the only running unit."""
    from itertools import islice

    programs = session.cluster.programs
    total = sum(programs.counts(job_id).values())
    if total == 1:
        return 0
    running = list(islice(programs.units(job_id, state="running"), 2))
    if len(running) == 1:
        return int(running[0]["unit"])
    error = errors.BadArgument(
        f"job {job_id} has {total:,} units, and {'several are' if running else 'none is'} running"
    )
    error.next = (
        f"cluster attach {job_id} --unit NUMBER; list running units with: cluster units {job_id} --state running"
    )
    raise error


def fetch(session: Session, job_id: str, folder: Path, *, flat: bool, as_json: bool) -> None:
    """Download the output files of a job's finished units, into one folder per unit or into a single folder.

    A new folder excludes itself from later uploads of a surrounding folder.
    """
    from threads_cluster.client import trees

    fresh = not folder.exists()
    try:
        answer = session.cluster.programs.fetch(job_id, folder, flat=flat)
    finally:
        if fresh:
            trees.leave_out(folder)
    if as_json:
        show.json_line({"job_id": job_id, **answer})
        return
    count, size = formatting.files(answer["fetched_files"]), formatting.size(answer["fetched_bytes"])
    units = "1 unit" if answer["units"] == 1 else f"{answer['units']:,} units"
    show.line(f"{folder} has the files of {units}; downloaded {count}, {size}")
    if not answer["units"]:
        show.say(
            f"No unit stored output files. See --output in: cluster submit command --help   and: cluster units {job_id}"
        )
