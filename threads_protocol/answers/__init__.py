"""Types of the API's responses. Each response is declared once.

The coordinator sends dictionaries of these types without validating them. OpenAPI is generated from the types, and the
client validates responses against them.

Modules are imported on first use, because building the types takes longer than a short command of the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threads_protocol.answers import (
        access,
        audit,
        fleet,
        hosts,
        jobs,
        schedules,
        secrets,
        telemetry,
        tenants,
        usage,
        webhooks,
    )

__all__ = [
    "access",
    "audit",
    "fleet",
    "hosts",
    "jobs",
    "schedules",
    "secrets",
    "telemetry",
    "tenants",
    "usage",
    "webhooks",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
