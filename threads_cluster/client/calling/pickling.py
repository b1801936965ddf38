"""Pickles of functions, arguments, values and exceptions. Large parts of a pickle are separate buffers."""

from __future__ import annotations

import base64
import hashlib
import io
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from threads_cluster.client.calling.references import Location, Reference
from threads_cluster.errors import CallFailed, RemoteTraceback

#: Maximum size in bytes of a pickle that travels in a call. A larger one travels as a file.
INLINE_BYTES = 64 << 10
#: Maximum size in bytes of the pickle of a function that travels in a job, whose parameters have 63 KiB in total.
INLINE_FUNCTION_BYTES = 16 << 10
#: Size in bytes from which a buffer, such as the data of an array, is a file.
_BUFFER_BYTES = 64 << 10
#: Maximum number of buffers of a value that become files. Further buffers are copied into the pickle.
_MOST_BUFFERS = 32


@dataclass(kw_only=True)
class Stream:
    """Pickle of a value, its large buffers, and the references inside of the value."""

    data: bytes = b""
    buffers: list[memoryview] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)

    @property
    def parts(self) -> list[memoryview]:
        return [memoryview(self.data), *self.buffers]


@dataclass(frozen=True, kw_only=True)
class Pickled:
    """Pickle as text, and the files that a runner needs to load it."""

    text: str
    #: Sizes in bytes of the files, keyed by SHA-256.
    sizes: Mapping[str, int] = field(default_factory=dict)
    #: Contents of the files that are not uploaded yet.
    contents: dict[str, memoryview] = field(default_factory=dict)
    #: References that must exist until the pickle belongs to a job.
    references: list[Reference] = field(default_factory=list)

    def forget_contents(self) -> None:
        """Release the memory and the references, because a job has the files now."""
        self.contents.clear()
        self.references.clear()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickler that replaces references by their locations. Functions and classes of scripts are pickled by value."""

    def __init__(self, file: io.BytesIO, stream: Stream) -> None:
        super().__init__(file, protocol=5, buffer_callback=self._keep)
        self._stream = stream

    def persistent_id(self, value: Any) -> Location | None:
        if type(value) is not Reference:
            return None
        self._stream.references.append(value)
        return value.location

    def _keep(self, buffer: pickle.PickleBuffer) -> bool:
        """Keep a large buffer out of the pickle. Return True if the buffer must be copied into the pickle."""
        view = buffer.raw()
        if view.nbytes < _BUFFER_BYTES or len(self._stream.buffers) >= _MOST_BUFFERS:
            return True
        self._stream.buffers.append(view)
        return False


def dump(value: Any) -> Stream:
    """Pickle a value. The buffers are views of the value's memory."""
    stream, file = Stream(), io.BytesIO()
    _Pickler(file, stream).dump(value)
    stream.data = file.getvalue()
    return stream


def text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def hash_of(part: memoryview) -> str:
    return hashlib.sha256(part).hexdigest()


def decode(text: str) -> Any:
    """Return the value of a pickle. Call this only with answers to calls of this client."""
    return pickle.loads(base64.b64decode(text))


def join(parts: Sequence[bytearray]) -> Any:
    """Return the value of a pickle with its buffers. Call this only with answers to calls of this client."""
    return pickle.loads(parts[0], buffers=parts[1:])


def remote_exception(words: str, data: str | None, traceback: str) -> BaseException:
    """Return the exception of a call. Its cause is the traceback on the runner.

    `data` is the pickled exception, or None if it could not be pickled. `words` then describe it.
    """
    error: BaseException = CallFailed(words) if data is None else decode(data)
    error.__cause__ = RemoteTraceback(traceback)
    return error
