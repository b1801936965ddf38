"""Program that calls pickled Python functions on a runner. It runs there alone, so it imports only Python's library.

Its stdin is a socket. It reads each call as a line of JSON, and answers with a line of JSON. With a call, it receives
descriptors of the files that the call names: large arguments, and values that many calls share.
"""

from __future__ import annotations

import base64
import io
import json
import mmap
import os
import pickle
import socket
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

#: Maximum size in bytes of a pickle in an answer. A larger one becomes a file.
INLINE_BYTES = 64 << 10
#: Size in bytes from which a buffer, such as the data of an array, is a file.
BUFFER_BYTES = 64 << 10
#: Maximum number of buffers of a value that become files.
MOST_BUFFERS = 32
#: Maximum size in bytes of a pickled exception, and of its traceback.
MOST_EXCEPTION = 256 << 10
#: Maximum number of descriptors that arrive with a call.
MOST_DESCRIPTORS = 253
#: Folder of the program. Functions can change the current folder.
FOLDER = Path.cwd()

#: Python versions of the client, if known, and of this process.
CLIENT, HERE = "".join(sys.argv[1:2]), f"{sys.version_info[0]}.{sys.version_info[1]}"


def main() -> None:
    ours = socket.socket(fileno=0)
    functions: dict[str, Any] = {}
    for unit, descriptors in receive(ours):
        item = unit["item"]
        text, names = (item, []) if isinstance(item, str) else (item["call"], item["files"])
        files = open_files([*names, *result_files(unit)], descriptors)
        files.update(result_locations(unit))
        if "input" in unit:
            functions = {unit["job"]: unit["input"]}
        answer = call(functions, unit["job"], text, files)
        del files
        sys.stdout.flush()
        sys.stderr.flush()
        ours.sendall(json.dumps(answer).encode() + b"\n")


def receive(ours: socket.socket) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """Yield each call as its message and its descriptors. The next call arrives after the answer to this one."""
    pieces: list[bytes] = []
    descriptors: list[int] = []
    while True:
        piece, received, _, _ = socket.recv_fds(ours, 1 << 16, MOST_DESCRIPTORS)
        if not piece:
            return
        pieces.append(piece)
        descriptors += received
        if piece.endswith(b"\n"):
            yield json.loads(b"".join(pieces)), descriptors
            pieces, descriptors = [], []


def open_files(names: Iterable[str], descriptors: Iterable[int]) -> dict[Any, Any]:
    """Map files into memory, and return the maps by name. Changes of a map do not change the file."""
    maps: dict[Any, Any] = {}
    for name, descriptor in zip(names, descriptors, strict=True):
        maps[name] = mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
        os.close(descriptor)
    return maps


def result_files(unit: dict[str, Any]) -> list[str]:
    """Return names for the files of the results of other calls."""
    return [f"{place}/{name}" for place, result in enumerate(unit.get("results", [])) for name in result["files"]]


def result_locations(unit: dict[str, Any]) -> dict[Any, Any]:
    """Return the locations of the results of other calls, keyed by their positions in the call."""
    return {
        place: base64.b64decode(value) if isinstance(value, str) else tuple(f"{place}/{name}" for name in value)
        for place, value in enumerate(result["value"] for result in unit.get("results", []))
    }


class ResultsMissing(Exception):
    """The runner did not send the results of other calls. The client then makes the call again and sends them."""


class Unpickler(pickle.Unpickler):
    """Unpickler that replaces the location of a value by the value.

    A location is a pickle, the names of files, or the position of another call's result.
    """

    def __init__(self, file: Any, files: dict[Any, Any], buffers: Sequence[Any] = ()) -> None:
        super().__init__(file, buffers=buffers)
        self._files = files
        self._values: dict[Any, Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return a class or function. Refuse bytecode of another Python, which can crash the process."""
        if name == "_make_function" and CLIENT not in ("", HERE):
            raise RuntimeError(
                f"a function pickled by Python {CLIENT} cannot run in the runner's Python {HERE}; call a function of a "
                f'module, pass python="{CLIENT}", or use Python {HERE} in the client'
            )
        try:
            return super().find_class(module, name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "cloudpickle":
                raise
            words = (
                f"{sys.executable} on the runner lacks cloudpickle; install it there, or call a function of a module"
            )
            raise RuntimeError(words) from error

    def persistent_load(self, location: Any) -> Any:
        if location not in self._values:
            self._values[location] = self._load(location)
        return self._values[location]

    def _load(self, location: Any) -> Any:
        if isinstance(location, int) and location not in self._files:
            raise ResultsMissing("this runner is too old to read the results of other calls; update it")
        if isinstance(location, int):
            location = self._files[location]
        if isinstance(location, bytes):
            return Unpickler(io.BytesIO(location), self._files).load()
        file, *buffers = [self._files[name] for name in location]
        file.seek(0)  # Another value can have the same pickle with other buffers
        return Unpickler(file, self._files, buffers).load()


def call(functions: dict[str, Any], job: str, text: str, files: dict[Any, Any]) -> dict[str, Any]:
    """Call the function of a job with its arguments, and return the answer to the runner."""
    try:
        function = functions[job]
        if isinstance(function, str):
            function = functions[job] = load(function, files)
        arguments, keywords = load(text, files)
        return answer_with(function(*arguments, **keywords))
    except BaseException as error:  # SystemExit too: the caller receives every exception
        return {"error": f"{type(error).__name__}: {error}", "value": describe(error)}


def load(text: str, files: dict[Any, Any]) -> Any:
    return Unpickler(io.BytesIO(base64.b64decode(text)), files).load()


def answer_with(value: Any) -> dict[str, Any]:
    """Return the answer with a value. The pickle and the buffers of a large value become files."""
    buffers: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        is_small = view.nbytes < BUFFER_BYTES or len(buffers) >= MOST_BUFFERS
        if not is_small:
            buffers.append(view)
        return is_small

    data = dump(value, keep)
    if not buffers and len(data) <= INLINE_BYTES:
        return {"value": base64.b64encode(data).decode()}
    parts: list[bytes | memoryview] = [data, *buffers]
    names = [f".value-{number}" for number in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        (FOLDER / name).write_bytes(part)
    return {"value": names, "files": names}


def describe(error: BaseException) -> list[str | None]:
    """Return an exception as [pickle or None, traceback]."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_globals is globals():
        trace = trace.tb_next  # Frames of this program do not help users
    text = "".join(traceback.format_exception(type(error), error, trace))[-MOST_EXCEPTION:]
    try:
        error.__traceback__ = None
        data = dump(error)
        pickle.loads(data)
    except BaseException:  # An exception can fail in any way when it is pickled
        return [None, text]
    return [base64.b64encode(data).decode() if len(data) <= MOST_EXCEPTION else None, text]


def dump(value: Any, keep: Any = None) -> bytes:
    """Pickle a value, by value if its class or function belongs to no module."""
    try:
        from cloudpickle import dumps
    except ImportError:
        from pickle import dumps
    data: bytes = dumps(value, protocol=5, buffer_callback=keep)
    return data


if __name__ == "__main__":
    main()
