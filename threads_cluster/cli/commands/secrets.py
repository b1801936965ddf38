"""The command `cluster secret`. It reads values from a prompt, stdin or a file, and never prints them."""

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

#: Maximum size in bytes of a secret's value. The API has the same limit.
MAX_BYTES = 64 << 10
#: Pattern of valid names of secrets. The API has the same pattern.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

Name: TypeAlias = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the secret and of the environment variable.")
]


@app.command("set")
def set_value(
    ctx: typer.Context,
    name: Name,
    value: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    from_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read the value from this file, including a trailing newline.")
    ] = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Set a secret. Its value is read without echo, or from stdin without a trailing newline."""
    if value:
        # An argument would be visible in the shell's history and to other processes on this machine.
        raise errors.BadArgument(
            f"a value cannot be an argument; type it at the prompt, or run: cluster secret set {name} < FILE"
        )
    if not _NAME.fullmatch(name):
        # The name must not be sent or printed: it could be NAME=VALUE, and server logs would contain the value.
        raise errors.BadArgument("a name must have 1 to 64 letters, digits or _, and must not start with a digit")
    row = ctx.obj.cluster.put_secret(name, _text(from_file), tenant=tenant)
    show.json_line(row) if as_json else show.line(f"{row['name']} set for tenant {row['tenant']}")


@app.command("list")
def list_secrets(ctx: typer.Context, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """List secrets without their values. No command prints a value."""
    rows = ctx.obj.cluster.secrets(tenant=tenant)
    show.listing(rows, show.SECRETS, as_json=as_json, none="No secrets. Set one with: cluster secret set NAME")
    if unreadable := [row["name"] for row in rows if not row["readable"]]:
        show.say(
            f"No key in SECRETS_KEY decrypts {', '.join(unreadable)}. Add the missing key, or set the secrets again."
        )


@app.command()
def delete(ctx: typer.Context, name: Name, tenant: Tenant = None) -> None:
    """Delete a secret."""
    ctx.obj.cluster.delete_secret(name, tenant=tenant)
    show.line(f"{name} deleted")


@app.command()
def rotate(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Encrypt the secrets of all tenants with the first key of SECRETS_KEY. Needs the scope admin."""
    outcome = ctx.obj.cluster.rotate_secrets()
    if as_json:
        show.json_line(outcome)
        return
    show.line(f"{outcome['rotated']} secrets are now encrypted with key {outcome['key']}")
    if outcome["unreadable"]:
        show.say(f"No key decrypts these secrets, so they are unchanged: {', '.join(outcome['unreadable'])}")


def _text(file: Path | None) -> str:
    """Read a secret's value from a prompt, a file or stdin. Raise BadArgument if it is empty or invalid."""
    if file is not None:
        return _decoded(_from_file(file))
    text = _prompt() if sys.stdin.isatty() else _decoded(_read(sys.stdin.buffer))
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise errors.BadArgument("no value was entered; type it at the prompt, or run: cluster secret set NAME < FILE")
    return text


def _prompt() -> str:
    """Read a secret's value at a prompt without echo. Return "" if the user presses Ctrl-D."""
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
    """Read a secret's value from a stream. Raise BadArgument if it is too long."""
    # Two more bytes allow a trailing line end, and a third one reveals a value that is too long.
    content = source.read(MAX_BYTES + 3)
    if len(content) > MAX_BYTES + 2:
        raise errors.BadArgument(f"the value has over {MAX_BYTES} bytes, which is the maximum for a secret")
    return content


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise errors.BadArgument("the value is not UTF-8 text; encode it, for example with: base64 < FILE") from None
