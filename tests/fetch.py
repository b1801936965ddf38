"""Sends HTTP requests with a timeout of a minute, because machines can be busy for that long."""

from __future__ import annotations

import os
import ssl
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import certifi
import httpx

SECONDS = 60.0


@cache
def _authorities() -> ssl.SSLContext:
    """Return the certificate authorities. Reading them once saves httpx 30 ms of CPU time per request."""
    return ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE") or certifi.where())


def _patient(given: dict[str, Any]) -> dict[str, Any]:
    """Return arguments for httpx with a timeout of a minute unless they set another."""
    return {"timeout": SECONDS, "verify": _authorities()} | given


def request(method: str, url: str, **given: Any) -> httpx.Response:
    """Send one request and return its response. `given` contains arguments of httpx.request."""
    return httpx.request(method, url, **_patient(given))


def stream(method: str, url: str, **given: Any) -> AbstractContextManager[httpx.Response]:
    """Send one request and yield its response before the body is read."""
    return httpx.stream(method, url, **_patient(given))


def client(**given: Any) -> httpx.Client:
    """Return a client. `given` contains arguments of httpx.Client."""
    return httpx.Client(**_patient(given))


def get(url: str, **given: Any) -> httpx.Response:
    return request("GET", url, **given)


def post(url: str, **given: Any) -> httpx.Response:
    return request("POST", url, **given)


def put(url: str, **given: Any) -> httpx.Response:
    return request("PUT", url, **given)


def delete(url: str, **given: Any) -> httpx.Response:
    return request("DELETE", url, **given)
