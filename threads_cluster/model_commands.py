"""`cluster model`: models that are kept in the cluster, and how they get there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import typer

from threads_cluster import figures, show, workflow_commands
from threads_cluster.session import as_json_option

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None,
    help="Models: artifacts with weights and a name. `cluster artifact put FILE --name NAME` makes one of a file here.",
)  # fmt: skip

AsJson: TypeAlias = as_json_option("For programs: JSON, one object a line.")  # type: ignore[valid-type]
Name: TypeAlias = Annotated[str, typer.Argument(metavar="MODEL", help="The model's name.")]
EXAMPLES = """\b
Examples:
  cluster model download tiny --source https://example.org/tiny.gguf
  cluster model download qwen --source hf://Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf --wait
"""


@app.command(epilog=EXAMPLES)
def download(
    ctx: typer.Context,
    name: Name,
    source: Annotated[
        str, typer.Option(metavar="SOURCE", help="https://..., or hf://ORG/REPO[@REVISION][/FILE] of Hugging Face.")
    ],
    sha256: Annotated[str | None, typer.Option(metavar="HEX", help="What the file's SHA-256 must be.")] = None,
    host: Annotated[str | None, typer.Option(metavar="HOST", help="The host whose runner downloads it.")] = None,
    secret: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A secret for it, such as HF_TOKEN; see cluster secret.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until it is there; Ctrl-C leaves it running.")] = False,
    as_json: AsJson = False,
) -> None:
    """Have a runner download a model. What broke off goes on where it stopped; GGUF and safetensors alone."""
    row = ctx.obj.cluster.models.download(name, source, sha256=sha256, host=host, secrets=secret or ())
    workflow = row["workflow_id"]
    if wait:
        show.say(f"workflow {workflow} downloads {name}; Ctrl-C leaves it")
        workflow_commands.follow(ctx, workflow, as_json=as_json)
    show.json_line(row) if as_json else show.line(workflow)
    if not as_json:
        show.say(f"follow it: cluster workflow status {workflow} --wait; then: cluster serve {name}")


@app.command("list")
def list_models(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List models, newest first, and the services that have them."""
    none = (
        "no models; get one with: cluster model download NAME --source URL, or: cluster artifact put FILE --name NAME"
    )
    show.listing(ctx.obj.cluster.models.list(), _table, as_json=as_json, none=none)


def _table(several: Sequence[Mapping[str, Any]]) -> None:
    columns = ("model", "weights", "size", "created", "services")
    show.rows(columns, (
        [row["model_name"], _weights(row["weights"]), figures.size(row["bytes"]), figures.age(row["created"]),
         " ".join(row["services"]) or None]
        for row in several
    ))  # fmt: skip


def _weights(paths: Sequence[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


@app.command()
def info(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Show a model: its files, its size, and the services that have it."""
    row = ctx.obj.cluster.models.get(name)
    if as_json:
        show.json_line(row)
        return
    show.artifact(row, ctx.obj.cluster.artifacts.files(row["artifact_id"]))
    show.say(f"serve it: cluster serve {name}")


@app.command()
def delete(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Delete a model with all its names; refused while a service has it."""
    ctx.obj.cluster.models.delete(name)
    show.json_line({"model_name": name, "deleted": True}) if as_json else show.line(f"{name} deleted")
