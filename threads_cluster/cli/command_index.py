"""Index of the commands: their groups in the help, and the modules that define them.

A module is imported when one of its commands is used, so that short commands start fast.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterator
from importlib import import_module
from textwrap import wrap
from typing import Any

import typer
from typer.core import TyperGroup

#: Commands by group. The help describes the commands that have a text, and lists the others below them.
GROUPS: dict[str, dict[str, str]] = {
    "Cluster": {
        "start": "Start a cluster on this machine.",
        **dict.fromkeys(("stop", "scale", "update", "rollback", "backup", "restore", "cleanup", "bundle"), ""),
    },
    "Run": {
        "run": "Run a program with the files of this folder.",
        "map": "Call a Python function once for each item.",
        "submit": "Submit a job of any kind; each kind has its own flags.",
        "workflow": "",
        "schedule": "",
        "verify-certificate": "",
    },
    "Observe": {
        "status": "Show workers, jobs and queues.",
        "jobs": "List jobs. For one job: cluster job JOB",
        "logs": "Print the output of a program.",
        "result": "Print the result of a job, or download its output files.",
        **dict.fromkeys(
            ("job", "watch", "units", "dead", "relations", "ask", "queue", "profile", "metrics", "usage", "audit"), ""
        ),
        **dict.fromkeys(("kinds", "mark", "verified", "version", "report"), ""),
    },
    "Manage": {
        **dict.fromkeys(("cancel", "pause", "resume", "retry", "delete", "attach", "artifact", "webhook"), ""),
    },
    "Models": {
        "serve": "Serve a model or a program until it is stopped.",
        **dict.fromkeys(("services", "service", "model", "data", "engine"), ""),
    },
    "Machines": {
        **dict.fromkeys(("workers", "hosts", "host", "drain", "leave", "up", "down", "health", "discover"), ""),
    },
    "Access": {
        **dict.fromkeys(("login", "logout", "context", "token", "tenant", "secret", "invite", "join"), ""),
    },
}
#: Modules of the commands that threads_cluster.cli.main does not define.
_MODULES = {
    **dict.fromkeys(("start", "stop", "bundle", "scale", "backup", "restore"), "cli.commands.server_commands"),
    **dict.fromkeys(("update", "rollback"), "cli.commands.server_commands"),
    **dict.fromkeys(("report", "cleanup", "invite", "join", "leave"), "cli.commands.server_commands"),
    **dict.fromkeys(("run", "map", "logs", "units", "attach"), "cli.commands.program_commands"),
    **dict.fromkeys(("serve", "services", "service"), "cli.commands.service_commands"),
    **dict.fromkeys(("login", "logout", "token"), "cli.commands.access"),
    **dict.fromkeys(("health", "up", "down"), "ssh.commands"),
    "submit": "cli.commands.submitting",
    "artifact": "cli.commands.artifact_commands",
    "workflow": "cli.commands.workflow_commands",
    "schedule": "cli.commands.schedules",
    "queue": "cli.commands.queue_commands",
    "verify-certificate": "cli.commands.certificates",
    "profile": "cli.commands.profile_commands",
    "metrics": "cli.commands.metric_commands",
    "webhook": "cli.commands.webhooks",
    "model": "cli.commands.model_commands",
    "data": "cli.commands.data_commands",
    "engine": "cli.commands.engine_commands",
    "discover": "cli.discovery",
    "context": "cli.commands.context_commands",
    "tenant": "cli.commands.tenants",
    "secret": "cli.commands.secrets",
}
_WIDTH = 80


class LazyCommands(UserDict[str, Any]):
    """Commands by name. A command is built when it is read."""

    def __init__(self, own: typer.Typer) -> None:
        super().__init__({_name(each): own for each in own.registered_commands} | dict.fromkeys(_MODULES))

    def __getitem__(self, name: str) -> Any:
        if isinstance(self.data[name], typer.Typer | None):
            self.data[name] = _build(self.data[name] or _load(name), name)
        return self.data[name]


class GroupedCommands(TyperGroup):
    """The `cluster` command. Its help fits a terminal of 24 lines."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help. It loads no command, and has one line for each important command."""
        parameters: list[Any] = self.get_params(ctx)
        options = ", ".join(max(each.opts, key=len) for each in parameters if not each.hidden)
        lines = [line for group, texts in GROUPS.items() for line in _describe_group(group, texts)]
        self.format_usage(ctx, formatter)
        for line in ("", *lines, "", f"Options: {options}", self.epilog):
            formatter.write(f"{line}\n")


def _describe_group(group: str, texts: dict[str, str]) -> Iterator[str]:
    """Yield the lines of a group in the help."""
    rows = [f"{name:8} {text}" for name, text in texts.items() if text]
    rows += wrap(", ".join(name for name, text in texts.items() if not text), _WIDTH - 10)
    for number, row in enumerate(rows):
        yield f"{'' if number else group:9} {row}"


def _load(name: str) -> typer.Typer:
    """Import the module of a command, and return an app with the module's commands."""
    module = import_module(f"threads_cluster.{_MODULES[name]}")
    app = typer.Typer()
    module.add_commands(app) if hasattr(module, "add_commands") else app.add_typer(module.app, name=name)
    return app


def _build(app: typer.Typer, name: str) -> Any:
    """Convert one command of an app. Typer converts only whole apps, so put the command into an app of its own."""
    one = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    one.callback()(lambda: None)
    one.registered_commands = [each for each in app.registered_commands if _name(each) == name]
    one.registered_groups = [each for each in app.registered_groups if each.name == name]
    root: Any = typer.main.get_command(one)
    return root.commands[name]


def _name(command: Any) -> str:
    """Return the name of a command as Typer derives it."""
    return str(command.name or typer.main.get_command_name(command.callback.__name__))
