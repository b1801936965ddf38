"""The command `cluster artifact`, for folders and files that are stored in the cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from threads_cluster.cli import formatting, show
from threads_cluster.cli.session import AsJson, command_group

if TYPE_CHECKING:
    from threads_cluster.client.artifacts import Progress

app = command_group("Artifacts: folders and files stored in the cluster. Identical files are stored once.")

Artifact: TypeAlias = Annotated[
    str, typer.Argument(metavar="ID", help="The artifact's ID, its first 8 or more digits, or its name.")
]
#: Number of digits of an artifact ID that are displayed.
DIGITS = 12


@app.command()
def put(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="DIR|FILE", help="Folder or file to upload.")],
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name for the artifact. A named artifact is never garbage-collected."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Exclude files, as a line of .gitignore does. Repeat for more."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Upload a folder or a file. Only files that the cluster lacks are sent, and .clusterignore excludes files."""
    with progress("sent", quiet=as_json) as progressing:
        answer = ctx.obj.cluster.artifacts.put(path, name=name, exclude=exclude or (), progress=progressing)
    if as_json:
        show.json_line(answer)
        return
    row = answer["artifact"]
    show.line(row["artifact_id"])
    show.say(
        f"{formatting.files(row['files'])}, {formatting.size(row['bytes'])}; uploaded"
        f" {formatting.files(answer['sent_files'])}, {answer['sent_bytes']} bytes,"
        f" and a manifest of {formatting.size(answer['manifest_bytes'])}"
    )


@app.command("list")
def list_artifacts(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List artifacts, newest first."""
    rows = list(ctx.obj.cluster.artifacts.list())
    show.listing(rows, show.ARTIFACTS, as_json=as_json, none="No artifacts. Upload one with: cluster artifact put DIR")


@app.command()
def info(ctx: typer.Context, artifact: Artifact, as_json: AsJson = False) -> None:
    """Show an artifact: its names, its references, and its files."""
    artifacts = ctx.obj.cluster.artifacts
    row = artifacts.info(artifact)
    entries = artifacts.files(row["artifact_id"])
    if as_json:
        show.json_line(row | {"paths": [{"path": each.path, "bytes": each.size} for each in entries]})
    else:
        show.artifact(row, entries)


@app.command()
def fetch(
    ctx: typer.Context,
    artifact: Artifact,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Target folder, which is created if needed.")],
    as_json: AsJson = False,
) -> None:
    """Download an artifact into a folder and verify each file. Existing files are not downloaded again."""
    with progress("fetched", quiet=as_json) as progressing:
        answer = ctx.obj.cluster.artifacts.fetch(artifact, folder, progress=progressing)
    if as_json:
        show.json_line(answer)
        return
    total, count = formatting.files(answer["artifact"]["files"]), formatting.files(answer["fetched_files"])
    show.line(f"{folder} has {total}; downloaded {count}, {formatting.size(answer['fetched_bytes'])}")


@app.command()
def delete(ctx: typer.Context, artifact: Artifact, as_json: AsJson = False) -> None:
    """Delete an artifact and its names. Files that no other artifact contains are deleted, too."""
    ctx.obj.cluster.artifacts.delete(artifact)
    show.json_line({"artifact": artifact, "deleted": True}) if as_json else show.line(f"{artifact} deleted")


@contextmanager
def progress(done: str, *, quiet: bool) -> Iterator[Progress]:
    """Yield a function that displays the progress in bytes if stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns: Any = (TextColumn(done), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True, markup=False), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda so_far, total: bar.update(task, completed=so_far, total=total)
