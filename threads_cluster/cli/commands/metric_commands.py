"""The command `cluster metrics`, which prints metrics in Prometheus's text format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeAlias

import typer

from threads_cluster.cli import show
from threads_cluster.cli.session import as_json_option
from threads_cluster.terminal import visible

Config: TypeAlias = Annotated[
    bool, typer.Option("--config", help="Print a Prometheus configuration for the running cluster of this machine.")
]
AsJson: TypeAlias = as_json_option("Print JSON, one metric per line.")  # type: ignore[valid-type]


def add_commands(app: typer.Typer) -> None:
    """Add the command to the `cluster` command."""
    app.command()(metrics)


def metrics(ctx: typer.Context, as_json: AsJson = False, config: Config = False) -> None:
    """Print job counts, job durations and host scores in Prometheus's format, under grid-cli's metric names."""
    if config:
        from threads_cluster import installation

        installation.run_server_command("metrics", ["--config"], installs=False)
    rows = ctx.obj.cluster.metrics()
    if as_json:
        show.listing(rows, lambda _rows: None, as_json=True)
        return
    for row in rows:
        for text in exposition(row):
            show.line(text)


def exposition(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of one metric in the text format of Prometheus."""
    yield f"# HELP {row['name']} {_escaped(row['help'])}"
    yield f"# TYPE {row['name']} {row['type']}"
    for sample in row["samples"]:
        labels = ",".join(f'{name}="{_label(text)}"' for name, text in sample["labels"].items())
        yield f"{sample['name']}{'{' + labels + '}' if labels else ''} {sample['value']!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _label(text: str) -> str:
    """Escape the value of a label, including control characters that a terminal would interpret."""
    return visible(_escaped(text).replace('"', '\\"'))
