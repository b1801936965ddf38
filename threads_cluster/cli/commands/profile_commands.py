"""The command `cluster profile`, which records measurements of hosts and GPUs, and writes traces of jobs."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TypeAlias

import typer

from threads_cluster import errors
from threads_cluster.cli import formatting, show
from threads_cluster.cli.session import AsJson, Session, Tenant, command_group, time_parser

app = command_group("Record the activity of hosts and GPUs, and trace jobs by worker and lane.")

#: Retention of tracing spans in seconds.
_KEPT_SECONDS = 3600
#: Seconds of waiting after which the command prints its progress. Most recordings arrive sooner.
QUIET_SECONDS = 3.0

Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The profile's name.")]
Wait: TypeAlias = Annotated[
    bool, typer.Option("--wait", help="Wait until workers have sent their recordings, and show the progress.")
]


@app.command()
def start(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The profile's name; default: the current time.")
    ] = None,
    hz: Annotated[float | None, typer.Option(metavar="N", help="Samples per second, 1 to 100; default: 10.")] = None,
    hosts: Annotated[
        str | None, typer.Option(metavar="HOST,HOST", help="Record only these hosts; see cluster hosts. Default: all.")
    ] = None,
    job: Annotated[str | None, typer.Option(metavar="ID", help="Stop when this job ends.")] = None,
    for_: Annotated[
        int | None,
        typer.Option(
            "--for", metavar="TIME", parser=time_parser("15m"), help="Stop after 90s, 15m, 2h; default: 1h, at most 1d."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Record hosts and GPUs from now on until `cluster profile stop`."""
    if hz is not None and not hz.is_integer():
        raise typer.BadParameter(f"must be a whole number from 1 to 100; got {hz:g}", param_hint="'--hz'")
    name = name or time.strftime("%Y-%m-%d-%H%M%S")
    wanted = [host for host in (hosts or "").split(",") if host]
    row = ctx.obj.cluster.profiles.start(name, hz=None if hz is None else int(hz), hosts=wanted, job=job, seconds=for_)
    if as_json:
        show.json_line(row)
        return
    show.line(f"{row['name']} is recording {row['hz']} samples/s until {row['ends']}")
    show.say(f"Stop it earlier with: cluster profile stop {row['name']}")


@app.command()
def stop(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The profile's name; default: the only profile that is recording."),
    ] = None,
    tenant: Tenant = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until workers have sent their recordings (default).")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Stop recording, and wait until workers have sent their recordings."""
    profiles = ctx.obj.cluster.profiles
    row = profiles.stop(name or _find_recording(profiles.list(tenant=tenant)), tenant=tenant)
    _print_state(ctx.obj, _wait_until_done(ctx.obj, row, tenant) if wait else row, as_json=as_json)


def _find_recording(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the name of the only profile that is recording. Raise BadArgument if there is none, or several."""
    names = [str(row["name"]) for row in rows if row["state"] == "recording"]
    if len(names) == 1:
        return names[0]
    if not names:
        raise errors.BadArgument("no profile is recording; start one with: cluster profile start")
    raise errors.BadArgument(
        f"several profiles are recording: {', '.join(names)}; stop one with: cluster profile stop {names[0]}"
    )


@app.command()
def recover(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The profile's name; default: all finished profiles.")
    ] = None,
    tenant: Tenant = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Collect missing recordings of a profile again, for example from workers that were offline when it stopped."""
    profiles = ctx.obj.cluster.profiles
    names = [name] if name else [row["name"] for row in profiles.list(tenant=tenant) if _may_lack(row)]
    if not names:
        show.say("No known recording is missing. Name a profile to search for unknown ones.")
    for each in names:
        row = profiles.recover(each, tenant=tenant)
        _print_state(ctx.obj, _wait_until_done(ctx.obj, row, tenant) if wait else row, as_json=as_json)


def _may_lack(row: Mapping[str, Any]) -> bool:
    return row["state"] == "done" and any(one["state"] != "kept" for one in row["recordings"])


def _wait_until_done(session: Session, row: dict[str, Any], tenant: str | None = None) -> dict[str, Any]:
    """Wait until workers have sent all recordings of a profile, and return the profile. Prints the progress on
    stderr.
    """
    said, now, began = "", row, time.monotonic()
    try:
        for now in session.cluster.profiles.follow(row["name"], tenant=tenant):
            text = _progress(now)
            if text != said and now["state"] != "done" and time.monotonic() - began >= QUIET_SECONDS:
                show.say(text)
                said = text
    except KeyboardInterrupt:
        show.say(f"workers are still sending recordings; see the progress with: cluster profile status {row['name']}")
        raise typer.Exit(errors.INTERRUPTED) from None
    return now


def _progress(row: Mapping[str, Any]) -> str:
    kept = sum(one["state"] == "kept" for one in row["recordings"])
    text = f"{row['name']} is {row['state']}: {kept} of {len(row['recordings'])} recordings have arrived"
    return f"{text}; {row['trouble']}" if row["trouble"] else text


def _print_state(session: Session, row: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        show.json_line(row)
        return
    show.line(f"{row['name']} {row['state']}")
    if row["state"] == "done":
        show.say(f"Analyze it with: cluster profile analyze {row['name']} --plot {row['name']}.pdf")
    else:
        show.say(f"Show the progress with: cluster profile status {row['name']}")


@app.command()
def status(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The profile's name; default: the latest profile.")
    ] = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Show the progress of a profile: samples, bytes and state of each recording."""
    profiles = ctx.obj.cluster.profiles
    if name is None:
        row = next(iter(profiles.list(tenant=tenant)), None)
        if row is None:
            show.say(_NONE)
            return
    else:
        row = profiles.get(name, tenant=tenant)
    show.json_line(row) if as_json else _show(row)


_NONE = "No profiles. Start one with: cluster profile start"


def _show(row: Mapping[str, Any]) -> None:
    show.pairs(
        {
            "name": row["name"],
            "state": row["state"],
            "samples/s": row["hz"],
            "hosts": ", ".join(row["hosts"]),
            "job": row["job_id"],
            "started": row["created"],
            "ends": row["ends"],
            "ended": row["ended"],
            "artifact": row["artifact_id"],
            "trouble": row["trouble"],
        }
    )
    if row["recordings"]:
        show.line("")
        show.table(row["recordings"], _RECORDINGS)


_RECORDINGS: show.Columns = {
    "host": "host",
    "worker": "worker",
    "devices": lambda one: len(one["devices"]),
    "state": "state",
    "time": lambda one: formatting.duration(one["seconds"]),
    "samples": "samples",
    "missed": "missed",
    "size": lambda one: formatting.size(one["bytes"]),
    "own CPU": lambda one: formatting.percent(one["cpu_seconds"] / one["seconds"]) if one["seconds"] else "",
    "ended": "ended",
}


@app.command("list")
def list_profiles(ctx: typer.Context, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """List profiles, newest first."""
    show.listing(ctx.obj.cluster.profiles.list(tenant=tenant), _PROFILES, as_json=as_json, none=_NONE)


_PROFILES: show.Columns = {
    "name": "name",
    "state": "state",
    "samples/s": "hz",
    "recordings": lambda row: len(row["recordings"]),
    "samples": "samples",
    "missed": "missed",
    "size": lambda row: formatting.size(row["bytes"]),
    "started": lambda row: formatting.age(row["created"]),
}


@app.command()
def delete(ctx: typer.Context, name: Name, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Delete a profile and its recordings. A running profile is stopped."""
    ctx.obj.cluster.profiles.delete(name, tenant=tenant)
    show.json_line({"name": name, "deleted": True}) if as_json else show.line(f"{name} deleted")


@app.command()
def analyze(
    ctx: typer.Context,
    what: Annotated[
        str | None, typer.Argument(metavar="NAME|FILE", help="A profile, a recording, or a folder of recordings.")
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="FILE", help="Same as the argument FILE.")] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw a plot into this PDF, PNG or SVG file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Summarize each host and GPU: utilization, memory, power, energy, bandwidth, idle time.

    Waits if recordings are still being collected.
    """
    from threads_cluster.profiling import profile_analysis, profile_plots

    if (what is None) == (data is None):
        raise typer.BadParameter("must be the name of a profile, or a file", param_hint="'NAME|FILE'")
    if plot is not None:
        profile_plots.check(plot)
    with TemporaryDirectory() as folder:
        recorded = profile_analysis.read(_place(ctx.obj, str(what or data), Path(folder)))
    summary = profile_analysis.summary(recorded)
    show.json_line(summary) if as_json else _summary(summary)
    if plot is not None:
        try:
            profile_plots.write(recorded, plot)
        except OSError as error:
            raise errors.BadArgument(f"--plot: {plot} cannot be written: {error.strerror}") from None
        show.say(f"drawn: {plot}")


def _place(session: Session, what: str, folder: Path) -> Path:
    """Return the path of recordings. If `what` is not an existing path, download the recordings of the profile
    `what`.
    """
    if Path(what).exists():
        return Path(what)
    if "/" in what or what.endswith((".jsonl", ".gz")):
        raise errors.BadArgument(f"file {what} does not exist")
    profiles = session.cluster.profiles
    row = profiles.get(what)
    if row["state"] == "collecting":
        _wait_until_done(session, row)
    profiles.fetch(what, folder)
    return folder


def _summary(summary: Mapping[str, Any]) -> None:
    energy = summary["energy_joules"]
    show.pairs(
        {
            "profile": summary["name"],
            "time": formatting.duration(summary["seconds"]),
            "energy": "" if energy is None else formatting.format_si(energy, "J"),
        }
    )
    show.line("")
    columns = (
        "device",
        "samples",
        "missed",
        "used mean",
        "p95",
        "idle",
        "memory",
        "most",
        "power",
        "most",
        "energy",
        "received",
        "sent",
        "read",
        "written",
    )
    show.rows(columns, [_device(row) for row in summary["devices"]])


def _device(row: Mapping[str, Any]) -> list[Any]:
    used, memory, power = row["utilization"] or {}, row["memory_bytes"] or {}, row["power_watts"] or {}
    flows = [row[name] for name in ("receive", "transmit", "read", "write")]
    return [
        row["title"],
        row["samples"],
        row["missed"],
        formatting.percent(used.get("mean")),
        formatting.percent(used.get("p95")),
        formatting.percent(row["idle_ratio"]),
        formatting.size(memory.get("mean")),
        formatting.size(memory.get("max")),
        _scaled(power.get("mean"), "W"),
        _scaled(power.get("max"), "W"),
        _scaled(row["energy_joules"], "J"),
        *(_scaled((flow or {}).get("mean"), "B/s") for flow in flows),
    ]


def _scaled(value: float | None, unit: str) -> str:
    return "" if value is None else formatting.format_si(value, unit)


@app.command()
def kernels(
    ctx: typer.Context,
    job_id: Annotated[str, typer.Argument(metavar="JOB", help="The job's ID.")],
    output: Annotated[
        typer.FileTextWrite, typer.Option("--output", "-o", metavar="FILE", help="Output file, or - for stdout.")
    ],
) -> None:
    """Write a job's timeline by lane for https://ui.perfetto.dev. Available for an hour after the job ran."""
    from threads_cluster.profiling import lane_traces

    session = ctx.obj
    job = session.cluster.job(job_id)
    stream = session.cluster.stream(seconds=_KEPT_SECONDS)
    spans = lane_traces.spans_of(job["job_id"], stream)
    if not spans:
        raise errors.BadArgument(_none(job))
    json.dump(lane_traces.trace(job, stream), output)
    output.write("\n")
    _print_totals(lane_traces.totals(spans, stream["lanes"]), stream, output.name)


def _none(job: dict[str, Any]) -> str:
    """Explain why a job has no spans, and suggest a command that shows more."""
    if not job.get("started"):
        what = f"job {job['job_id']} is {job['state']}, and no lane has computed it"
        return f"{what}; watch it with: cluster watch {job['job_id']}"
    return (
        f"no spans of job {job['job_id']} are stored: spans are kept for an hour, and very short jobs "
        f"share one span; show the job's workers with: cluster job {job['job_id']}"
    )


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _print_totals(totals: dict[str, Any], stream: dict[str, Any], name: str) -> None:
    running = f", {totals['open']} of them running now" if totals["open"] else ""
    leases, lanes, workers = (_count(totals[f"{one}s"], one) for one in ("lease", "lane", "worker"))
    show.say(
        f"{leases} on {lanes} of {workers}{running}, {totals['busy_seconds']:.1f} s busy: {name}; "
        "open this file in https://ui.perfetto.dev"
    )
    if stream["resolution_seconds"]:
        show.say(
            f"The cluster had too many spans, so spans of a lane within {stream['resolution_seconds']:g} "
            "s are merged, and spans shared with other jobs are omitted."
        )
