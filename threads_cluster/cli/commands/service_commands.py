"""The commands `cluster serve`, `cluster services` and `cluster service`, for models and programs that keep running."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from threads_cluster import errors
from threads_cluster.cli import model_files, show
from threads_cluster.cli.commands import artifact_commands, engine_commands, program_commands
from threads_cluster.cli.session import AsJson, Tenant, command_group
from threads_protocol import hub, ports

app = command_group("Manage services. List them with: cluster services")

Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The service's name.")]
EXAMPLES = """\b
Examples:
  cluster serve model.gguf --wait
  cluster serve model.gguf --name chat --replicas 2 --context 8192 --gpus 1
  cluster serve dask --replicas 4
  cluster serve --engine http --name web -- python3 -m http.server {port} --bind {address}
"""
#: Pattern of characters that a service name cannot contain.
_OTHERS = re.compile(r"[^a-z0-9]+")
_MOST_NAME = 63
_WHOLE_ID = re.compile(r"[0-9a-f]{64}")
_SUFFIX, _GGUF = ".gguf", b"GGUF"
_FETCHED = (
    "download a model with: cluster model download NAME --source hf://ORG/REPO/FILE; list models "
    "with: cluster model list"
)
#: Name of an engine that needs no model. Users can pass it to `cluster serve` in place of a model.
DASK = "dask"


def add_commands(cluster: typer.Typer) -> None:
    """Add the commands for services to the `cluster` command."""
    cluster.command(epilog=EXAMPLES)(serve)
    cluster.command()(services)
    cluster.add_typer(app, name="service")


def serve(
    ctx: typer.Context,
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL|FILE|dask | -- CMD...", help="Name or file of the model; or, after --, a program."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the service; default: derived from the model's name.")
    ] = None,
    engine: Annotated[
        str, typer.Option(metavar="ENGINE", help="Engine; default: chosen by the model's files. Use http for programs.")
    ] = "",
    replicas: Annotated[
        int | None, typer.Option(min=0, metavar="COUNT", help="Number of replicas; default: 1.")
    ] = None,
    context: Annotated[
        int | None, typer.Option(min=1, metavar="TOKENS", help="Maximum tokens of prompt and response together.")
    ] = None,
    parallel: Annotated[
        int | None, typer.Option(min=1, metavar="COUNT", help="Number of requests that a replica processes at once.")
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option("--parameter", "-p", metavar="NAME=VALUE", help="Other parameter of the engine. Repeat for more."),
    ] = None,
    gpus: Annotated[int | None, typer.Option(metavar="NUMBER", help="GPUs of each replica; default: none.")] = None,
    gpu_memory: Annotated[int | None, typer.Option(metavar="MIB", help="Minimum memory of each GPU.")] = None,
    cpus: Annotated[float | None, typer.Option(metavar="NUMBER", help="CPUs of each replica.")] = None,
    memory: Annotated[int | None, typer.Option(metavar="MIB", help="Memory limit of each replica.")] = None,
    host: Annotated[str | None, typer.Option(metavar="HOST", help="Run only on this host; see cluster hosts.")] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="Run only on runners with this label. Repeat for more.")
    ] = None,
    files: Annotated[
        str | None, typer.Option(metavar="DIR|ARTIFACT", help="With --engine http: contents of the program's folder.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="Request timeout; default: 300.")] = None,
    idle: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Stop all replicas after this time without requests; the next request starts one."
        ),
    ] = None,
    autoscale: Annotated[
        str | None, typer.Option(metavar="MIN:MAX", help="Scale between these numbers of replicas by open requests.")
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(metavar="COUNT", help="With --autoscale: target number of requests per replica; default: 4."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Continue even if the weights exceed every runner's memory.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, metavar="PORT", help="Not used; requests go to /v1 of the cluster.", hidden=True
        ),
    ] = None,
    install: Annotated[
        bool, typer.Option("--install", help="Let runners download gigabytes of packages if the engine needs them.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until every replica is ready; Ctrl-C does not stop the service.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Serve a model or a program until it is stopped. Models are served with OpenAI's API at /v1.

    A model file is uploaded first, unless the cluster has it.
    """
    if what == [DASK] and not engine and not Path(DASK).exists():
        engine = DASK
    model, given = _parse_arguments(what or [], engine, files)
    name = name or _name(model or engine)
    parameters = {"context": context, "parallel": parallel, **given, **_parameters(parameter or ())}
    requirements = {
        "gpus": gpus,
        "gpu_memory_mib": gpu_memory,
        "cpus": cpus,
        "memory_mib": memory,
        "host": host,
        "labels": label or None,
    }
    scaled = _autoscale(autoscale, target)
    _check_file(model)
    if not install and (large := engine or _large_engine(ctx, model, gpus)):
        engine_commands.confirm_download(ctx, large)
    row = ctx.obj.cluster.services.serve(
        name,
        engine,
        model=_upload_model(ctx, model, "" if engine == "http" else name, as_json=as_json),
        replicas=replicas,
        parameters=_without_none(parameters),
        requirements=_without_none(requirements),
        request_timeout_seconds=timeout,
        idle_seconds=idle,
        autoscale=scaled,
        force=force or None,
    )
    memory = row.get("asked", {}).get("memory")
    if isinstance(memory, dict) and isinstance(memory.get("words"), str):
        show.say(f"memory of a replica: {memory['words']}")
    if port is not None:
        show.say(f"note: {ports.explain_unused(port)}")
    if wait:
        row = _follow(ctx, row["name"])
    if as_json:
        show.json_line(row)
        return
    show.line(f"{row['name']} {_state(row)}")
    show.say(_usage_hint(row["name"], row["engine"], ctx.obj.cluster.url))


def _usage_hint(name: str, engine: str, url: str) -> str:
    if engine == DASK:
        asked = f'Use it from Python: with Cluster().dask(name="{name}") as client: ...'
        return f"{asked}   Open its dashboard with: cluster service open {name}"
    return f"Send requests to {url}/v1 with a token that has the scope infer."


def _autoscale(text: str | None, target: float | None) -> dict[str, Any] | None:
    """Parse MIN:MAX, the minimum and maximum number of replicas for autoscaling."""
    if text is None:
        if target is not None:
            raise typer.BadParameter("needs --autoscale MIN:MAX", param_hint="'--target'")
        return None
    least, colon, most = text.partition(":")
    if not (colon and least.isdecimal() and most.isdecimal()):
        raise typer.BadParameter(f"must be MIN:MAX, such as 1:4; got {text!r}", param_hint="'--autoscale'")
    return {"min": int(least), "max": int(most)} | ({} if target is None else {"target": target})


def _parse_arguments(words: Sequence[str], engine: str, files: str | None) -> tuple[str | None, dict[str, Any]]:
    """Return the model or the files, and the engine's parameters, from the command-line arguments."""
    if engine == "http":
        if not words:
            raise typer.BadParameter("needs a program after --, as in: -- ./server --port {port}", param_hint="CMD")
        return files, {"command": list(words)}
    if engine == DASK:
        if words not in ([], [DASK]):
            raise typer.BadParameter("does not apply to the engine dask; remove it", param_hint="MODEL")
        return None, {}
    if files is not None:
        raise typer.BadParameter("applies only to --engine http; pass the model as MODEL", param_hint="'--files'")
    if len(words) != 1:
        raise typer.BadParameter("must be one artifact, or one file such as model.gguf", param_hint="MODEL")
    return words[0], {}


def _parameters(texts: Sequence[str]) -> dict[str, Any]:
    """Parse texts of the form NAME=VALUE. A value is parsed as JSON if possible."""
    found: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not (name and sign):
            raise typer.BadParameter(f"must be NAME=VALUE; got {text!r}", param_hint="'--parameter'")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _large_engine(ctx: typer.Context, model: str | None, gpus: int | None) -> str:
    """Return the engine for a model if its packages are large. Otherwise, return ""."""
    if model is None:
        return ""
    paths = _paths(ctx, model)
    if any(path.endswith(".gguf") for path in paths) or not any(path.endswith(".safetensors") for path in paths):
        return ""
    return "vllm" if gpus else "transformers"


def _paths(ctx: typer.Context, model: str) -> list[str]:
    """Return the file names of a local or stored model. If the token cannot list them, return an empty list."""
    place = Path(model)
    if place.exists():
        return [path.name for path in place.rglob("*")] if place.is_dir() else [place.name]
    try:
        return [entry.path for entry in ctx.obj.cluster.artifacts.files(model)]
    except errors.ApiError:  # The request to serve the model reports the error
        return []


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _name(model: str) -> str:
    """Derive the name of a service from the file name of a model."""
    found = _OTHERS.sub("-", Path(model).name.lower().removesuffix(".gguf")).strip("-")[:_MOST_NAME].strip("-")
    if not found:
        raise typer.BadParameter(f"is required, because no name can be derived from {model!r}", param_hint="'--name'")
    return found


def _check_file(model: str | None) -> None:
    """Raise BadArgument if a model is clearly a local file, but the file does not exist or is not in GGUF format."""
    if model is None or not (model.endswith(".gguf") or "/" in model):
        return
    path = Path(model)
    if not path.exists():
        raise errors.BadArgument(f"file {model} does not exist; {_suggest_download(model)}")
    if path.is_file() and path.suffix == _SUFFIX:
        _check_magic(path)


def _suggest_download(model: str) -> str:
    """Return advice on how to get a model that is not a local file."""
    if Path(model).suffix == _SUFFIX:
        return _FETCHED
    if hub.is_model(model):
        name = hub.stored_name(model)
        return (
            f"to serve it from Hugging Face, run: cluster model download {name} --source {hub.SCHEME}{model} --wait"
            f", and then: cluster serve {name}"
        )
    return "list artifacts with: cluster artifact list"


def _check_magic(path: Path) -> None:
    """Raise BadArgument if a file does not start with the first bytes of the GGUF format."""
    try:
        with path.open("rb") as file:
            begins = file.read(len(_GGUF))
    except OSError as error:
        raise errors.BadArgument(f"{path} cannot be read: {error.strerror}") from None
    if begins != _GGUF:
        raise errors.BadArgument(
            f"{path} is not a GGUF model: it starts with {begins!r} instead of {_GGUF!r}. It may be a Git "
            "LFS pointer or an HTML page; download it again."
        )


def _upload_model(ctx: typer.Context, model: str | None, service: str, *, as_json: bool) -> str | None:
    """Return the artifact of a model. If the model is a local file or folder, upload it first.

    The artifact is named after the service, if `service` is not empty.
    """
    if model is None or not Path(model).exists():
        return model
    if service:
        return model_files.send(ctx.obj.cluster, Path(model), service, quiet=as_json)
    with artifact_commands.progress("sent", quiet=as_json) as progressing:
        answer = ctx.obj.cluster.artifacts.put(Path(model), progress=progressing)
    return str(answer["artifact"]["artifact_id"])


def _follow(ctx: typer.Context, name: str) -> dict[str, Any]:
    """Report on stderr how the replicas of a service start. Return the service when they are ready."""
    said, row = "", dict[str, Any]()
    try:
        for row in ctx.obj.cluster.services.follow(name):
            because = next((one["because"] for one in row["running"] if one.get("because")), None)
            line = f"{_state(row)}{f': {because}' if because else ''}"
            if line != said:
                show.say(line)
            said = line
    except KeyboardInterrupt:
        show.say(f"the service keeps running; stop it with: cluster service stop {name}")
        raise typer.Exit(errors.INTERRUPTED) from None
    return row


def _state(row: Mapping[str, Any]) -> str:
    ready, wanted = row["ready"], row["replicas"]
    if ready > wanted:
        return f"{row['state']}, {ready} ready, {wanted} desired"
    return f"{row['state']}, {ready} of {wanted} ready"


def services(ctx: typer.Context, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """List services with their replicas, and why a replica is not ready."""
    none = "No services. Start one with: cluster serve model.gguf"
    show.listing(ctx.obj.cluster.services.list(tenant=tenant), _table, as_json=as_json, none=none)


def _table(several: Sequence[Mapping[str, Any]]) -> None:
    columns = ("service", "engine", "replica", "state", "runner", "requests", "because")
    lines: list[list[Any]] = []
    for row in several:
        head = [row["name"], row["engine"]]
        lines += [
            [*head, one["job_id"], one["state"], one["worker"], one["requests"], one["because"]]
            for one in row["running"]
        ] or [[*head, None, row["state"], None, None, _why(row)]]
    show.rows(columns, lines)


def _why(row: Mapping[str, Any]) -> str | None:
    """Explain to the user why a service has no replica."""
    if row["state"] == "asleep":
        return "the next request starts a replica"
    if not row["last_failure"]:
        return None
    next_start = f"; the next replica starts at {row['next_start']}" if row["next_start"] else ""
    return f"the last replica died: {row['last_failure']}{next_start}{_log_of(row)}"


def _log_of(row: Mapping[str, Any]) -> str:
    """Return a hint that names the command for reading the replica's log."""
    return f"; see: cluster service logs {row['name']}"


@app.command("show")
def show_one(ctx: typer.Context, name: Name, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Show a service: its state, its recent requests, and its replicas."""
    row = ctx.obj.cluster.services.get(name, tenant=tenant)
    if as_json:
        show.json_line(row)
        return
    lately = row.get("last_minute") or {}
    show.pairs(
        {
            "service": name,
            "engine": row["engine"],
            "model": _model(row["model"]),
            "state": _state(row),
            "created": row["created"],
            "requests now": row["requests"],
            "in the last minute": lately.get("requests"),
            "last death": row["last_failure"] and f"{row['last_failure']}{_log_of(row)}",
        }
    )
    _table([row])
    show.say(_usage_hint(name, row["engine"], ctx.obj.cluster.url))


def _model(model: str | None) -> str | None:
    """Return the name of a model, or a short form of its artifact ID. Commands accept the short form."""
    return model[: artifact_commands.DIGITS] if model and _WHOLE_ID.fullmatch(model) else model


@app.command("open")
def open_page(ctx: typer.Context, name: Name, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Print a link to the service's web page, such as Dask's dashboard. Anyone with the link has your access."""
    link = ctx.obj.cluster.services.open(name, tenant=tenant)
    if as_json:
        show.json_line(link)
        return
    show.line(link["url"])
    if link["seconds"]:
        show.say(f"The link expires in {link['seconds'] // 60} minutes. It gives access to the page for 12 hours.")


@app.command()
def scale(
    ctx: typer.Context,
    name: Name,
    replicas: Annotated[int, typer.Argument(min=0, metavar="COUNT", help="Number of replicas.")],
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Change the number of replicas. A stopped service is started."""
    _print_service(ctx.obj.cluster.services.scale(name, replicas, tenant=tenant), as_json=as_json)


@app.command()
def restart(ctx: typer.Context, name: Name, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Replace all replicas, one after the other. A stopped service is started."""
    _print_service(ctx.obj.cluster.services.restart(name, tenant=tenant), as_json=as_json)


@app.command()
def stop(ctx: typer.Context, name: Name, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Stop all replicas once their open requests are answered."""
    _print_service(ctx.obj.cluster.services.stop(name, tenant=tenant), as_json=as_json)


@app.command()
def delete(ctx: typer.Context, name: Name, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Delete a service. Its replicas finish their open requests first."""
    ctx.obj.cluster.services.delete(name, tenant=tenant)
    show.json_line({"name": name, "deleted": True}) if as_json else show.line(f"{name} deleted")


@app.command()
def logs(
    ctx: typer.Context,
    name: Name,
    replica: Annotated[
        str | None,
        typer.Option(
            metavar="JOB", help="Job ID of a replica; default: the oldest replica, else the last one that died."
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stream new output.")] = False,
    tenant: Tenant = None,
) -> None:
    """Print the log of a replica, or of the last replica that died."""
    row = ctx.obj.cluster.services.get(name, tenant=tenant)
    running = [one["job_id"] for one in row["running"] if one["worker"]]
    job = replica or next(iter(running), None) or row.get("last_dead_job_id")
    if job is None:
        raise errors.BadArgument(f"no replica of {name} has started; see: cluster services")
    program_commands.logs(ctx, job, follow=follow)


def _print_service(row: Mapping[str, Any], *, as_json: bool) -> None:
    show.json_line(row) if as_json else show.line(f"{row['name']} {_state(row)}")
