"""Output for people: tables and results on stdout, and messages on stderr. Output for scripts uses `json_line`."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from datetime import UTC, datetime, tzinfo
from typing import Any, TypeAlias

from threads_cluster.cli import formatting, tables
from threads_cluster.command_names import name_commands
from threads_cluster.terminal import LONGEST, discard, visible

#: Maximum number of rows that are printed of a table in a result. The option --csv prints all rows.
ROWS = 10
#: Number of additional rows up to which a table is still printed completely.
SLACK = 3
#: Maximum number of sections that are printed of a list, such as the cells of a sweep.
SECTIONS = 4
#: Parts of a result that its summary omits. The user has set the parameters, and a note describes new files.
_OMITTED = frozenset({"parameters", "new_files"})
#: Maximum number of characters of a list in the parameters of a job. With --json, the whole list is printed.
_LONGEST_LIST = 200
#: Maximum number of lines in the summary of a result.
SUMMARY_LINES = 40
#: Maximum number of paths that are printed of an artifact.
PATHS = 50
#: Error in seconds of a host's clock, above which the host is marked.
CLOCK_SECONDS = 0.5
#: Maximum number of digits that are printed of an integer.
DIGITS = 60
#: Columns of a table by title. A value is the name of a field, or a function that returns the cell.
Columns: TypeAlias = Mapping[str, str | Callable[[Any], Any]]
Json: TypeAlias = dict[str, Any]


def json_line(value: Any) -> None:
    """Print a value as one line of JSON on stdout."""
    line(json.dumps(value, separators=(",", ":")))


def line(text: str) -> None:
    """Print one line on stdout."""
    print(visible(text))


def say(text: str) -> None:
    """Print a message on stderr. Errors while writing to stderr are ignored."""
    try:
        print(visible(name_commands(text)), file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def rows(columns: Sequence[str], lines: Iterable[Sequence[Any]], *, indent: int = 0, gap: str = "") -> None:
    """Print a table with aligned columns. Long lines are not wrapped, so that grep and awk can read them.

    `gap` is an extra line in the middle. Numbers are right-aligned.
    """
    table = [list(row) for row in lines]
    cells = [[format_value(cell) for cell in row] for row in (columns, *table)]
    widths = [max(len(row[number]) for row in cells) for number in range(len(columns))]
    right = [_all_numbers(row[number] for row in table) for number in range(len(columns))]
    for number, row in enumerate(cells):
        if gap and number == 1 + len(table) // 2:
            line(gap)
        shown = (
            cell.rjust(width) if by else cell.ljust(width) for cell, width, by in zip(row, widths, right, strict=True)
        )
        line(" " * indent + "  ".join(shown).rstrip())


def table(several: Iterable[Mapping[str, Any]], columns: Columns) -> None:
    """Print a table with one line for each record."""
    cells = columns.values()
    rows(list(columns), [[row.get(cell) if isinstance(cell, str) else cell(row) for cell in cells] for row in several])


def listing(
    several: Sequence[Mapping[str, Any]], people: Callable[[Any], None] | Columns, *, as_json: bool, none: str = ""
) -> None:
    """Print records as lines of JSON or as a table. If there are no records, print the message `none` on stderr."""
    if as_json:
        for row in several:
            json_line(row)
    elif not several and none:
        say(none)
    elif isinstance(people, Mapping):
        table(several, people)
    else:
        people(several)


def pairs(facts: Mapping[str, Any], indent: int = 0) -> None:
    """Print lines with a name and a value. Empty values are omitted."""
    kept = {format_value(name): format_value(value) for name, value in facts.items() if value not in (None, "", [], {})}
    width = max(map(len, kept), default=0)
    for name, value in kept.items():
        line(f"{' ' * indent}{name:<{width}}  {value}")


def format_value(value: Any) -> str:
    """Format a value or a short list for people. Floats get six digits, and very long texts are shortened."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return " ".join(format_value(item) for item in value)
    if isinstance(value, Mapping):
        return visible(json.dumps(value), LONGEST)
    text = str(value)
    if len(text) > DIGITS and text.lstrip("-").isdigit():
        return f"{text[:20]}...{text[-20:]} ({len(text.lstrip('-'))} digits)"
    return visible(text, LONGEST)


def result(answer: Mapping[str, Any]) -> None:
    """Print the sections of a result. For a long table, print some rows and a command that prints all rows."""
    if answer.get("partial"):
        say(f"partial: {format_value(answer.get('units'))} of {format_value(answer.get('total'))} units")
    value = answer["result"]
    _section(value if isinstance(value, Mapping) else {"result": value}, str(answer["job_id"]), (), 0)


def summary(answer: Mapping[str, Any]) -> None:
    """Print the most important lines of a result, and the command that prints all of it.

    Parameters and long tables are omitted, and at most SUMMARY_LINES lines are printed.
    """
    whole = answer["result"]
    kept = _without_tables({name: part for name, part in whole.items() if name not in _OMITTED}) if whole else whole
    with redirect_stdout(io.StringIO()) as text:
        result({**answer, "result": kept})
    lines = text.getvalue().splitlines()
    for each in lines[:SUMMARY_LINES]:
        print(each)
    if len(lines) > SUMMARY_LINES or any(kept.get(name) != whole[name] for name in whole if name != "new_files"):
        sys.stdout.flush()
        say(f"Print the complete result with: cluster result {answer['job_id']}")


def _without_tables(value: Mapping[str, Any]) -> Json:
    """Return a result without long lists, and without parts that then contain no numbers."""
    kept: Json = {}
    for name, part in value.items():
        if isinstance(part, Mapping):
            inner = _without_tables(part)
            if len(inner) == len(part) or any(not isinstance(each, str) for each in inner.values()):
                kept[name] = inner
        elif not isinstance(part, list):
            kept[name] = part
        elif len(part) <= ROWS + SLACK:
            kept[name] = [_without_tables(each) if isinstance(each, Mapping) else each for each in part]
    return kept


def _section(value: Mapping[str, Any], job_id: str, path: tuple[str, ...], indent: int) -> None:
    pairs({name: inner for name, inner in value.items() if _is_plain(inner)}, indent)
    for name, inner in value.items():
        if _is_plain(inner) or inner in ({}, []):
            continue
        line(f"{' ' * indent}{name}")
        _part(inner, job_id, (*path, name), indent + 2)


def _part(value: Any, job_id: str, path: tuple[str, ...], indent: int) -> None:
    if isinstance(value, Mapping):
        if _is_uniform(value):
            columns = list(dict.fromkeys(column for row in value.values() for column in row))
            rows(["", *columns], [[name, *map(row.get, columns)] for name, row in value.items()], indent=indent)
        else:
            _section(value, job_id, path, indent)
    elif all(isinstance(item, Mapping) and not all(map(_is_plain, item.values())) for item in value):
        for number, item in enumerate(value[:SECTIONS]):
            line(f"{' ' * indent}[{number}]")
            _section(item, job_id, (*path, str(number)), indent + 2)
        if len(value) > SECTIONS:
            line(_more(len(value) - SECTIONS, job_id, ".".join(path), indent))
    else:
        _print_table(value, job_id, path, indent)


def _print_table(value: list[Any], job_id: str, path: tuple[str, ...], indent: int) -> None:
    found = next(tables.find(value, path), None)
    if found is None:
        line(f"{' ' * indent}{format_value(value[:ROWS])}")
        return
    if len(found.rows) <= ROWS + SLACK:
        rows(found.columns, found.rows, indent=indent)
        return
    ends = [*found.rows[: ROWS // 2], *found.rows[-(ROWS // 2) :]]  # Keeps both ends of records and histograms
    rows(found.columns, ends, indent=indent, gap=_more(len(found.rows) - ROWS, job_id, found.name, indent))


def _more(count: int, job_id: str, table: str, indent: int) -> str:
    return f"{' ' * indent}... {count} more: cluster result {job_id} --csv --table {table}"


def dead(several: Sequence[Mapping[str, Any]]) -> None:
    """Print permanently failed unit ranges, one per line. The number of further ranges is printed on stderr."""
    ranges = [{"job": job["job_id"], **one} for job in several for one in job["ranges"]]
    table(ranges, {name: name for name in ("job", "first", "last", "deaths", "errors", "error")})
    for job in several:
        if more := job.get("more_ranges"):
            say(f"{job['job_id']} has {more} more ranges; list up to 1,000 with: cluster dead {job['job_id']}")


def _cap(name: str) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that formats one field of a tenant. It returns "-" for None."""
    return lambda tenant: "-" if tenant.get(name) is None else tenant[name]


def _units_today(tenant: Mapping[str, Any]) -> str:
    today = tenant.get("units_today", {})
    return " ".join(f"{kind}={today.get(kind, 0)}/{most}" for kind, most in tenant.get("max_units", {}).items()) or "-"


def _gpu_seconds(tenant: Mapping[str, Any]) -> str:
    most = tenant.get("max_gpu_seconds")
    return f"{tenant['gpu_seconds_today']:g}/{most}" if most else "-"


def _stored_bytes(tenant: Mapping[str, Any]) -> str:
    most = tenant.get("max_stored_bytes")
    return f"{tenant['stored_bytes']}/{most}" if most else "-"


#: Columns of the table of tenants: weights, limits, and usage in the form used/limit.
TENANTS: Columns = {
    "tenant": "tenant",
    **{name.replace("_", " "): _cap(name) for name in ("weight", "lanes", "max_lanes", "jobs", "max_jobs", "backlog")},
    "units today": _units_today,
    "gpu s today": _gpu_seconds,
    "stored bytes": _stored_bytes,
    "requires": lambda tenant: ",".join(tenant.get("requires", ())) or "-",
}


def _models(usage: Mapping[str, Any]) -> str:
    """Format the requests of a tenant and the tokens in the responses, for each model."""
    tokens, requests = usage.get("answer_tokens") or {}, usage.get("requests") or {}
    return " ".join(f"{name}={count} ({tokens.get(name, 0)} tokens)" for name, count in requests.items())


#: Columns of the table of usage per tenant and day. Times of lanes and GPUs are in seconds.
USAGE: Columns = {
    "day": "day",
    "tenant": "tenant",
    "lane s": lambda usage: sum(usage["lane_seconds"].values()),
    "gpu s": "device_seconds",
    "joules": lambda usage: "-" if usage["joules"] is None else usage["joules"],
    "jobs": lambda usage: sum(map(int, usage["jobs"].values())),
    "units": lambda usage: " ".join(f"{kind}={count}" for kind, count in usage["units"].items()),
    "models": _models,
}


def mark(proved: Mapping[str, Any]) -> None:
    """Print how far finished jobs have proved a fact: the range without a gap, and ranges beyond it."""
    pairs(
        {
            proved["mark"]: f"{proved['origin']}..{proved['up_to']}"
            if proved["up_to"]
            else f"not proved from {proved['origin']} on"
        }
    )
    beyond = [row for row in proved["ranges"] if int(row["first"]) > int(proved["up_to"] or proved["origin"])]
    if beyond:
        line("beyond a gap")
        rows(["first", "last"], [[row["first"], row["last"]] for row in beyond], indent=2)


def _is_plain(value: Any) -> bool:
    """Return True if a value fits on one line. It is then a scalar or a short list of scalars."""
    if isinstance(value, list):
        return 0 < len(value) <= tables.SHORT and not any(isinstance(item, list | Mapping) for item in value)
    return not isinstance(value, Mapping)


def _is_uniform(value: Mapping[str, Any]) -> bool:
    """Return True if a value contains objects with similar fields, which are most readable as one table."""
    parts = list(value.values())
    if len(parts) < 2 or not all(isinstance(row, Mapping) and row for row in parts):
        return False
    widest = max(parts, key=len).keys()
    return all(row.keys() <= widest and all(map(_is_plain, row.values())) for row in parts)


def _all_numbers(cells: Iterable[Any]) -> bool:
    given = [cell for cell in cells if cell not in ("", None)]
    return bool(given) and all(isinstance(cell, int | float) or str(cell).lstrip("-").isdigit() for cell in given)


def job_line(job: Mapping[str, Any]) -> str:
    """Describe the progress of a job on one line, without the job's ID."""
    if job["state"] in ("queued", "blocked"):
        return f"{job['state']}{_because(job)}"
    parts = [job["state"], formatting.percent(job.get("progress")), formatting.rate(job.get("rate"))]
    eta = job.get("eta_seconds")
    parts += [f"{formatting.duration(eta)} left"] if eta is not None and job["state"] == "running" else []
    return "  ".join(filter(None, parts)) + _because(job)


def describe_start(row: Mapping[str, Any]) -> str:
    """Describe when a queued job starts, for a job or for the response to its submission."""
    seconds = row.get("estimated_wait_seconds")
    if seconds is None:
        return "at an unknown time"
    return "immediately" if seconds < 1 else f"in about {formatting.duration(seconds)}"


def ended_line(job: Mapping[str, Any]) -> str:
    """Describe how a job ended, with its state, duration, average speed and error."""
    seconds = job.get("seconds")
    done = int(job["done"])
    text = f"{job['job_id']} {job['state']}"
    if seconds is not None:
        text += f" in {formatting.duration(seconds)}"
        text += (
            f", {formatting.format_si(done)} units at {formatting.rate(done / seconds)}" if seconds and done > 1 else ""
        )
    return f"{text}: {job['error']}" if job.get("error") else text


def _because(job: Mapping[str, Any]) -> str:
    reason = job.get("waiting_because")
    return f": {reason}" if reason else ""


def jobs(several: Sequence[Mapping[str, Any]]) -> None:
    """Print one line per job. The columns tenant, title and tags appear only if a job needs them."""
    columns = dict(_JOBS)
    if any((job.get("tenant") or "default") != "default" for job in several):
        columns["tenant"] = lambda job: job.get("tenant") or ""
    if any(job.get("title") for job in several):
        columns["title"] = lambda job: job.get("title") or ""
    if any(job.get("tags") for job in several):
        columns["tags"] = lambda job: ", ".join(job.get("tags", []))
    table(several, columns)


def matching_jobs(shown: int, page: Mapping[str, Any], *, is_filtered: bool) -> None:
    """Print how many jobs match, and how to list more of them."""
    matching, total = page.get("matching"), page.get("total")
    if matching is None or total is None:
        return
    if is_filtered:
        say(f"{matching:,} matching of {total:,} jobs")
    if shown < matching:
        say(f"Showing the newest {shown:,} of {matching:,}. List more with --limit.")


_JOBS: Columns = {
    "job": "job_id",
    "type": "type",
    "state": "state",
    "done": lambda job: formatting.percent(job.get("progress")),
    "rate": lambda job: formatting.rate(job.get("rate")),
    "left": lambda job: formatting.duration(job.get("eta_seconds")),
    "created": lambda job: formatting.age(job.get("created")),
    "took": lambda job: formatting.duration(job.get("seconds")) if job.get("ended") else "",
}


def job(row: Mapping[str, Any]) -> None:
    """Print a job with its parameters and with the workers that computed it."""
    state = ended_line(row) if row.get("ended") else job_line(row)
    pairs(
        {
            "job": row["job_id"],
            "title": row.get("title"),
            "tags": ", ".join(row.get("tags", [])),
            "type": row["type"],
            "state": state.removeprefix(f"{row['job_id']} "),
            "starts": describe_start(row) if row["state"] == "queued" else None,
            "tenant": row.get("tenant"),
            "done": f"{row['done']} of {row['total']} units",
            "priority": row.get("priority"),
            "device": row.get("device"),
            "queue": row.get("queue"),
            "created": _moment(row, "created"),
            "started": _moment(row, "started"),
            "ended": _moment(row, "ended"),
            "most lanes": row.get("max_running"),
            "timeout": formatting.duration(row["timeout_seconds"]) if row.get("timeout_seconds") else None,
            "notes": "; ".join(row.get("notes", [])),
        }
    )
    line("parameters")
    pairs(
        {
            name: visible(json.dumps(value), _LONGEST_LIST) if value and isinstance(value, Mapping | list) else value
            for name, value in row["parameters"].items()
        },
        indent=2,
    )
    workers = (row.get("usage") or {}).get("workers") or {}
    if workers:
        columns: Columns = {name: name for name in ("worker", "device", "units", "leases")}
        busy: Columns = {"busy": lambda used: formatting.duration(used.get("seconds"))}
        table([{"worker": name, **used} for name, used in workers.items()], {**columns, **busy})


def relations(row: Mapping[str, Any]) -> None:
    """Print the dependencies of a job and the jobs that depend on it. The number of omitted jobs is printed on
    stderr.
    """
    lines = [
        (
            "waited for" if one["met"] else "waits for",
            one["job_id"],
            one["state"] or "gone",
            f"must be {one['needed']}",
        )
        for one in row["parents"]
    ]
    lines += [("before", one["job_id"], one["state"] or "gone", "") for one in row["children"]]
    lines += [("skips", one["job_id"], one["state"] or "gone", "") for one in row["skipped"]]
    rows(("it", "job", "state", ""), lines)
    for name, what in (("children", "more jobs wait for it"), ("skipped", "more jobs were skipped because of it")):
        if more := row[f"{name}_count"] - len(row[name]):
            say(f"{more} {what}")
    if root := row.get("root"):
        say(f"skipped because of job {root}; after fixing its error, run: cluster retry {root}")


def _moment(row: Mapping[str, Any], name: str) -> str:
    moment = row.get(name)
    return f"{moment} ({formatting.age(moment)})" if moment else ""


#: Columns of the table of API tokens, without the tokens' secrets.
TOKENS: Columns = {
    "token": "id",
    "name": "name",
    "tenant": "tenant",
    "scopes": lambda token: ",".join(token["scopes"]),
    "expires": lambda token: _end(token["expires"]),
    "used": lambda token: token["used"] or "never",
}


def _end(moment: str | None) -> str:
    if not moment:
        return "never"
    return f"{moment} (expired)" if datetime.fromisoformat(moment) < datetime.now(UTC) else moment


#: Columns of the table of secrets, without their values.
SECRETS: Columns = {name: name for name in ("tenant", "name", "changed", "key", "readable")}


def _last(row: Mapping[str, Any]) -> str:
    """Describe the outcome of a schedule's last run, and the workflow that it submitted."""
    return " ".join(str(part) for part in (row["last_outcome"], _last_workflow(row)) if part)


def _last_workflow(row: Mapping[str, Any]) -> str | None:
    known = row.get("last_workflow_id")
    return f"{known} ({row.get('last_workflow_state') or 'deleted'})" if known else None


def schedule(row: Mapping[str, Any]) -> None:
    """Print one schedule with its job or workflow."""
    pairs(
        {
            "name": row["name"],
            "tenant": row["tenant"],
            "runs": schedule_text(row),
            "state": row["state"],
            "overlap": row["overlap"],
            "catch up": row["catch_up"],
            "job": json.dumps(row["job"]) if row.get("job") else None,
            "last run": _moment(row, "last_run"),
            "last job": row["last_job_id"],
            "last workflow": _last_workflow(row),
            "last outcome": row["last_outcome"],
            "submitted": row["submitted"],
            "skipped": row["skipped"],
            "missed": row["missed"],
            "failed": row["failed"],
        }
    )
    next_runs(row)
    if row.get("workflow"):
        line("")
        line(row["workflow"].rstrip("\n"))


def next_runs(row: Mapping[str, Any]) -> None:
    """Print the next runs of a schedule in the schedule's time zone."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    zone: tzinfo = UTC
    with suppress(ZoneInfoNotFoundError, ValueError, OSError):  # This machine may have no time zone data
        zone = ZoneInfo(row["timezone"])
    for moment in row.get("next_runs") or []:
        line(f"next       {datetime.fromisoformat(moment).astimezone(zone):%a %Y-%m-%d %H:%M:%S %Z}")


def schedule_text(row: Mapping[str, Any]) -> str:
    """Describe when a schedule runs, for example "every 15 min"."""
    if row["every_seconds"]:
        seconds = row["every_seconds"]  # The number of seconds is an integer
        return f"every {f'{seconds} s' if seconds < 60 else formatting.duration(seconds)}"
    return f"{row['cron']} {row['timezone']}"


ARTIFACTS: Columns = {
    "id": lambda row: row["artifact_id"][:12],
    "name": lambda row: " ".join(row["names"]),
    "files": "files",
    "size": lambda row: formatting.size(row["bytes"]),
    "created": lambda row: formatting.age(row["created"]),
}


def _due(moment: str | None) -> str:
    """Describe how much time remains until a timestamp."""
    if not moment:
        return ""
    seconds = (datetime.fromisoformat(moment) - datetime.now(UTC)).total_seconds()
    return f"in {formatting.duration(seconds)}" if seconds > 0 else "now"


#: Columns of the table of webhook deliveries.
WEBHOOKS: Columns = {
    "id": "id",
    "of": lambda row: row["job_id"] or row.get("workflow_id"),
    "type": "type",
    "to": "url",
    "state": "state",
    "tries": "attempts",
    "next try": lambda row: _due(row["next_attempt"]),
    "last outcome": "last_outcome",
}


SCHEDULES: Columns = {
    "name": "name",
    "runs": schedule_text,
    "kind": "type",
    "state": "state",
    "next": lambda row: _due(row["next_run"]),
    **{name: name for name in ("submitted", "skipped", "missed", "failed")},
    "last outcome": _last,
}


def artifact(row: Mapping[str, Any], entries: Sequence[Any]) -> None:
    """Print an artifact and its first paths."""
    pairs(
        {
            "id": row["artifact_id"],
            "names": " ".join(row["names"]),
            "files": row["files"],
            "size": formatting.size(row["bytes"]),
            "created": formatting.age(row["created"]),
            "held by": " ".join(row.get("held_by", [])),
        }
    )
    line("")
    for entry in entries[:PATHS]:
        line(f"{'' if entry.kind in 'dl' else formatting.size(entry.size):>9}  {_path(entry)}")
    if len(entries) > PATHS:
        line(f"and {len(entries) - PATHS} more; print all with --json")


def _path(entry: Any) -> str:
    mark = {"d": "/", "l": f" -> {entry.target}", "x": "*"}.get(entry.kind, "")
    return f"{entry.path}{mark}"


#: Columns of the table of a program's units.
UNITS: Columns = {
    "unit": "unit",
    "state": "state",
    "exit": "exit",
    "took": lambda unit: formatting.duration(unit.get("seconds")),
    "attempts": "attempts",
    "worker": "worker",
    "value": lambda unit: "" if unit.get("value") is None else visible(json.dumps(unit["value"]), DIGITS),
    "why": lambda unit: unit.get("error") or unit.get("reason"),
}


def _memory(host: Mapping[str, Any]) -> str:
    used, total = host.get("memory_used_bytes"), host.get("memory_total_bytes")
    return f"{formatting.size(used)} of {formatting.size(total)}" if used is not None and total is not None else ""


def _host_state(host: Mapping[str, Any]) -> str:
    state = "lost" if not host["live"] else "draining" if host.get("draining") else "live"
    sick = sum(bool(device.get("cordoned")) for device in host.get("devices", ()))
    if host["live"] and sick:
        state += f", {'1 GPU' if sick == 1 else f'{sick} GPUs'} cordoned"
    wrong = abs(host.get("clock_offset_seconds") or 0.0) > CLOCK_SECONDS
    return f"{state}, clock {host['clock_offset_seconds']:+.1f} s" if wrong else state


HOSTS: Columns = {
    "host": "host",
    "state": _host_state,
    "workers": lambda host: len(host["workers"]),
    "lanes": lambda host: f"{host['busy_lanes']} of {host['lanes']}",
    "cpus": "cpus",
    "cpu": lambda host: formatting.percent(host.get("cpu_ratio")),
    "load": "load1",
    "memory": _memory,
    "gpus": lambda host: ", ".join(host["gpus"]),
    "labels": lambda host: ", ".join(sorted({*host["labels"], *host.get("given_labels", ())})),
    "seen": lambda host: formatting.format_age(host["seen_seconds_ago"]),
}


def host(row: Mapping[str, Any]) -> None:
    """Print a host with its GPUs and its workers."""
    speeds = [row.get(f"network_{way}_bytes_per_second") for way in ("receive", "transmit")]
    disks = [
        f"{', '.join(disk['places'])}: "
        f"{formatting.size(disk['free_bytes'])} free of {formatting.size(disk['total_bytes'])}"
        for disk in row.get("disks", [])
    ]
    versions = [f"{part} {' and '.join(several)}" for part, several in row.get("versions", {}).items()]
    load, cpus, score = row.get("load1"), row.get("cpus"), row.get("score")
    pairs(
        {
            "host": row["host"],
            "state": _host_state(row),
            "seen": formatting.format_age(row["seen_seconds_ago"]),
            "load": "" if load is None else f"{load:.2f} on {cpus} cpus",
            "score": "" if score is None else f"{score:.1f}",
            "memory": _memory(row),
            "disks": "; ".join(disks),
            "network": ""
            if None in speeds
            else f"receives {formatting.size(speeds[0])}/s, sends {formatting.size(speeds[1])}/s",
            "versions": ", ".join(versions),
            "labels": ", ".join(row["labels"]),
            "given labels": ", ".join(row.get("given_labels", ())),
            "clock": _clock(row),
        }
    )
    if row.get("devices"):
        line("")
        table(row["devices"], _DEVICES)
    if row.get("cards"):
        line("")
        table(row["cards"], {"card": "card", "name": "name", **_GPU_LOAD})
    line("")
    workers(row["worker_rows"])


def _measurement(name: str, unit: str) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that formats a measurement of a GPU. It returns "" for an unknown value."""
    return lambda gpu: "" if gpu.get(name) is None else f"{gpu[name]:.0f} {unit}"


_GPU_LOAD: Columns = {
    "used": lambda gpu: formatting.percent(gpu.get("utilization_ratio")),
    "memory": _memory,
    "temperature": _measurement("temperature_celsius", "C"),
    "power": _measurement("power_watts", "W"),
}
_DEVICES: Columns = {
    "gpu": "index",
    "name": "name",
    "worker": "worker",
    "job": lambda gpu: "cordoned" if gpu.get("cordoned") else "idle" if gpu["idle"] else gpu.get("job"),
    **_GPU_LOAD,
}


def _clock(row: Mapping[str, Any]) -> str:
    offset = row.get("clock_offset_seconds")
    if offset is None:
        return ""
    where = f"{abs(offset):.3f} s {'ahead of' if offset > 0 else 'behind'} Redis' clock"
    return f"{where}; enable NTP on this host" if abs(offset) > CLOCK_SECONDS else where


def workers(several: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of workers, and which of them take no work, or no work of some kinds."""
    table(several, _WORKERS)
    _refusals(several)


def _refusals(several: Sequence[Mapping[str, Any]]) -> None:
    for worker in several:
        if worker.get("compiling") and worker.get("live"):
            kinds = visible(" and ".join(worker["compiling"]), 400)
            line(f"{worker['id']} is compiling the kernels of {kinds}; until then, it takes none of their jobs")
        if worker.get("refused") and worker.get("live"):
            line(f"{worker['id']} does not compute {visible(worker['refused'], 400)}")
        if worker.get("cordoned") and worker.get("live"):
            line(f"{worker['id']} accepts no work: {visible(worker['cordoned'], 400)}")


def _worker_state(worker: Mapping[str, Any]) -> str | None:
    state = "draining" if worker.get("draining") and worker.get("state") != "lost" else worker.get("state")
    if worker.get("live") and worker.get("cordoned"):
        state = "cordoned"
    if worker.get("live") and worker.get("reserved_for"):
        state = f"{state}, reserved for {worker['reserved_for']}"
    return state


_WORKERS: Columns = {
    "worker": "id",
    "device": lambda worker: " ".join(filter(None, (worker.get("device"), worker.get("cpu_level")))),
    "state": _worker_state,
    "lanes": "lanes",
    "job": "job",
    "cpu": lambda worker: formatting.percent(worker.get("cpu_ratio")),
    "memory": lambda worker: formatting.size(worker.get("memory_used_bytes")),
    "host": "host",
    "seen": lambda worker: formatting.format_age(worker.get("seen_seconds_ago", 0)),
}


def status(summary: Mapping[str, Any], url: str, ports: str = "") -> None:
    """Print numbers of workers and jobs. `ports` lists the ports of a local cluster."""
    workers = summary["workers"]
    by_device = [
        f"{sum(states.values())} {device}" for device, states in workers.items() if device in ("cpu", "gpu", "runner")
    ]
    wanted = f", {summary['cluster_size']} desired" if summary.get("cluster_size") else ""
    needed = [f"{count} {device}" for device, count in summary.get("desired_workers", {}).items()]
    counts = {state: count for state, count in summary["jobs"].items() if count}
    speeds = [f"{kind} {formatting.rate(speed)}" for kind, speed in summary.get("units_per_second", {}).items()]
    waiting = [f"{queue} {count}" for queue, count in summary.get("queues", {}).items()]
    lanes = f"lanes: {summary.get('lanes', 0)}"
    if kernels := summary.get("compiling"):
        lanes += f", compiling: {' and '.join(kernels)}"
    pairs(
        {
            "cluster": f"{url}, version {summary['version']}",
            "ports": ports,
            "workers": f"{workers['live']} ({', '.join(by_device)}{wanted}), {lanes}",
            "desired": ", ".join(needed),
            "jobs": ", ".join(f"{count} {state}" for state, count in counts.items()) or "none",
            "waiting": ", ".join(waiting)
            and f"{', '.join(waiting)}; the longest for {formatting.duration(summary.get('oldest_wait_seconds'))}",
            "speed": ", ".join(speeds),
        }
    )


KINDS: Columns = {"type": "type", "summary": "summary"}
