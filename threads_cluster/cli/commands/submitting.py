"""The command `cluster submit KIND`. Each kind has a subcommand whose options follow from the kind's schema."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from threads_cluster import errors
from threads_cluster.cli import program_options, show
from threads_cluster.cli.commands import program_commands
from threads_cluster.cli.session import Session, as_json_option

# Slow modules are imported only when they are used, so that help and completion are fast.
if TYPE_CHECKING:
    from threads_cluster.cli import options
    from threads_cluster.client.api import Json

PARAMETERS = "parameters_file"
#: Maximum number of characters in a parameter file. The API accepts less.
_LONGEST_FILE = 16 << 20
_COMMON: dict[str, Any] = {
    PARAMETERS: Annotated[
        str | None,
        typer.Option(
            "--parameters",
            metavar="FILE",
            help="File with a JSON object of parameters, or - for stdin. Flags override it.",
        ),
    ],
    "priority": Annotated[str | None, typer.Option(metavar="high|normal|low", help="Default: normal.")],
    "device": Annotated[str | None, typer.Option(metavar="gpu|any|cpu", help="Required device; default: any.")],
    "gpu_preferred": Annotated[
        bool,
        typer.Option("--gpu-preferred", help="Use a GPU if one is live and would start the job no later than a CPU."),
    ],
    "idempotency_key": Annotated[
        str | None, typer.Option(metavar="TEXT", help="Submitting again with the same key returns the same job.")
    ],
    "max_running": Annotated[
        int | None, typer.Option(min=1, metavar="LANES", help="Maximum number of lanes that compute the job at once.")
    ],
    "timeout": Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Fail the job after this running time, without pauses.")
    ],
    "hold": Annotated[
        bool, typer.Option("--hold", help="If the job exceeds a cap of its tenant, queue it until the cap allows it.")
    ],
    "notify": Annotated[
        str | None,
        typer.Option(metavar="URL", help="Send a signed POST to this URL when the job ends: docs/webhooks.md."),
    ],
    **program_options.ORDER,
    **program_options.LABELS,
    "wait": Annotated[bool, typer.Option("--wait", help="Wait until the job ends, and print a summary of its result.")],
    "as_json": as_json_option("Print the response as one line of JSON; with --wait, the job with its result."),
}


class Kinds(TyperGroup):
    """Subcommands for the kinds of the cluster. If the cluster is not reachable, the kinds come from this checkout."""

    _of: Session | None = None

    def list_commands(self, ctx: Any) -> list[str]:
        self._load(ctx)
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in _OWN:
            return _OWN[cmd_name]()
        self._load(ctx)
        return self.commands.get(cmd_name)

    def _load(self, ctx: Any) -> None:
        session: Session = ctx.find_root().obj
        if self._of is session:
            return
        app = typer.Typer(rich_markup_mode=None)
        app.callback()(lambda: None)
        kinds = session.kinds()
        if not kinds and session.missing:
            raise session.missing
        for kind in kinds:
            with usable(session, kind):
                app.command(kind["type"], help=_help(kind))(command(kind))
        group = typer.main.get_command(app)
        self.commands, self._of = dict(group.commands), session  # type: ignore[attr-defined]


def _programs() -> Any:
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(
        "command",
        cls=program_options.ProgramCommand,
        context_settings=program_options.BEFORE_PROGRAM,
        epilog=program_commands.SUBMIT_EPILOG,
    )(program_commands.submit)
    return typer.main.get_command(app)


#: Kinds whose subcommand is not generated from a schema.
_OWN = {"command": _programs}


@contextmanager
def usable(session: Session, kind: Json) -> Iterator[None]:
    """Convert errors that an invalid schema causes into UnexpectedAnswer."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        reason = f"the schema of {kind['type']} cannot be read: {type(error).__name__}"
        raise errors.UnexpectedAnswer(session.cluster.url, reason) from error


def _help(kind: Json) -> str:
    return f"{kind['summary']}\n\nWrite integers as 1000000, 1_000_000, 1e6, 2^20 or 2^89-1. Any size is exact."


def command(kind: Json) -> Any:
    """Return a command function for Typer, with one argument for each parameter of a kind."""
    from threads_cluster.cli import options

    flags = [flag for flag in options.flags(kind["schema"]) if not _is_reserved(flag)]

    @program_options.accept_options({flag.name: _annotation(flag) for flag in flags}, _COMMON)
    def call(ctx: typer.Context, **given: Any) -> None:
        options = {name: given.pop(name) for name in _COMMON}
        session: Session = ctx.find_root().obj
        with usable(session, kind):
            values = parameters(flags, given, options.pop(PARAMETERS))
        submit(session, kind["type"], values, **options)

    return call


def _is_reserved(flag: options.Flag) -> bool:
    """Return True if the name of a parameter conflicts with a general option. The option --parameters can still
    set it.
    """
    return flag.name in _COMMON or flag.name in ("ctx", "help", "json", "parameters") or not flag.name.isidentifier()


def _annotation(flag: options.Flag) -> Any:
    if flag.is_switch:
        both = f"{flag.option}/--no-{flag.option.removeprefix('--')}"
        return Annotated[bool | None, typer.Option(both, help=flag.help(), show_default=False)]
    return Annotated[str | None, typer.Option(flag.option, metavar=flag.label(), help=flag.help(), show_default=False)]


def add_commands(app: typer.Typer) -> None:
    """Add the command to the `cluster` command."""
    app.add_typer(
        typer.Typer(cls=Kinds, no_args_is_help=True, rich_markup_mode=None),
        name="submit",
        help="Submit a job; each kind has its own flags.",
        subcommand_metavar="KIND [FLAGS]...",
        epilog="cluster submit KIND --help lists the flags of a kind.",
    )


def parameters(flags: Sequence[options.Flag], given: Mapping[str, Any], file: str | None) -> Json:
    """Merge the parameters from a file and from options. Options take precedence, and errors name the option."""
    from threads_cluster.cli import options

    values = _from_file(file) if file else {}
    for flag in flags:
        value = given.get(flag.name)
        if value is None:
            continue
        try:
            values[flag.name] = value if isinstance(value, bool) else flag.read(value)
        except options.BadValue as error:
            raise typer.BadParameter(str(error), param_hint=f"'{flag.option}'") from None
    missing = [flag.option for flag in flags if flag.required and flag.name not in values]
    if missing:
        raise typer.BadParameter("needed", param_hint=" ".join(missing))
    return values


def _from_file(file: str) -> Json:
    from threads_cluster.cli import options

    hint = "'--parameters'"
    try:
        values = options.parse_json(_text(file))
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"cannot read {file}: {error}", param_hint=hint) from None
    except options.BadValue as error:
        raise typer.BadParameter(f"{file} {error}", param_hint=hint) from None
    if not isinstance(values, dict):
        raise typer.BadParameter(f"{file} does not contain a JSON object", param_hint=hint)
    return values


def _text(file: str) -> str:
    """Read a parameter file, or stdin for "-". Raises OSError if stdin is closed or the text is too long."""
    if file == "-" and sys.stdin is None:
        raise OSError("stdin is closed")
    with nullcontext(sys.stdin) if file == "-" else Path(file).open(encoding="utf-8") as source:
        text = source.read(_LONGEST_FILE + 1)
    if len(text) > _LONGEST_FILE:
        raise OSError(f"the file has over {_LONGEST_FILE >> 20} MiB")
    return text


def submit(session: Session, kind: str, parameters: Json, *, wait: bool, as_json: bool, **options: Any) -> None:
    """Submit a job, and optionally wait until it ends. Messages on stderr suggest the next command."""
    options["gpu_preferred"] = options["gpu_preferred"] or None
    options["hold"] = options["hold"] or None
    options["timeout_seconds"] = options.pop("timeout", None)
    options["tags"] = options.pop("tag", None)
    session.check(kind, parameters)
    answer = session.cluster.submit(kind, parameters, **options)
    for note in answer["notes"]:
        show.say(f"note: {note}")
    if wait:
        finish(session, answer["job_id"], as_json=as_json)
        return
    print_submission(answer, as_json=as_json)


def print_submission(answer: Json, *, as_json: bool) -> None:
    """Print the response to a submission, and suggest the next command to the user."""
    if as_json:
        show.json_line(answer)
        return
    show.line(answer["job_id"])
    sys.stdout.flush()
    if answer["status"] == "skipped":
        show.say(
            f"skipped: a job that it depends on failed or was cancelled; see: cluster relations {answer['job_id']}"
        )
        return
    show.say(f"{answer['status']}{_starts(answer)}; watch it with: cluster watch {answer['job_id']}")


def _starts(answer: Json) -> str:
    return f", starts {show.describe_start(answer)}" if answer["status"] == "queued" else ""


def finish(session: Session, job_id: str, *, as_json: bool) -> None:
    """Wait until a job ends and print its result. Raises Exit if the job failed."""
    from threads_cluster.cli import running, watching

    if not as_json:
        show.say(f"job {job_id}")
    job = watching.wait_for_end(session, job_id, quiet=as_json)
    answer = session.cluster.result(job_id) if job["state"] == "done" else None
    if as_json:
        show.json_line(job | ({"result": answer["result"]} if answer else {}))
    else:
        show.say(show.ended_line(job))
        if answer:
            show.summary(answer)
            if new_files := running.describe_new_files(answer["result"]):
                show.say(f"note: {new_files}")
    if watching.exit_code(job):
        if job["type"] in _OWN and not as_json:
            show.say(
                f"List failed units with: cluster units {job_id} --state dead   Print output with: cluster "
                f"logs {job_id}"
            )
        raise typer.Exit(errors.JOB_FAILED)
