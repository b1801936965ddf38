"""`cluster secret`: values for the environment of programs. A value is read, never printed, and no argument."""

from __future__ import annotations

import getpass
import re
import sys
from pathlib import Path
from typing import Annotated, BinaryIO, TypeAlias

import typer

from threads_cluster import errors
from threads_cluster.cli import show
from threads_cluster.cli.session import AsJson, Tenant, command_group

app = command_group("Secrets: values for the environment of programs. Needs a token with the scope run.")

#: Most bytes of a value; the API's bound.
MAX_BYTES = 64 << 10
#: The API's pattern of a name.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="Its name: that of the environment variable.")]


@app.command("set")
def set_value(
    ctx: typer.Context,
    name: Name,
    value: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    from_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Read the value from it, every byte.")] = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Set a secret: asks for its value without echo, or reads it from stdin; a line end at its end is left out."""
    if value:
        # The shell's history and every process of the machine would have it.
        raise errors.BadArgument(f"a value is no argument; type it when asked, or: cluster secret set {name} < FILE")
    if not _NAME.fullmatch(name):
        # Neither sent nor repeated: NAME=VALUE would stand in the logs of the servers.
        raise errors.BadArgument("a name has letters, digits and _, no digit first, at most 64")
    row = ctx.obj.cluster.put_secret(name, _text(from_file), tenant=tenant)
    show.json_line(row) if as_json else show.line(f"{row['name']} set for tenant {row['tenant']}")


@app.command("list")
def list_secrets(ctx: typer.Context, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """List secrets without their values, which nothing shows."""
    rows = ctx.obj.cluster.secrets(tenant=tenant)
    show.listing(rows, show.SECRETS, as_json=as_json, none="no secrets; set one with: cluster secret set NAME")
    if unreadable := [row["name"] for row in rows if not row["readable"]]:
        show.say(f"no key of SECRETS_KEY opens {', '.join(unreadable)}: add their key to it, or set them again")


@app.command()
def delete(ctx: typer.Context, name: Name, tenant: Tenant = None) -> None:
    """Delete a secret."""
    ctx.obj.cluster.delete_secret(name, tenant=tenant)
    show.line(f"{name} deleted")


@app.command()
def rotate(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Encrypt every tenant's secrets with the first key of SECRETS_KEY; needs the scope admin."""
    outcome = ctx.obj.cluster.rotate_secrets()
    if as_json:
        show.json_line(outcome)
        return
    show.line(f"{outcome['rotated']} secrets are under key {outcome['key']} now")
    if outcome["unreadable"]:
        show.say(f"no key opens these, and they stay as they are: {', '.join(outcome['unreadable'])}")


def _text(file: Path | None) -> str:
    """Return the value that is typed, or stands in a file or in stdin. BadArgument when it is none."""
    if file is not None:
        return _decoded(_from_file(file))
    text = _typed() if sys.stdin.isatty() else _decoded(_read(sys.stdin.buffer))
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise errors.BadArgument("no value was given; type it when asked, or: cluster secret set NAME < FILE")
    return text


def _typed() -> str:
    """Return what is typed at a prompt without echo; nothing when the terminal ends it."""
    try:
        return getpass.getpass("value: ")
    except EOFError:
        return ""


def _from_file(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return _read(opened)
    except OSError as error:
        raise errors.BadArgument(f"{file} cannot be read: {error.strerror}") from None


def _read(source: BinaryIO) -> bytes:
    """Return what a source holds. BadArgument when it has more than a value may have."""
    # Two more: a line end that may be left out.
    content = source.read(MAX_BYTES + 3)
    if len(content) > MAX_BYTES + 2:
        raise errors.BadArgument(f"the value has over {MAX_BYTES} bytes; a secret has at most that many")
    return content


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise errors.BadArgument("the value is no UTF-8 text; encode it, as with: base64 < FILE") from None
