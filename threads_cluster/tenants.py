"""`cluster tenant`: who shares the cluster, by which weight and within which caps."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import typer

from threads_cluster import errors, show
from threads_cluster.session import as_json_option

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None,
    help="Show and change tenants: their weights and caps. Changes need the scope admin.",
)  # fmt: skip

AsJson: TypeAlias = as_json_option("For programs: JSON, one object a line.")  # type: ignore[valid-type]
Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The tenant's name.")]
Weight: TypeAlias = Annotated[
    int | None, typer.Option(min=1, metavar="NUMBER", help="Its share of the lanes, relative to other tenants'.")
]
Lanes: TypeAlias = Annotated[
    int | None, typer.Option(min=0, metavar="NUMBER", help="Most lanes that compute its jobs at once; 0: any number.")
]
Jobs: TypeAlias = Annotated[
    int | None, typer.Option(min=0, metavar="NUMBER", help="Most of its jobs that wait or run at once; 0: any number.")
]


@app.command("list")
def list_tenants(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List tenants with their weights, caps and use. An admin sees all, others their own."""
    from threads_cluster import answers

    rows = [ctx.obj.checked(answers.Tenant, row) for row in ctx.obj.cluster.tenants()]
    if not as_json:
        show.tenants(rows)
    for row in rows if as_json else ():
        show.json_line(row)


@app.command()
def create(
    ctx: typer.Context, name: Name, weight: Weight = None, max_lanes: Lanes = None, max_jobs: Jobs = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Register a tenant. From the first one on, lanes are shared by weight."""
    if any(row["tenant"] == name for row in ctx.obj.cluster.tenants()):
        raise errors.BadArgument(f"tenant {name} exists; change it with: cluster tenant set {name}")
    _put(ctx, {"tenant": name}, weight, max_lanes, max_jobs, as_json)


@app.command("set")
def change(
    ctx: typer.Context, name: Name, weight: Weight = None, max_lanes: Lanes = None, max_jobs: Jobs = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Change a tenant's weight and caps. What is not named stays."""
    _put(ctx, ctx.obj.cluster.tenant(name), weight, max_lanes, max_jobs, as_json)


def _put(
    ctx: typer.Context, known: dict[str, Any], weight: int | None, lanes: int | None, jobs: int | None, as_json: bool
) -> None:
    row = ctx.obj.cluster.put_tenant(
        known["tenant"],
        weight=weight or known.get("weight", 1),
        max_lanes=(known.get("max_lanes") if lanes is None else lanes) or None,
        max_jobs=(known.get("max_jobs") if jobs is None else jobs) or None,
    )
    show.json_line(row) if as_json else show.tenants([row])


@app.command()
def delete(ctx: typer.Context, name: Name) -> None:
    """Forget a tenant. None of its jobs may wait or run."""
    ctx.obj.cluster.delete_tenant(name)
    show.line(f"{name} deleted")
