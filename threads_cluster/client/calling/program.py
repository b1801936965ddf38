"""Program that calls pickled Python functions on a runner. It runs there alone, so it imports only Python's library.

Its stdin is a socket. It reads each call as a line of JSON, and answers with a line of JSON.
"""

from __future__ import annotations

import base64
import json
import pickle
import socket
import sys
import traceback
from typing import Any


def main() -> None:
    ours = socket.socket(fileno=0)
    functions: dict[str, Any] = {}
    for line in ours.makefile("rb", 1 << 16):
        unit = json.loads(line)
        if "input" in unit:
            functions = {unit["job"]: unit["input"]}
        answer = call(functions, unit)
        sys.stdout.flush()
        sys.stderr.flush()
        ours.sendall(json.dumps(answer).encode() + b"\n")


def call(functions: dict[str, Any], unit: dict[str, Any]) -> dict[str, Any]:
    """Call the function of a job with the arguments of a unit, and return the answer to the runner."""
    try:
        function = functions[unit["job"]]
        if isinstance(function, str):
            function = functions[unit["job"]] = load(function)
        arguments, keywords = load(unit["item"])
        return {"value": dump(function(*arguments, **keywords))}
    except BaseException as error:  # SystemExit too: the caller receives every exception
        return {"error": f"{type(error).__name__}: {error}", "value": describe(error)}


def describe(error: BaseException) -> list[str | None]:
    """Return an exception as [pickle or None, traceback]."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        error.__traceback__ = None
        data = dump(error)
        load(data)
    except BaseException:  # An exception can fail in any way when it is pickled
        return [None, text]
    return [data, text]


def load(text: str) -> Any:
    return pickle.loads(base64.b85decode(text))


def dump(value: Any) -> str:
    """Pickle a value, by value if its class or function belongs to no module."""
    try:
        from cloudpickle import dumps
    except ImportError:
        from pickle import dumps
    return base64.b85encode(dumps(value, protocol=5)).decode()


if __name__ == "__main__":
    main()
