"""Structured logs: one JSON object a line, on stderr.

Every line has timestamp (ISO 8601, UTC), level, component, message and host; where known task_id (a job's id),
duration_seconds and status, and then whatever else the line's author added.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import MutableMapping
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from typing import Any

import structlog

_FIRST = ("timestamp", "level", "component", "message", "host", "task_id", "duration_seconds", "status")
#: Our names of fields, and what stands on a line.
_RENAMED = {"event": "message", "job_id": "task_id"}
#: An API token or a login's cookie, of which a line shows the id alone: somebody may send one as a part of a path.
_SECRET = re.compile(r"(t[cs]_[a-z0-9]{10}_)[A-Za-z0-9_-]{43}")
#: Fields that stand on every line.
_always: dict[str, str] = {}
#: What writes lines, once configured.
_handlers: list[logging.StreamHandler[Any]] = []


def configure(level: str, component: str, *, host: str, **always: str) -> None:
    """Send structlog and the standard library's loggers to one JSON stream; what is given here stands on every line."""
    _always.clear()
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso"),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    bind(component=component, host=host, **always)
    last: list[structlog.typing.Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        lambda _logger, _name, event: _line({**_always, **event}),
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(),
        _without_secrets,
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # It writes a line for each request.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    _handlers[:] = [handler]


def bind(**always: str) -> None:
    """Have what is given stand on every line from now on, as what `configure` was given."""
    _always.update(always)
    structlog.contextvars.bind_contextvars(**always)


def info(name: str, message: str, /, **fields: str | float | None) -> None:
    """Write the line that the logger of this name would write at level info, at a fifth of its cost.

    For what is logged many times a second.
    """
    if not _handlers:  # a program that has not said how it logs
        structlog.get_logger(name).info(message, **fields)
    elif logging.getLogger(name).isEnabledFor(logging.INFO):
        moment = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        event = {**_always, "logger": name, "level": "info", "timestamp": moment, **fields, "event": message}
        _write(_handlers[0], _without_secrets(None, "", json.dumps(_line(event))))


def _write(handler: logging.StreamHandler[Any], line: str) -> None:
    with handler.lock or nullcontext(), suppress(OSError, ValueError):  # whoever read the log may have gone
        handler.stream.write(f"{line}\n")
        handler.flush()


def _without_secrets(_logger: Any, _name: str, line: Any) -> str:
    """Return a finished line with the ids alone of tokens in it."""
    return _SECRET.sub(r"\1...", str(line))


def _line(fields: MutableMapping[str, Any]) -> dict[str, Any]:
    """Fields under the names that stand on a line, the common ones first."""
    named = {_RENAMED.get(name, name): value for name, value in fields.items()}
    return {name: named[name] for name in _FIRST if name in named} | named
