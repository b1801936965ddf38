"""The command `cluster model`, for models in the cluster and the hosts that store copies of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import typer

from threads_cluster import locations
from threads_cluster.cli import formatting, show
from threads_cluster.cli.commands import workflow_commands
from threads_cluster.cli.session import AsJson, command_group

app = command_group("Models stored in the cluster. Upload a local model with: cluster artifact put FILE --name NAME")

Name: TypeAlias = Annotated[str, typer.Argument(metavar="MODEL", help="The model's name.")]
Source: TypeAlias = Annotated[
    str, typer.Option(metavar="SOURCE", help="https://..., hf://ORG/REPO[@REVISION][/FILE] (Hugging Face) or s3://...")
]
From: TypeAlias = Annotated[
    str,
    typer.Option(
        "--from", metavar="PLACE", help="Source location: disk (the cluster's store), HOST:disk or HOST:dram."
    ),
]
Target: TypeAlias = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="PLACE",
        help="Target location: HOST:disk or HOST:dram. Without HOST, dram is on this machine or the only runner host.",
    ),
]
Node: TypeAlias = Annotated[
    str | None, typer.Option("--node", metavar="HOST", help="Host for locations without a host.")
]
Wait: TypeAlias = Annotated[
    bool, typer.Option("--wait", help="Wait until the copy is complete; Ctrl-C does not cancel it.")
]
EXAMPLES = """\b
Examples:
  cluster model download tiny --source https://example.org/tiny.gguf
  cluster model download qwen --source hf://Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf --wait
  cluster model copy qwen --to node1:disk --wait
"""


@app.command()
def register(
    ctx: typer.Context,
    name: Name,
    source: Source,
    kind: Annotated[str, typer.Option("--type", metavar="TYPE", help="Type of the model, for display only.")] = "llm",
    as_json: AsJson = False,
) -> None:
    """Register the source of a model, so that it can be downloaded by name."""
    row = ctx.obj.cluster.models.register(name, source, kind=kind)
    show.json_line(row) if as_json else show.line(f"{name} {row['status']}")
    if not as_json:
        show.say(f"Download it with: cluster model download {name} --wait")


@app.command(epilog=EXAMPLES)
def download(
    ctx: typer.Context,
    name: Name,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="https://..., hf://ORG/REPO[@REVISION][/FILE] (Hugging Face) or s3://...; default: the "
            "registered source.",
        ),
    ] = None,
    sha256: Annotated[str | None, typer.Option(metavar="HEX", help="Expected SHA-256 of the file.")] = None,
    device: Annotated[
        str, typer.Option(metavar="PLACE", help="Location in addition to the cluster's store: HOST:disk or HOST:dram.")
    ] = "disk",
    host: Annotated[str | None, typer.Option(metavar="HOST", help="Same as --device HOST:disk.")] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A secret for the download, such as HF_TOKEN; see cluster secret."),
    ] = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Download a model (GGUF or safetensors) on a runner. An interrupted download resumes."""
    to = locations.on(ctx.obj.cluster, host, device)
    row = ctx.obj.cluster.models.download(name, source, to=to, sha256=sha256, secrets=secret or ())
    workflow_commands.print_started(ctx, row, wait=wait, as_json=as_json)
    if not as_json:
        show.say(f"Serve it with: cluster serve {name}")


@app.command()
def copy(
    ctx: typer.Context,
    name: Name,
    target: Target,
    source: From = "disk",
    host: Node = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Copy a model to another location before it is needed there."""
    cluster = ctx.obj.cluster
    to, of = locations.on(cluster, host, target), locations.on(cluster, host, source, store=True)
    row = cluster.models.copy(name, to, source=of)
    workflow_commands.print_started(ctx, row, wait=wait, as_json=as_json)


@app.command()
def move(
    ctx: typer.Context,
    name: Name,
    target: Target,
    source: From = "disk",
    host: Node = None,
    keep_source: Annotated[bool, typer.Option("--keep-source", help="Keep the copy at the source.")] = False,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Move a model to another location. The cluster's store always keeps a copy."""
    cluster = ctx.obj.cluster
    to, of = locations.on(cluster, host, target), locations.on(cluster, host, source, store=True)
    row = cluster.models.move(name, to, source=of, keep_source=keep_source)
    workflow_commands.print_started(ctx, row, wait=wait, as_json=as_json)


@app.command("list")
def list_models(
    ctx: typer.Context,
    location: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="Only models at this location, such as disk, HOST:dram or HOST:gpu0. Without HOST: on any host.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List models by name, with their locations and services."""
    none = (
        "No models. Add one with: cluster model download NAME --source URL, or: cluster artifact put FILE --name NAME"
    )
    several = ctx.obj.cluster.models.list()
    found = [row for row in several if locations.is_at(location, row["locations"])]
    if location and not found:
        locations.require(ctx.obj.cluster, location, "--location")
        none = f"No models at {location}. List all models with: cluster model list" if several else none
    show.listing(found, _COLUMNS, as_json=as_json, none=none)


def _weights(row: Mapping[str, Any]) -> str:
    paths = row["weights"]
    if not paths:
        return str(row["status"])
    return str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


_COLUMNS: show.Columns = {
    "model": "model_name",
    "weights": _weights,
    "size": lambda row: formatting.size(row["bytes"]),
    "created": lambda row: formatting.age(row["created"]),
    "lies at": lambda row: " ".join(row["locations"]),
    "services": lambda row: " ".join(row["services"]),
}


@app.command()
def info(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Show a model: its source, locations, files and services."""
    row = ctx.obj.cluster.models.get(name)
    if as_json:
        show.json_line(row)
        return
    show.pairs(
        {
            "model": name,
            "type": row["type"],
            "status": row["status"],
            "source": row["source"] or "uploaded file",
            "size": formatting.size(row["bytes"]) if row["weights"] else None,
            "created": row["created"],
            "lies at": " ".join(row["locations"]) or "nowhere yet",
            "services": " ".join(row["services"]) or "none",
            "artifact": row["artifact_id"],
        }
    )
    for at, path in enumerate(row["weights"]):
        show.line(f"{'weights' if at == 0 else '':<9} {path}")
    show.say(
        f"Serve it with: cluster serve {name}"
        if row["weights"]
        else f"Download it with: cluster model download {name} --wait"
    )


@app.command()
def delete(
    ctx: typer.Context,
    name: Name,
    device: Annotated[
        str | None, typer.Option(metavar="PLACE", help="Delete only the copy at this location, such as HOST:disk.")
    ] = None,
    host: Node = None,
    as_json: AsJson = False,
) -> None:
    """Delete a model, or its copy at one location. Fails while a service uses it."""
    at = None if device is None else locations.on(ctx.obj.cluster, host, device)
    ctx.obj.cluster.models.delete(name, at=at)
    show.json_line({"model_name": name, "deleted": True}) if as_json else show.line(f"{name} deleted")
