"""The command `cluster webhook`, which lists, retries and tests webhook deliveries."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from threads_cluster import errors
from threads_cluster.cli import show
from threads_cluster.cli.session import AsJson, Session, Tenant, command_group

app = command_group("Webhooks: list, retry and test deliveries to the URLs of --notify.")

Limit: TypeAlias = Annotated[
    int, typer.Option(min=1, max=1000, metavar="COUNT", help="Maximum number of deliveries to list.")
]


@app.command("list")
def list_deliveries(
    ctx: typer.Context,
    state: Annotated[
        str | None, typer.Option(metavar="STATE", help="Only deliveries in this state: pending, delivered or dead.")
    ] = None,
    limit: Limit = 20,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """List webhook deliveries, newest first. Delivered ones are kept for a day, and failed ones for a week."""
    _listing(ctx.obj, state, limit, tenant, as_json=as_json)


@app.command()
def dead(ctx: typer.Context, limit: Limit = 20, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """List failed deliveries. To retry one: cluster webhook retry ID"""
    _listing(ctx.obj, "dead", limit, tenant, as_json=as_json)


def _listing(session: Session, state: str | None, limit: int, tenant: str | None, *, as_json: bool) -> None:
    answer = session.cluster.webhooks(state, limit, tenant=tenant)
    none = (
        f"No {state} deliveries." if state else "No deliveries. Submit a job or workflow with --notify URL to get one."
    )
    show.listing(answer["deliveries"], show.WEBHOOKS, as_json=as_json, none=none)
    if not as_json and len(answer["deliveries"]) == limit:
        show.say(f"Showing the latest {limit}. List more with --limit.")
    if not as_json and state is None and answer["counts"].get("dead"):
        show.say(f"{answer['counts']['dead']} deliveries failed. List them with: cluster webhook dead")


@app.command()
def retry(
    ctx: typer.Context,
    delivery_ids: Annotated[list[str], typer.Argument(metavar="ID", help="Delivery IDs; see cluster webhook dead.")],
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Retry webhook deliveries now."""
    for delivery_id in delivery_ids:
        row = ctx.obj.cluster.retry_webhook(delivery_id, tenant=tenant)
        show.json_line(row) if as_json else show.line(f"{row['id']} {row['state']}")


@app.command("test")
def try_receiver(
    ctx: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="URL of the receiver.")],
    as_json: AsJson = False,
) -> None:
    """Send one signed test message of type webhook.test to a URL, and print the outcome."""
    outcome = ctx.obj.cluster.test_webhook(url)
    said = outcome["error"] or f"the receiver returned HTTP {outcome['status']}"
    if as_json:
        show.json_line(outcome)
    else:
        show.line(f"{'delivered' if outcome['delivered'] else 'not delivered'}: {said}, {outcome['seconds']:.2f} s")
    if not outcome["delivered"]:
        raise typer.Exit(errors.JOB_FAILED)


@app.command()
def key(ctx: typer.Context, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Print the key that signs webhooks, for receivers that verify them. The audit log records this."""
    text = ctx.obj.cluster.webhook_key(tenant=tenant)
    show.json_line({"key": text}) if as_json else show.line(text)
