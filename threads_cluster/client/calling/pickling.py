"""Pickles of functions, arguments, values and exceptions, as text for JSON."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle

from threads_cluster.errors import CallFailed, RemoteTraceback


def encode(value: Any) -> str:
    """Pickle a value as text. Functions and classes of scripts and notebooks are pickled by value."""
    return base64.b85encode(cloudpickle.dumps(value, protocol=5)).decode()


def decode(text: str) -> Any:
    """Return the value of a pickle. Call this only with answers to calls of this client."""
    return pickle.loads(base64.b85decode(text))


def remote_exception(words: str, data: str | None, traceback: str) -> BaseException:
    """Return the exception of a call. Its cause is the traceback on the runner.

    `data` is the pickled exception, or None if it could not be pickled. `words` then describe it.
    """
    error: BaseException = CallFailed(words) if data is None else decode(data)
    error.__cause__ = RemoteTraceback(traceback)
    return error


class Functions:
    """Pickles of the functions that an executor has called, so that each function is pickled once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Callable[..., Any], str]] = {}

    def pickled(self, function: Callable[..., Any]) -> str:
        known = self._known.get(id(function))
        if known is None or known[0] is not function:
            known = self._known[id(function)] = (function, encode(function))
        return known[1]
