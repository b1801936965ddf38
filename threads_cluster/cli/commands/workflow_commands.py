"""The command `cluster workflow`, which submits, follows, approves, cancels and retries workflows."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeAlias

import typer

from threads_cluster import errors
from threads_cluster.cli import show
from threads_cluster.cli.session import AsJson, command_group

app = command_group("Workflows: graphs of jobs, approvals and artifacts, defined in one file.")

Id: TypeAlias = Annotated[str, typer.Argument(metavar="WORKFLOW", help="The workflow's ID.")]
File: TypeAlias = Annotated[
    Path, typer.Argument(metavar="FILE", help="YAML or JSON file of the workflow, or - for stdin.")
]

#: Maximum size in bytes of a workflow file. The API has the same limit.
MAX_BYTES = 4 << 20
#: Maximum number of actions that `status` lists by default.
#: Maximum number of problems that are printed.
_LISTED, _PROBLEMS = 40, 20
#: Order in which states are printed. _NOTABLE contains states whose actions are listed even for large workflows.
_ORDER = (
    "done",
    "running",
    "finishing",
    "queued",
    "blocked",
    "approval",
    "waiting",
    "paused",
    "failed",
    "cancelling",
    "cancelled",
    "skipped",
)
_NOTABLE = frozenset({"running", "finishing", "approval", "failed", "cancelled", "paused", "cancelling"})


@app.command()
def submit(
    ctx: typer.Context,
    file: File,
    wait: Annotated[bool, typer.Option("--wait", help="Show the progress until the workflow ends.")] = False,
    notify: Annotated[
        str | None, typer.Option(metavar="URL", help="Send a signed POST to this URL when the workflow ends.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Submit a workflow. With --wait, the exit code is 1 unless all actions are done. Ctrl-C leaves it running."""
    try:
        row = ctx.obj.cluster.workflows.submit(_text(file), notify=notify)
    except errors.ApiError as error:
        refuse(file, error)
    if not wait:
        show.json_line(row) if as_json else show.line(row["workflow_id"])
        if not as_json:
            show.say(f"{_actions(row['total'])}; watch it with: cluster workflow status {row['workflow_id']} --wait")
        return
    show.say(f"workflow {row['workflow_id']}: {_actions(row['total'])}")
    follow(ctx, row["workflow_id"], as_json=as_json)


@app.command()
def validate(ctx: typer.Context, file: File, as_json: AsJson = False) -> None:
    """Print all problems of a workflow as FILE:LINE:COLUMN, without submitting it."""
    found = ctx.obj.cluster.workflows.validate(_text(file))
    if as_json:
        show.json_line(found)
    elif found["valid"]:
        show.line(f"{found['name']}: {_actions(found['actions'])} in {found['layers']} layers, valid")
        _print_problems(file, found["notes"], len(found["notes"]) + found.get("more", 0))
    else:
        _print_problems(file, found["problems"], len(found["problems"]) + found.get("more", 0))
    if not found["valid"]:
        raise typer.Exit(errors.REFUSED)


@app.command()
def status(
    ctx: typer.Context,
    workflow: Id,
    actions: Annotated[bool, typer.Option("--actions", help="List all actions, even of large workflows.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Show the progress until the workflow ends.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a workflow: its layers and actions, failures, and pending approvals."""
    if wait:
        follow(ctx, workflow, as_json=as_json)
    course = ctx.obj.cluster.workflows.get(workflow)
    if as_json:
        show.json_line(course)
        return
    show.pairs(
        {
            "name": course["name"],
            "workflow": course["workflow_id"],
            "state": course["state"],
            "created": course["created"],
            "ended": course["ended"],
            "attempt": course["attempt"],
            "actions": _format_counts(course["counts"]),
            "waits for": course.get("waiting_because"),
            "error": course.get("error"),
            "services": ", ".join(course["services"]),
            "notifies": course.get("notify"),
        }
    )
    _print_layers(course["actions"])
    _print_actions(course, everything=actions)
    _report_services(course)


@app.command("list")
def list_workflows(
    ctx: typer.Context,
    limit: Annotated[
        int, typer.Option(min=1, metavar="COUNT", help="Maximum number of workflows to list, newest first.")
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """List workflows, newest first."""
    rows = list(ctx.obj.cluster.workflows.list(limit))
    show.listing(rows, _COLUMNS, as_json=as_json, none="No workflows. Submit one with: cluster workflow submit FILE")


@app.command()
def cancel(ctx: typer.Context, workflow: Id, as_json: AsJson = False) -> None:
    """Cancel a workflow and its jobs. Finished actions stay done, and retry continues from there."""
    _print_state(ctx.obj.cluster.workflows.cancel(workflow), as_json=as_json)


@app.command()
def retry(ctx: typer.Context, workflow: Id, as_json: AsJson = False) -> None:
    """Retry the failed actions of a workflow that failed or was cancelled."""
    row = ctx.obj.cluster.workflows.retry(workflow)
    for note in row.get("notes", []):
        show.say(note)
    _print_state(row, as_json=as_json)


@app.command()
def approve(
    ctx: typer.Context,
    workflow: Id,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="The action that waits for approval.")],
    as_json: AsJson = False,
) -> None:
    """Approve an action that waits for a person."""
    row = ctx.obj.cluster.workflows.approve(workflow, action)
    show.json_line(row) if as_json else show.line(f"{action} approved")


@app.command()
def reject(
    ctx: typer.Context,
    workflow: Id,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="The action that waits for approval.")],
    as_json: AsJson = False,
) -> None:
    """Reject an action that waits for a person. The action fails; a retry of the workflow asks again."""
    row = ctx.obj.cluster.workflows.reject(workflow, action)
    show.json_line(row) if as_json else show.line(f"{action} rejected")


@app.command()
def delete(ctx: typer.Context, workflow: Id) -> None:
    """Delete a workflow that has ended. Its jobs stay until they expire."""
    ctx.obj.cluster.workflows.delete(workflow)
    show.line(f"{workflow} deleted")


def _text(file: Path) -> bytes:
    try:
        source = sys.stdin.buffer if str(file) == "-" else file.open("rb")
        with source:
            text = source.read(MAX_BYTES + 1)
    except OSError as error:
        raise errors.BadArgument(f"{file} cannot be read: {error.strerror}") from None
    if len(text) > MAX_BYTES:
        raise errors.BadArgument(f"{file} has over {MAX_BYTES} bytes, which is the maximum for a workflow")
    return text


def refuse(file: Path, error: errors.ApiError) -> NoReturn:
    """Print all problems of a workflow file and exit. Other errors are raised again."""
    problems = error.problem.get("problems")
    if not isinstance(problems, list) or not problems:
        raise error
    more = error.problem.get("more")
    _print_problems(file, problems, len(problems) + (more if isinstance(more, int) else 0), to_stderr=True)
    raise typer.Exit(errors.REFUSED)


def _print_problems(file: Path, problems: Sequence[Any], total: int, *, to_stderr: bool = False) -> None:
    """Print problems in the format of compilers. Editors can then jump to the line of each problem."""
    write = show.say if to_stderr else show.line
    for one in problems[:_PROBLEMS]:
        row = one if isinstance(one, Mapping) else {}
        of = ": ".join(str(part) for part in (row.get("action"), row.get("field")) if part)
        write(f"{file}:{row.get('line')}:{row.get('column')}: {f'{of}: ' if of else ''}{row.get('detail')}")
    if total > _PROBLEMS:
        show.say(f"and {total - _PROBLEMS} more")


def print_started(ctx: typer.Context, row: Mapping[str, Any], *, wait: bool, as_json: bool) -> None:
    """Print the ID of a workflow that was started. With `wait`, report its progress until it ends."""
    show.json_line(row) if as_json else show.line(row["task_id"])
    follow_or_suggest(ctx, row["task_id"], wait=wait, as_json=as_json)


def follow_or_suggest(ctx: typer.Context, workflow: str, *, wait: bool, as_json: bool) -> None:
    """Report the progress of a workflow if `wait` is true. Otherwise, suggest a command that does this."""
    if wait:
        follow(ctx, workflow, as_json=as_json)
    elif not as_json:
        show.say(f"Watch it with: cluster workflow status {workflow} --wait")


def follow(ctx: typer.Context, workflow: str, *, as_json: bool) -> NoReturn:
    """Report the progress of a workflow until it ends. Then exit with the exit code for its final state."""
    said, course = "", {}
    try:
        for course in ctx.obj.cluster.workflows.follow(workflow):
            line = f"{course['state']}: {_format_counts(_states(course['actions']))}"
            if line != said and course["state"] not in ("done", "failed", "cancelled"):
                show.say(line)
                for action in _waiting_for_people(course["actions"]):
                    show.say(f"next: cluster workflow approve {workflow} {action}")
                    show.say(f"or: cluster workflow reject {workflow} {action}")
            said = line
    except KeyboardInterrupt:
        show.say(f"the workflow keeps running; watch it with: cluster workflow status {workflow} --wait")
        raise typer.Exit(errors.INTERRUPTED) from None
    if as_json:
        show.json_line(course)
    else:
        show.line(f"{course['name']} {course['state']}: {_format_counts(_states(course['actions']))}")
        if course["state"] != "done":
            _print_actions(course, everything=False)
            _report_services(course)
            show.say(f"next: cluster workflow retry {workflow}")
    raise typer.Exit(0 if course["state"] == "done" else errors.JOB_FAILED)


def _report_services(course: Mapping[str, Any]) -> None:
    """Report the services of a failed or cancelled workflow that still use memory and GPUs."""
    if course["state"] in ("failed", "cancelled"):
        for name in course["services"]:
            show.say(f"service {name} is still running; delete it with: cluster service delete {name}")


def _waiting_for_people(actions: Sequence[Mapping[str, Any]]) -> list[str]:
    return [action["action_id"] for action in actions if action["state"] == "approval"]


def _states(actions: Sequence[Mapping[str, Any]]) -> Counter[str]:
    return Counter(action["state"] for action in actions)


def _format_counts(counts: Mapping[str, int]) -> str:
    known = sorted(counts.items(), key=lambda pair: (_ORDER.index(pair[0]) if pair[0] in _ORDER else 99, pair[0]))
    return ", ".join(f"{count} {state}" for state, count in known if count)


def _actions(count: int) -> str:
    return "1 action" if count == 1 else f"{count} actions"


def layers(actions: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Group actions into layers by the number of actions that must finish before. `actions` are in topological
    order.
    """
    depth: dict[str, int] = {}
    by_depth: list[list[Mapping[str, Any]]] = []
    for action in actions:
        before = (*action["dependencies"], *action["after_any"])
        at = depth[action["action_id"]] = 1 + max((depth.get(name, 0) for name in before), default=0)
        while len(by_depth) < at:
            by_depth.append([])
        by_depth[at - 1].append(action)
    return by_depth


def _print_layers(actions: Sequence[Mapping[str, Any]]) -> None:
    by_depth = layers(actions)
    if len(by_depth) < 2:
        return
    show.line("")
    first, last = 12, 3
    lines = [(number, len(layer), _format_counts(_states(layer))) for number, layer in enumerate(by_depth, 1)]
    shown = lines if len(lines) <= first + last + 2 else [*lines[:first], *lines[-last:]]
    show.rows(("layer", "actions", "states"), shown)
    if len(shown) < len(lines):
        show.say(f"{len(lines) - len(shown)} layers are not shown; print all with --json")


def _print_actions(course: Mapping[str, Any], *, everything: bool) -> None:
    actions = course["actions"]
    chosen = actions if everything or len(actions) <= _LISTED else [a for a in actions if a["state"] in _NOTABLE]
    if not chosen:
        return
    show.line("")
    most = len(chosen) if everything else _LISTED
    show.rows(("action", "type", "state", "job", "why"), [_action_cells(action) for action in chosen[:most]])
    if len(chosen) > most or len(chosen) < len(actions):
        show.say(f"List all actions with: cluster workflow status {course['workflow_id']} --actions")


def _action_cells(action: Mapping[str, Any]) -> tuple[Any, ...]:
    items, progress = action.get("items"), action.get("progress")
    state = action["state"]
    if items and items["total"]:
        state = f"{state} {items['done']}/{items['total']}"
    elif state == "running" and progress is not None:
        state = f"{state} {progress:.0%}"
    question = action.get("message") if state == "approval" else None
    why = action.get("error") or action.get("waiting_because") or question
    return (action["action_id"], action["action_type"], state, action.get("job_id"), why)


_COLUMNS: show.Columns = {
    "workflow": "workflow_id",
    "name": "name",
    "state": "state",
    "actions": lambda row: _format_counts(row["counts"]),
    "created": "created",
}


def _print_state(row: Mapping[str, Any], *, as_json: bool) -> None:
    show.json_line(row) if as_json else show.line(f"{row['workflow_id']} {row['state']}")
