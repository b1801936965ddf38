"""Pickles of functions, arguments, values and exceptions. Large parts of a pickle are separate buffers."""

from __future__ import annotations

import base64
import builtins
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


#: Functions and classes in pickles of NumPy arrays, under the module names of NumPy 1.
_SAFE = frozenset(
    {
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy.core.multiarray", "scalar"),
        ("numpy.core.numeric", "_frombuffer"),
    }
)


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
    pickler = _Pickler(file, stream)
    pickler.dump(value)
    pickler.clear_memo()  # The pickler refers to itself, and would keep the value until the next garbage collection
    stream.data = file.getvalue()
    return stream


def text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def hash_of(part: memoryview) -> str:
    return hashlib.sha256(part).hexdigest()


class _SafeUnpickler(pickle.Unpickler):
    """Unpickler of JSON values, NumPy arrays and built-in exceptions. It calls no other code."""

    def find_class(self, module: str, name: str) -> Any:
        known = (module.replace("numpy._core", "numpy.core"), name) in _SAFE
        builtin = getattr(builtins, name, None) if module == "builtins" else None
        if known or (isinstance(builtin, type) and issubclass(builtin, Exception)):
            return super().find_class(module, name)
        raise CallFailed(f"the runner sent {module}.{name}, but safe=True accepts only JSON values and NumPy arrays")


def decode(text: str, *, safe: bool = False) -> Any:
    """Return the value of a pickle. Call this only with answers to calls of this client.

    With `safe`, raises CallFailed for values other than those of JSON and NumPy.
    """
    return _load(base64.b64decode(text), (), safe)


def join(parts: Sequence[bytearray], *, safe: bool = False) -> Any:
    """Return the value of a pickle with its buffers, as `decode`."""
    return _load(parts[0], parts[1:], safe)


def _load(data: bytes | bytearray, buffers: Sequence[bytearray], safe: bool) -> Any:
    if safe:
        return _SafeUnpickler(io.BytesIO(data), buffers=buffers).load()
    return pickle.loads(data, buffers=buffers)


def remote_exception(words: str, data: str | None, traceback: str, *, safe: bool = False) -> BaseException:
    """Return the exception of a call. Its cause is the traceback on the runner.

    `data` is the pickled exception, or None if it could not be pickled. `words` then describe it. With `safe`, they
    also describe an exception that is not built in.
    """
    try:
        loaded = None if data is None else decode(data, safe=safe)
    except CallFailed:
        loaded = None
    error = loaded if isinstance(loaded, BaseException) else CallFailed(words)
    error.__cause__ = RemoteTraceback(traceback)
    return error
