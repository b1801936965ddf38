"""Stored requests for services."""

from __future__ import annotations

from typing import Any


def stored_request(**fields: Any) -> dict[str, Any]:
    """Return a complete stored request for a service, with default values for all fields but `fields`."""
    return {
        "model": None,
        "max_concurrent_requests": 100,
        "request_timeout_seconds": 300,
        "idle_seconds": None,
        "autoscale": None,
        "abilities": {"calls": None, "context_length": None, "capabilities": None},
        **fields,
    }
