"""Options of commands that run programs. Error messages of the cluster are translated to options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from threads_cluster import errors

if TYPE_CHECKING:
    from threads_cluster.client.programs import Program

#: Options of every command that submits a job.
ORDER: dict[str, Any] = {
    "after": Annotated[
        list[str] | None,
        typer.Option(
            metavar="JOB", help="Start the job once this job is done, and skip it if this one fails. Repeat for more."
        ),
    ],
    "after_any": Annotated[
        list[str] | None,
        typer.Option(metavar="JOB", help="Start the job once this job has ended in any state. Repeat for more."),
    ],
}
#: Options that label a job, for jobs of any kind.
LABELS: dict[str, Any] = {
    "name": Annotated[str | None, typer.Option(metavar="TEXT", help="Title of the job in lists, up to 80 characters.")],
    "tag": Annotated[
        list[str] | None,
        typer.Option(metavar="TAG", help="Tag of the job, for: cluster jobs --tag TAG. Repeat for more."),
    ],
}
#: Options of every command that runs programs.
COMMON: dict[str, Any] = {
    "exclude": Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN", help="Exclude files of the folder, as a line of .gitignore does. Repeat for more."
        ),
    ],
    "env": Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            "-e",
            metavar="NAME=VALUE",
            help="Environment variable of the program. NAME alone passes the local value.",
        ),
    ],
    "secret": Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Pass a secret as an environment variable; see cluster secret --help."),
    ],
    "cpus": Annotated[
        float | None, typer.Option(metavar="NUMBER", help="CPUs of each unit; default: the CPUs of one slot.")
    ],
    "memory": Annotated[int | None, typer.Option(metavar="MIB", help="Memory limit of each unit.")],
    "gpus": Annotated[int | None, typer.Option(metavar="NUMBER", help="GPUs of each unit; default: none.")],
    "gpu_memory": Annotated[int | None, typer.Option(metavar="MIB", help="Minimum memory of each GPU.")],
    "compute_capability": Annotated[
        str | None, typer.Option(metavar="VERSION", help="Minimum compute capability of the GPUs, such as 8.0.")
    ],
    "host": Annotated[str | None, typer.Option(metavar="HOST", help="Run only on this host; see cluster workers.")],
    "label": Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", help="Run only on runners with this label (RUNNER_LABELS). Repeat for more."),
    ],
    "timeout": Annotated[float | None, typer.Option(metavar="SECONDS", help="Time limit of each unit; default: none.")],
    "stop_signal_seconds": Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Send SIGTERM this long before --timeout, so that the program can save its work."
        ),
    ],
    "workspace": Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Persistent folder on the runner, at $CLUSTER_WORKSPACE, for checkpoints."),
    ],
    "python": Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Requirements file within --files whose packages are installed for python3."),
    ],
    "priority": Annotated[str | None, typer.Option(metavar="high|normal|low", help="Default: normal.")],
    "queue": Annotated[
        bool, typer.Option("--queue", help="Submit even if no runner could take it, and wait for one that can.")
    ],
    "hold": Annotated[
        bool, typer.Option("--hold", help="If the job exceeds a cap of its tenant, queue it until the cap allows it.")
    ],
    "notify": Annotated[
        str | None,
        typer.Option(metavar="URL", help="Send a signed POST to this URL when the job ends: docs/webhooks.md."),
    ],
    **ORDER,
    **LABELS,
}
OUTPUT: dict[str, Any] = {
    "output": Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="GLOB",
            help="Store output files that match, such as 'out/*.csv'. Repeat for more.",
        ),
    ],
}
SHELL: dict[str, Any] = {
    "shell": Annotated[str | None, typer.Option(metavar="TEXT", help="Run this text with /bin/sh -c instead of CMD.")],
}
MANY: dict[str, Any] = {
    "batch": Annotated[
        int | None, typer.Option(min=1, metavar="UNITS", help="Maximum number of units in one lease of a slot.")
    ],
    "max_running": Annotated[
        int | None, typer.Option(min=1, metavar="SLOTS", help="Maximum number of units that run at once.")
    ],
}
#: Option with the number of retries, which all commands that run programs share.
Retries = Annotated[int, typer.Option(min=0, metavar="COUNT", help="Maximum number of retries of a failed unit.")]

#: Argument type for a program and its arguments, which follow the options.
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="CMD", help="The program and its arguments. Options after it belong to the program."),
]
#: Typer settings of commands whose last arguments belong to a program.
BEFORE_PROGRAM = {"allow_interspersed_args": False}

#: Command-line options that have another name than the kind's parameter. Longer names come first.
_OPTIONS = {
    "requirements.gpu_memory_mib": "--gpu-memory",
    "requirements.memory_mib": "--memory",
    "requirements.labels": "--label",
    "requirements.compute_capability": "--compute-capability",
    "requirements.gpus": "--gpus",
    "requirements.cpus": "--cpus",
    "requirements.host": "--host",
    "python.requirements": "--python",
    "retries.max": "--retries",
    "items_artifact": "--items",
    "timeout_seconds": "--timeout",
}
#: Command-line options for parameters whose names are also ordinary words.
_WORDS = {"outputs": "--output", "secrets": "--secret", "command": "CMD"}
_NAMES = "|".join(map(re.escape, _OPTIONS))
_ALL = _OPTIONS | _WORDS
_ALL_NAMES = "|".join(map(re.escape, _ALL))
#: Folders that are too large to be uploaded by default.
_WHOLE = (Path("/"),)


def accept_options(*tables: Mapping[str, Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds options to a command. The command gets their values as keyword arguments."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        given = {name: kept for table in tables for name, kept in table.items()}
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kept, default=_default(kept))
            for name, kept in given.items()
        ]
        function.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
        return function

    return decorate


def _default(annotation: Any) -> bool | None:
    return False if annotation.__origin__ is bool else None


def program(words: Sequence[str] | None, given: dict[str, Any], **fixed: Any) -> Program:
    """Create a program from command-line options, and remove the used options. Raises BadParameter without a
    command.
    """
    from threads_cluster.client.programs import Program

    text = given.pop("shell", None)
    if bool(words) == (text is not None):
        example = "cluster run -- python3 train.py --epochs 100"
        what = "either CMD or" if words else "a program to run, as in"
        raise typer.BadParameter(f"needs {what}: {'--shell' if words else example}", param_hint="'CMD'")
    return Program(
        command=text if text is not None else list(words or ()),
        env=dict(map(_variable, given.pop("env") or ())),
        secrets=given.pop("secret") or (),
        outputs=given.pop("output", None) or (),
        timeout_seconds=given.pop("timeout"),
        gpu_memory_mib=given.pop("gpu_memory"),
        memory_mib=given.pop("memory"),
        labels=given.pop("label") or (),
        **{
            name: given.pop(name)
            for name in ("cpus", "gpus", "compute_capability", "host", "stop_signal_seconds", "workspace", "python")
        },
        **({"batch": given.pop("batch")} if "batch" in given else {}),
        **fixed,
    )


def job_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the command-line options that apply to jobs of any kind."""
    names = ("priority", "hold", "max_running", "idempotency_key", "notify", "after", "after_any", "name")
    chosen = {name: given[name] or None for name in names if name in given}
    return chosen | ({"tags": given["tag"] or None} if "tag" in given else {})


def _variable(text: str) -> tuple[str, str]:
    from threads_cluster import settings

    name, equals, value = text.partition("=")
    if not equals:
        here = settings.variable(name)
        if here is None:
            raise typer.BadParameter(f"{name} is not set in this shell; write {name}=VALUE", param_hint="'--env'")
        return name, here
    if not name:
        raise typer.BadParameter(f"must have the form NAME=VALUE; got {text!r}", param_hint="'--env'")
    return name, value


def folder(files: Path | None) -> Path:
    """Return the folder to upload. The default is the current folder, unless it is the root or home directory.

    Raises BadArgument for these two.
    """
    if files is not None:
        return files
    from threads_cluster import settings

    here = _current_folder()
    if here in (*_WHOLE, settings.home()):
        error = errors.BadArgument(f"{here} would be uploaded with all its contents")
        error.next = "change to the program's folder, choose one with --files DIR, or upload none with --no-files"
        raise error
    return here


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        error = errors.BadArgument("the current folder does not exist any more")
        error.next = "change to the program's folder, choose one with --files DIR, or upload none with --no-files"
        raise error from None


def translate_parameters(text: str) -> str:
    """Replace the names of parameters in an error message about a program with command-line options."""
    return re.sub(rf"\b({_NAMES})\b", lambda match: _OPTIONS[match[1]], text)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Replace the names of parameters in API errors with command-line options."""
    try:
        yield
    except errors.ApiError as error:
        text = re.sub(rf"\bparameters\.({_ALL_NAMES})\b(\.\d+)?", lambda match: _ALL[match[1]], str(error))
        if text != str(error):
            error.args = (text,)
            error.field = None
        raise


class CommandFailure(errors.ClientError):
    """Failure of `cluster run` or `cluster attach` before the program started. Its exit code is 125, as in docker."""

    exit_code = 125

    def __init__(self, error: Exception, advice: str = "") -> None:
        text = error.format_message() if hasattr(error, "format_message") else str(error)
        super().__init__(text.removesuffix("."))
        self.next = getattr(error, "next", "") or advice
        self.field = getattr(error, "field", None)
        for context in getattr(error, "__notes__", ()):
            self.add_note(context)


class ProgramCommand(TyperCommand):
    """Command whose last arguments are a program and the program's arguments."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", "--", "CMD", "[ARGUMENT]..."]


class ExitCodeCommand(ProgramCommand):
    """Command that returns the exit code of a program. Its own errors have the exit code 125."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        ctx.meta["arguments"] = list(args)  # Parsing changes the list
        return super().parse_args(ctx, args)

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        try:
            return super().make_context(*arguments, **more)
        except Exception as error:
            if hasattr(error, "format_message") and type(error).__name__ != "NoArgsIsHelpError":
                raise CommandFailure(error, f"see cluster {self.name} --help") from None
            raise

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except errors.ClientError as error:
            if error.exit_code == errors.INTERRUPTED or isinstance(error, CommandFailure):
                raise
            raise CommandFailure(error) from error
        except Exception as error:
            if hasattr(error, "format_message"):
                raise CommandFailure(error, f"see cluster {self.name} --help") from None
            raise


class AttachCommand(ExitCodeCommand):
    """Command that runs a program next to a running job."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", "JOB", "[-- CMD [ARGUMENT]...]"]
