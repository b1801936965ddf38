"""Structured logs: each line on stderr is a JSON object.

Every line has timestamp (ISO 8601, UTC), level, component, message and host. If known, the line also has task_id (the
job ID), duration_seconds and status. All other fields follow.
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
#: Log fields whose names in the output differ from their internal names.
_RENAMED = {"event": "message", "job_id": "task_id"}
#: Pattern of API tokens and session cookies. Only their IDs are logged, because clients can send tokens in URLs.
_SECRET = re.compile(r"(t[cs]_[a-z0-9]{10}_)[A-Za-z0-9_-]{43}")
#: Fields that every log line contains.
_always: dict[str, str] = {}
#: Handlers that write log lines. `configure` sets them.
_handlers: list[logging.StreamHandler[Any]] = []


def configure(level: str, component: str, *, host: str, **always: str) -> None:
    """Write all logs of this process to stderr as JSON. Every line contains the fields in the keyword arguments."""
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
        lambda _logger, _name, event: _rename_fields({**_always, **event}),
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(),
        _redact_secrets,
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # httpx logs each request at level info.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    _handlers[:] = [handler]


def bind(**always: str) -> None:
    """Add fields to all later log lines, or change the values of such fields."""
    _always.update(always)
    structlog.contextvars.bind_contextvars(**always)


def info(name: str, message: str, /, **fields: str | float | None) -> None:
    """Log a message at level info five times as fast as structlog.

    Use this function for messages that are logged many times per second.
    """
    if not _handlers:  # Nothing has called `configure` yet
        structlog.get_logger(name).info(message, **fields)
    elif logging.getLogger(name).isEnabledFor(logging.INFO):
        moment = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        event = {**_always, "logger": name, "level": "info", "timestamp": moment, **fields, "event": message}
        _write(_handlers[0], _redact_secrets(None, "", json.dumps(_rename_fields(event))))


def _write(handler: logging.StreamHandler[Any], line: str) -> None:
    with handler.lock or nullcontext(), suppress(OSError, ValueError):  # The reader of the log has exited.
        handler.stream.write(f"{line}\n")
        handler.flush()


def _redact_secrets(_logger: Any, _name: str, line: Any) -> str:
    """Replace each token in a log line with the token's ID."""
    return _SECRET.sub(r"\1...", str(line))


def _rename_fields(fields: MutableMapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a log line under their output names, common fields first."""
    named = {_RENAMED.get(name, name): value for name, value in fields.items()}
    return {name: named[name] for name in _FIRST if name in named} | named
