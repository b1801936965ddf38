"""The commands `cluster login`, `cluster logout` and `cluster token`."""

from __future__ import annotations

import getpass
import sys
from dataclasses import replace
from typing import Annotated, Any

import typer

from threads_cluster import errors, settings
from threads_cluster.cli import show
from threads_cluster.cli.commands import context_commands
from threads_cluster.cli.session import AsJson, Session, command_group, time_parser

tokens = command_group("Create, list and revoke API tokens. Needs the scope admin.")


@tokens.command()
def create(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Purpose of the token, such as ci, or the name of a person.")
    ],
    scopes: Annotated[
        str,
        typer.Option(
            metavar="LIST", help="Comma-separated list of read, submit, run, infer, worker, join, operate, admin."
        ),
    ] = "read,submit",
    tenant: Annotated[
        str, typer.Option(metavar="TENANT", help="The tenant whose jobs the token can submit and read.")
    ] = "default",
    ttl: Annotated[
        int | None,
        typer.Option(
            metavar="TIME",
            parser=time_parser("30d"),
            help="Lifetime, such as 90s, 15m, 12h or 30d; default: unlimited.",
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL,...",
            help="Labels of a worker's host or of an invitation, which tenants can require. Only for the "
            "scopes worker and join.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a token and print it once. The cluster stores only its digest."""
    made = ctx.obj.cluster.create_token(
        name, scopes.split(","), tenant=tenant, ttl_seconds=ttl, labels=labels.split(",") if labels else ()
    )
    if as_json:
        show.json_line(made)
        return
    show.line(made["token"])
    until = f" until {made['expires']}" if made.get("expires") else ""
    show.say(f"{name}: {', '.join(made['scopes'])} for tenant {made['tenant']}{until}; the token is not shown again")


@tokens.command("list")
def list_tokens(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List tokens without their secrets, including expired tokens."""
    none = "No tokens. Create one with: cluster token create NAME"
    show.listing(ctx.obj.cluster.tokens(), show.TOKENS, as_json=as_json, none=none)


@tokens.command()
def revoke(
    ctx: typer.Context,
    token_id: Annotated[str, typer.Argument(metavar="ID", help="The token's ID; see cluster token list.")],
    as_json: AsJson = False,
) -> None:
    """Revoke a token. The cluster rejects it within a second and ends all logins made with it."""
    ctx.obj.cluster.revoke_token(token_id)
    show.json_line({"id": token_id, "revoked": True}) if as_json else show.line(f"{token_id} revoked")


def add_commands(app: typer.Typer) -> None:
    """Add the commands for tokens to the `cluster` command."""
    app.command()(login)
    app.command()(logout)
    app.add_typer(tokens, name="token")


def login(
    ctx: typer.Context,
    url: Annotated[str | None, typer.Argument(metavar="URL", help="The cluster's address; default: --url.")] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the cluster's context; default: its host.")
    ] = None,
    link: Annotated[bool, typer.Option("--link", help="Print a one-time link that logs a browser in.")] = False,
) -> None:
    """Store a token for a cluster, and select the cluster's context.

    The token is read without echo, or from stdin, and must be valid.
    """
    from threads_cluster.client import api, contexts, logins

    if link:
        cluster = ctx.obj.cluster
        code = cluster.login_code()
        show.line(f"{cluster.url}{code['path']}")
        show.say(f"The link works once and expires in {code['seconds'] // 60} minutes.")
        return
    stated = settings.load()
    chosen = contexts.choose(stated, *_choice(ctx, url))
    wanted = {"name": contexts.check_name(name)} if name is not None else {}
    token = (_prompt() if sys.stdin.isatty() else sys.stdin.readline()).strip()
    if not token:
        raise errors.Misconfigured("no token was entered; type it at the prompt, or run: cluster login < FILE")
    with api.Cluster(chosen.url, token) as cluster:
        who = _check_token(cluster)
        file = logins.keep(cluster.url, token, stated)
    kept = contexts.keep(replace(chosen, url=cluster.url, **wanted), stated, select=True)
    show.line(f"{cluster.url}: {', '.join(who['scopes'])} for tenant {who['tenant']}")
    show.say(f"The token is stored in {file}. The selected context is {kept.name}.")
    context_commands.report_precedence(kept.name)


def _prompt() -> str:
    """Read a token at a prompt without echo. Return "" if the user presses Ctrl-D."""
    try:
        return getpass.getpass("token: ")
    except EOFError:
        show.say("")  # Moves the cursor to the line after the prompt
        return ""


def _check_token(cluster: Any) -> dict[str, Any]:
    """Return the session information for a token. Raise Misconfigured if the cluster rejects the token."""
    try:
        who: dict[str, Any] = cluster.session()
    except errors.ApiError as error:
        if error.status == 401:
            raise errors.Misconfigured(f"{error}; the token was not stored") from None
        raise
    return who


def logout(
    ctx: typer.Context,
    url: Annotated[str | None, typer.Argument(metavar="URL", help="The cluster's address; default: --url.")] = None,
) -> None:
    """Remove the stored token of a cluster. The token stays valid; to revoke it: cluster token revoke ID"""
    from threads_cluster.client import connection, contexts, logins

    chosen = contexts.choose(settings.load(), *_choice(ctx, url))
    address = connection.shown_address(chosen.url)
    forgotten = logins.forget(address, settings.load())
    show.line(f"{address}: {'token removed' if forgotten else 'no token is stored'}")


def _choice(ctx: typer.Context, url: str | None) -> tuple[str | None, str | None]:
    """Return the address and the context that the user named. An argument takes precedence over options."""
    session: Session = ctx.obj
    return (url, None) if url else (session.stated_url, session.stated_context)
