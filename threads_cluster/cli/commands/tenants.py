"""The command `cluster tenant`, for tenants with their weights and limits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import typer

from threads_cluster import errors
from threads_cluster.cli import show
from threads_cluster.cli.session import AsJson, command_group

app = command_group("Show and change tenants: their weights and caps. Changes need the scope admin.")

#: Number of bytes for each unit of size.
_SIZES = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}


def _units(text: str) -> dict[str, int]:
    """Parse limits such as `collatz=1e9,thread=1e6`. The text `none` means no limits."""
    from threads_cluster.cli import options

    if text == "none":
        return {}
    pairs = [item.partition("=") for item in text.split(",")]
    caps = {kind: options.integer(number) for kind, _, number in pairs}
    if len(caps) < len(pairs) or not all(kind and isinstance(most, int) and most > 0 for kind, most in caps.items()):
        raise typer.BadParameter(f"must be KIND=NUMBER,... such as collatz=1e9, or none; got {text!r}")
    return {kind: int(most) for kind, most in caps.items() if most}


def _bytes(text: str) -> int:
    """Parse a size such as 1GB, 512MiB or 1000000, and return it in bytes."""
    match = re.fullmatch(r"([0-9_]+(?:\.[0-9]{1,3})?)\s*([A-Za-z]*)", text)
    if not match or match[2] not in _SIZES:
        raise typer.BadParameter(f"must be a size such as 1GB, 512MiB or 1000000, or 0 for no limit; got {text!r}")
    whole, _, part = match[1].partition(".")
    return (int(whole) * 1000 + int((part or "0").ljust(3, "0"))) * _SIZES[match[2]] // 1000


def _labels(text: str) -> frozenset[str]:
    """Parse host labels such as `trusted,eu`. The text `none` means no labels."""
    labels = [] if text == "none" else [label.strip() for label in text.split(",")]
    if not all(labels):
        raise typer.BadParameter(f"must be comma-separated labels such as trusted,eu, or none; got {text!r}")
    return frozenset(labels)


Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The tenant's name.")]
Weight: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1, metavar="NUMBER", help="The tenant's share of the lanes, relative to other weights."),
]
Lanes: TypeAlias = Annotated[
    int | None,
    typer.Option(min=0, metavar="NUMBER", help="Maximum number of lanes that compute its jobs at once; 0: no limit."),
]
Jobs: TypeAlias = Annotated[
    int | None,
    typer.Option(min=0, metavar="NUMBER", help="Maximum number of its waiting and running jobs; 0: no limit."),
]
Units: TypeAlias = Annotated[
    dict[str, int] | None,
    typer.Option(
        "--max-units",
        "--units",
        parser=_units,
        metavar="KIND=NUMBER,...",
        help="Maximum units per day (UTC) by kind, such as collatz=1e9; none: no limits.",
    ),
]
GpuSeconds: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--max-gpu-seconds",
        "--gpu-seconds",
        min=0,
        metavar="NUMBER",
        help="Maximum GPU seconds per day (UTC); 0: no limit.",
    ),
]
StoredBytes: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--max-stored-bytes",
        "--stored-bytes",
        parser=_bytes,
        metavar="SIZE",
        help="Maximum stored bytes of its jobs, such as 1GB or 512MiB; 0: no limit.",
    ),
]

Requires: TypeAlias = Annotated[
    frozenset[str] | None,
    typer.Option(
        "--requires",
        parser=_labels,
        metavar="LABEL,...",
        help="Labels that a host needs to compute its jobs; none: no requirement.",
    ),
]


@app.command("list")
def list_tenants(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List tenants with their weights, caps and usage. Tokens with the scope admin see all tenants."""
    show.listing(ctx.obj.cluster.tenants(), show.TENANTS, as_json=as_json)


def _write_command(known_of: Callable[[Any, str], dict[str, Any]]) -> Callable[..., None]:
    """Create a command that changes a tenant. `known_of` returns the values of settings that the user omits."""

    def write(
        ctx: typer.Context,
        name: Name,
        weight: Weight = None,
        max_lanes: Lanes = None,
        max_jobs: Jobs = None,
        max_units: Units = None,
        max_gpu_seconds: GpuSeconds = None,
        max_stored_bytes: StoredBytes = None,
        requires: Requires = None,
        as_json: AsJson = False,
    ) -> None:
        given = {
            "weight": weight,
            "max_lanes": max_lanes,
            "max_jobs": max_jobs,
            "max_units": max_units,
            "max_gpu_seconds": max_gpu_seconds,
            "max_stored_bytes": max_stored_bytes,
            "requires": requires,
        }
        named = {option: value for option, value in given.items() if value is not None}
        _put(ctx, known_of(ctx.obj.cluster, name), named, as_json)

    return write


def _new(cluster: Any, name: str) -> dict[str, Any]:
    if any(row["tenant"] == name for row in cluster.tenants()):
        raise errors.BadArgument(f"tenant {name} exists; change it with: cluster tenant set {name}")
    return {"tenant": name}


app.command("create", help="Register a tenant. Once a tenant is registered, lanes are shared by weight.")(
    _write_command(_new)
)
app.command("set", help="Change a tenant's weight, caps and required labels. Omitted settings stay unchanged.")(
    _write_command(lambda cluster, name: cluster.tenant(name))
)


def _put(ctx: typer.Context, known: dict[str, Any], named: dict[str, Any], as_json: bool) -> None:
    """Write the settings of a tenant. New values replace known ones, and 0 or an empty value removes a limit."""
    names = ("max_lanes", "max_jobs", "max_units", "max_gpu_seconds", "max_stored_bytes")
    wanted = {name: named.get(name, known.get(name)) or None for name in names}
    weight = named.get("weight") or known.get("weight", 1)
    requires = sorted(named["requires"]) if "requires" in named else None
    row = ctx.obj.cluster.put_tenant(known["tenant"], weight=weight, requires=requires, **wanted)
    show.json_line(row) if as_json else show.table([row], show.TENANTS)


@app.command()
def delete(ctx: typer.Context, name: Name) -> None:
    """Delete a tenant. It fails while jobs of the tenant are waiting or running."""
    ctx.obj.cluster.delete_tenant(name)
    show.line(f"{name} deleted")
