"""`cluster profile`: where the time of a job went."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from threads_cluster import errors, show

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Profiles: where the time of a job went, by worker and lane."
)  # fmt: skip

#: Seconds for which the cluster keeps spans.
_KEPT_SECONDS = 3600


@app.callback()
def group() -> None:
    """Keep `kernels` a command of the group: of a single one Typer would make the group itself."""


@app.command()
def kernels(
    ctx: typer.Context,
    job_id: Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")],
    output: Annotated[
        typer.FileTextWrite, typer.Option("--output", "-o", metavar="FILE", help="Where it is written; -: stdout.")
    ],
) -> None:
    """Write which lane computed a job when, for https://ui.perfetto.dev; at most an hour after it ran."""
    from threads_cluster import answers, lane_traces

    session = ctx.obj
    job = session.checked(answers.Traced, session.cluster.job(job_id))
    stream = session.checked(answers.Stream, session.cluster.stream(seconds=_KEPT_SECONDS))
    spans = lane_traces.spans_of(job["job_id"], stream)
    if not spans:
        raise errors.BadArgument(_none(job))
    json.dump(lane_traces.trace(job, stream), output)
    output.write("\n")
    _say(lane_traces.totals(spans, stream["lanes"]), stream, output.name)


def _none(job: dict[str, Any]) -> str:
    """Return why a job has no spans, and what shows more."""
    if not job.get("started"):
        what = f"job {job['job_id']} is {job['state']}, and no lane has computed it"
        return f"{what}; follow it: cluster watch {job['job_id']}"
    return (
        f"no span of job {job['job_id']} is kept: they are for an hour, and those of jobs of milliseconds that a lane"
        f" computed one after the other are one span of all; who computed it: cluster job {job['job_id']}"
    )


def _say(totals: dict[str, Any], stream: dict[str, Any], name: str) -> None:
    running = f", {totals['open']} of them at work now" if totals["open"] else ""
    show.say(
        f"{totals['leases']} leases on {totals['lanes']} lanes of {totals['workers']} workers{running},"
        f" {totals['busy_seconds']:.1f} s at work: {name}; open it in https://ui.perfetto.dev"
    )
    if stream["resolution_seconds"]:
        show.say(
            f"the cluster had too many spans: those of a lane within {stream['resolution_seconds']:g} s are joined, and"
            " the ones shared with other jobs are left out"
        )
