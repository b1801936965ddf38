"""Responses of the API as dicts and lists that notebooks display as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from threads_cluster.cli import formatting
from threads_cluster.client.display import (
    MAX_ROWS,
    bar,
    block,
    cell,
    fields,
    heading,
    note,
    problem,
    state,
    table,
)


class Record(dict[str, Any]):
    """A response of the API: a dict that notebooks display as a table."""

    #: Fields that a list of such responses displays. By default, all fields without nested values.
    columns: ClassVar[tuple[str, ...]] = ()

    def to_html(self) -> str:
        """Return the HTML with which notebooks display the response."""
        return fields(self)

    def _repr_html_(self) -> str:
        return self.to_html()


class Records(list[Any]):
    """A list of responses of the API, which notebooks display as a table."""

    def _repr_html_(self) -> str:
        return self.to_html()

    def to_html(self) -> str:
        """Return the HTML with which notebooks display the list."""
        rows = [row for row in self if isinstance(row, Record)][:MAX_ROWS]
        names = (rows[0].columns if rows else ()) or _flat(rows)
        shown = table(names, ([_column(row, name) for name in names] for row in rows))
        return shown + (note(f"{len(self) - len(rows):,} more") if len(self) > len(rows) else "")


class Job(Record):
    """A job: a dict that notebooks display with its progress and its workers."""

    columns = ("job_id", "title", "state", "progress", "seconds", "error")

    def to_html(self) -> str:
        shares = self["usage"]["workers"]
        return block(
            heading(self["title"], self["state"], f"job {self['job_id']}"),
            bar(self["progress"], self["state"]),
            note(
                f"{int(self['done']):,} of {int(self['total']):,} units",
                formatting.rate(self["rate"]),
                formatting.duration(self["seconds"]),
                f"{formatting.duration(self['eta_seconds'])} left" if self["eta_seconds"] else "",
            ),
            problem(self["error"] or self["waiting_because"]),
            table(
                ("worker", "device", "units", "time"),
                (
                    (name, row["device"], row["units"], formatting.duration(row["seconds"]))
                    for name, row in shares.items()
                ),
            ),
        )


class Workflow(Record):
    """A workflow: a dict that notebooks display with its progress and its actions."""

    columns = ("workflow_id", "name", "state", "total", "error")

    def to_html(self) -> str:
        done, total = self["counts"].get("done", 0), self["total"]
        return block(
            heading(self["name"], self["state"], f"workflow {self['workflow_id']}"),
            bar(done / total if total else 1.0, self["state"]),
            note(f"{done:,} of {total:,} actions", self["description"]),
            problem(self["error"] or self["waiting_because"]),
            table(
                ("action", "type", "state", "progress", "after", "job"),
                (
                    (
                        row["action_id"],
                        row["action_type"],
                        state(row["state"]),
                        formatting.percent(row["progress"]),
                        ", ".join(row["dependencies"]),
                        row["job_id"],
                    )
                    for row in self.get("actions", ())
                ),
            ),
        )


class Service(Record):
    """A service: a dict that notebooks display with its replicas."""

    columns = ("name", "engine", "model", "state", "ready", "replicas")

    def to_html(self) -> str:
        minute = self["last_minute"]
        return block(
            heading(self["name"], self["state"], f"service with the engine {self['engine']}"),
            bar(self["ready"] / self["replicas"] if self["replicas"] else 0.0, self["state"]),
            note(
                f"{self['ready']:,} of {self['replicas']:,} replicas are ready",
                self["model"] or "",
                f"{minute['requests']:,} requests in the last minute",
                f"median {formatting.duration(minute['median_seconds'])}" if minute["median_seconds"] else "",
            ),
            problem(self["last_failure"]),
            table(
                ("replica", "state", "host", "devices", "memory", "requests"),
                (
                    (
                        row["job_id"],
                        state(row["state"]),
                        row["host"],
                        ", ".join(row["devices"] or ()),
                        formatting.size(row["memory_bytes"]),
                        row["requests"],
                    )
                    for row in self["running"]
                ),
            ),
        )


class Worker(Record):
    """A worker of the cluster: a dict that notebooks display as a table."""

    columns = ("id", "device", "state", "lanes", "busy_lanes", "host", "job")


class Unit(Record):
    """A unit of a program: a dict that notebooks display as a table."""

    columns = ("unit", "state", "exit", "reason", "seconds", "attempts", "worker", "value", "error")


class Result(Record):
    """Result of a job: a dict that notebooks display with the units that it covers."""

    def to_html(self) -> str:
        return block(
            heading(self["type"], "partial" if self["partial"] else "done", f"result of job {self['job_id']}"),
            note(f"{int(self['units']):,} of {int(self['total']):,} units"),
            cell(self["result"]),
        )


#: Classes by the declaration of the response. Names are used because building the declarations takes long.
_CLASSES: dict[str, type[Record]] = {
    "jobs.Job": Job,
    "jobs.Result": Result,
    "services.Service": Service,
    "workflows.Workflow": Workflow,
    "workflows.Course": Workflow,
    "workflows.Retried": Workflow,
}
#: Field with the list of each response that contains one, and the class of its items.
_LISTS: dict[str, tuple[str, type[Record]]] = {
    "fleet.WorkerList": ("workers", Worker),
    "hosts.HostList": ("hosts", Record),
    "jobs.Jobs": ("jobs", Job),
    "jobs.Tasks": ("tasks", Job),
    "jobs.Units": ("units", Unit),
    "models.ModelPage": ("models", Record),
    "schedules.ScheduleList": ("schedules", Record),
    "services.ServiceList": ("services", Service),
    "tenants.Tenants": ("tenants", Record),
    "workflows.Workflows": ("workflows", Workflow),
}


def displayed(shape: Any, answer: dict[str, Any]) -> dict[str, Any]:
    """Return a response as a dict that notebooks can display. `shape` is the declaration of the response."""
    name = f"{shape.__module__.rpartition('.')[2]}.{shape.__name__}"
    if name in _LISTS:
        field, kind = _LISTS[name]
        return Record(answer, **{field: Records(map(kind, answer[field]))})
    if isinstance(answer.get("result"), dict):
        answer["result"] = Record(answer["result"])
    return _CLASSES.get(name, Record)(answer)


def _flat(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of fields that have no nested values in any row."""
    nested = {name for row in rows for name, value in row.items() if isinstance(value, dict | list)}
    return [name for name in dict.fromkeys(name for row in rows for name in row) if name not in nested]


def _column(row: Mapping[str, Any], name: str) -> Any:
    value = row.get(name)
    if name == "state":
        return state(value)
    if name == "progress":
        return formatting.percent(value)
    return formatting.duration(value) if name == "seconds" else value
