"""Requests for services as they are stored."""

from __future__ import annotations

from typing import Any


def stored_request(**fields: Any) -> dict[str, Any]:
    """Return all that is stored of a request for a service, with its default values but for `fields`."""
    return {
        "model": None,
        "max_concurrent_requests": 100,
        "request_timeout_seconds": 300,
        "idle_seconds": None,
        "autoscale": None,
        "abilities": {"calls": None, "context_length": None, "capabilities": None},
        **fields,
    }
