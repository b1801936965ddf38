"""The command `cluster data`, for chunks of data and the hosts that store copies of them."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from threads_cluster import locations
from threads_cluster.cli import formatting, show
from threads_cluster.cli.commands import workflow_commands
from threads_cluster.cli.session import AsJson, command_group

app = command_group("Chunks of data from downloads or model outputs. Download one with: cluster artifact fetch ID DIR")

Chunk: TypeAlias = Annotated[str, typer.Argument(metavar="ID", help="The chunk's ID, chunk-...")]
Target: TypeAlias = Annotated[
    str, typer.Option("--to", metavar="PLACE", help="HOST:disk or HOST:dram; disk is the cluster's store only.")
]
Node: TypeAlias = Annotated[
    str | None, typer.Option("--node", metavar="HOST", help="Host of a location that has none.")
]
Wait: TypeAlias = Annotated[
    bool, typer.Option("--wait", help="Wait until the copy is complete; Ctrl-C does not cancel it.")
]
EXAMPLES = """\b
Examples:
  cluster data create --source https://example.org/prompts.jsonl --wait
  cluster data create --source s3://bucket/prompts --device node1:dram
"""


@app.command(epilog=EXAMPLES)
def create(
    ctx: typer.Context,
    source: Annotated[str, typer.Option(metavar="SOURCE", help="https://... or s3://BUCKET/KEY")],
    device: Annotated[
        str, typer.Option(metavar="PLACE", help="Location in addition to the cluster's store: HOST:disk or HOST:dram.")
    ] = "disk",
    host: Node = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A secret for the download; default: the secrets that s3 needs."),
    ] = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Download data from a source into a chunk on a runner. Prints the chunk ID at once."""
    row = ctx.obj.cluster.data.create(source, device=locations.on(ctx.obj.cluster, host, device), secrets=secret or ())
    show.json_line(row) if as_json else show.line(row["chunk_id"])
    workflow_commands.follow_or_suggest(ctx, row["task_id"], wait=wait, as_json=as_json)


@app.command("list")
def list_data(
    ctx: typer.Context,
    device: Annotated[
        str | None, typer.Option(metavar="PLACE", help="Only chunks at this location, such as HOST:disk or dram.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List chunks by ID, with their locations."""
    several = ctx.obj.cluster.data.list()
    found = [row for row in several if locations.is_at(device, row["locations"])]
    none = "No data. Download some with: cluster data create --source URL"
    if device and not found:
        locations.require(ctx.obj.cluster, device, "--device")
        none = f"No data at {device}. List all data with: cluster data list" if several else none
    show.listing(found, _COLUMNS, as_json=as_json, none=none)


_COLUMNS: show.Columns = {
    "chunk": "chunk_id",
    "size": lambda row: formatting.size(row["bytes"]),
    "files": "files",
    "created": lambda row: formatting.age(row["created"]),
    "lies at": lambda row: " ".join(row["locations"]),
}


@app.command()
def info(ctx: typer.Context, chunk: Chunk, as_json: AsJson = False) -> None:
    """Show a chunk: its size, its locations, and the number of references to it."""
    row = ctx.obj.cluster.data.get(chunk)
    if as_json:
        show.json_line(row)
        return
    show.pairs(
        {
            "chunk": chunk,
            "size": formatting.size(row["bytes"]),
            "files": str(row["files"]),
            "lies at": " ".join(row["locations"]),
            "references": str(row["references"]),
            "artifact": row["artifact_id"],
        }
    )
    show.say(f"Download it with: cluster artifact fetch {chunk} DIR")


@app.command()
def move(
    ctx: typer.Context, chunk: Chunk, target: Target, host: Node = None, wait: Wait = False, as_json: AsJson = False
) -> None:
    """Move a chunk to another location. Other copies are deleted, except in the cluster's store."""
    workflow_commands.print_started(
        ctx,
        ctx.obj.cluster.data.move(chunk, locations.on(ctx.obj.cluster, host, target)),
        wait=wait,
        as_json=as_json,
    )


@app.command()
def transfer(
    ctx: typer.Context, chunk: Chunk, target: Target, host: Node = None, wait: Wait = False, as_json: AsJson = False
) -> None:
    """Move a chunk to another host, and delete the copy on the previous one."""
    workflow_commands.print_started(
        ctx,
        ctx.obj.cluster.data.transfer(chunk, locations.on(ctx.obj.cluster, host, target)),
        wait=wait,
        as_json=as_json,
    )


@app.command()
def delete(ctx: typer.Context, chunk: Chunk, as_json: AsJson = False) -> None:
    """Delete a chunk. Jobs that use it keep its files until they are deleted."""
    ctx.obj.cluster.data.delete(chunk)
    show.json_line({"chunk_id": chunk, "deleted": True}) if as_json else show.line(f"{chunk} deleted")
