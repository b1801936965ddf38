"""Generator of the reference of the `cluster` command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from deploy.docs.markdown import cell, code, prose, table
from threads_cluster.cli.commands.submitting import Kinds
from threads_cluster.cli.main import commands

_HEAD = """\
# `cluster` command

Commands of the `cluster` command line. `cluster COMMAND --help` prints the same text. Every command accepts the global
options; those that print data accept `--json`.

"""
_KINDS = "The subcommands are the kinds that the cluster offers, and their options are the parameters of the kind.\n"


def render() -> str:
    """Return the reference page of the command as Markdown."""
    root: Any = commands()
    context: Any = typer.Context(root, info_name="cluster")
    names = sorted(root.commands)
    index = table(
        ("Command", "Description"),
        ((f"[`{name}`](#cluster-{name})", prose(_summary(root.commands[name]))) for name in names),
    )
    parts = [_HEAD, index, "\n## Global options\n\n", _options(root, context), _epilog(root)]
    for name in names:
        parts += _sections(root.commands[name], context, f"cluster {name}", 2)
    return "\n".join(parts)


def _sections(command: Any, parent: Any, name: str, level: int) -> Iterator[str]:
    """Yield the section of a command, and then the sections of its subcommands."""
    context: Any = typer.Context(command, info_name=name, parent=parent)
    yield f"{'#' * level} {name}\n"
    yield f"{prose(_paragraphs(command.help))}\n"
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    yield f"```\n{usage}\n```\n"
    if isinstance(command, Kinds):
        yield _KINDS
    yield _options(command, context)
    yield _epilog(command)
    for sub, each in sorted(getattr(command, "commands", {}).items()):
        yield from _sections(each, context, f"{name} {sub}", level + 1)


def _options(command: Any, context: Any) -> str:
    records = [each.get_help_record(context) for each in command.params if not each.hidden]
    return table(("Argument or option", "Description"), ((code(cell(each[0])), prose(each[1])) for each in records))


def _epilog(command: Any) -> str:
    r"""Return the text at the end of a command's help, without the markers `\b` before preformatted paragraphs."""
    if not command.epilog:
        return ""
    return "```text\n" + re.sub(r"^\x08\n", "", command.epilog.strip("\n"), flags=re.MULTILINE) + "\n```\n"


def _summary(command: Any) -> str:
    return _paragraphs(command.help).partition("\n")[0]


def _paragraphs(help_text: str | None) -> str:
    """Return a help text as Markdown, with each paragraph on one line."""
    plain = (help_text or "").replace("\b", "").strip()
    return "\n\n".join(re.sub(r"\s+", " ", part) for part in re.split(r"\n\s*\n", plain))
