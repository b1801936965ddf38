"""Tests decoders of untrusted bytes: any input is decoded or rejected with the decoder's own error."""

from __future__ import annotations

import json
import random
import zlib
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coordinator.fleet import routes as fleet_routes
from coordinator.jobs import result_routes, submission_routes, submissions
from coordinator.server import http
from coordinator.telemetry import history
from jobs import errors, marks
from jobs.encoding import packed
from tests.hostile import bodies, counts, exploring
from threads_cluster.client import sse

_BLOCK = history.pack([(1, {"jobs.done": 1.0, "x": 2.5}), (2, {"x": 3.0})])
_PACKED = packed.pack({"start": "1"}, {"a": array("H", [1, 2, 3]), "b": array("d", [0.5])})
_STREAM = 'retry: 2000\n\nid: 1-1\nevent: x\ndata: {"a": 1}\n\n: ping\n\ndata: \u2028\r\n\r\nid: 2-2\ndata\n\n'.encode()


def _decompressed(data: bytes) -> Any:
    """Decompress the block first, because a changed zlib stream usually fails at its checksum."""
    return history.unpack(zlib.compress(data))


def _read_stream(data: bytes) -> list[str]:
    reader = sse.Reader()
    return list(reader.messages(data[place : place + 7] for place in range(0, len(data), 7)))


def _read_marks(data: bytes) -> Any:
    field, _, payload = data.decode("latin-1").partition("=")
    return marks.parse_marks("x", {field: payload})


def _read_body(model: Any) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        return http.parse(model, json.loads(data))

    return read


#: Decoders by name, with a valid input and the errors that reject an input.
DECODERS: dict[str, tuple[Callable[[bytes], Any], bytes, tuple[type[Exception], ...]]] = {
    "packed columns": (packed.unpack, _PACKED, (ValueError,)),
    "blocks of the history": (history.unpack, _BLOCK, (ValueError,)),
    "columns of the history": (_decompressed, zlib.decompress(_BLOCK), (ValueError,)),
    "marks": (_read_marks, b"1-1000=null", (ValueError,)),
    "server-sent events": (_read_stream, _STREAM, ()),
    "submissions": (_read_body(submissions.Submission), bodies.VALID[0], (ValueError, errors.InvalidRequest)),
    "batches": (_read_body(submission_routes.Batch), bodies.VALID[1], (ValueError, errors.InvalidRequest)),
    "ids": (_read_body(result_routes.Ids), bodies.VALID[2], (ValueError, errors.InvalidRequest)),
    "drains": (_read_body(fleet_routes.Drain), bodies.VALID[3], (ValueError, errors.InvalidRequest)),
}


def mutated(valid: bytes, draw: random.Random) -> Iterator[bytes]:
    """Yield endless inputs, most of them similar to valid ones."""
    while True:
        data = bytearray(valid)
        for _ in range(draw.randint(0, 4)):
            place = draw.randint(0, len(data))
            match draw.randrange(4):
                case 0:
                    data[place:place] = draw.randbytes(draw.choice((1, 2, 8)))
                case 1:
                    del data[place : place + draw.choice((1, 2, 30))]
                case 2:
                    data[place:place] = draw.choice(bodies.TOKENS)
                case _:
                    data[place : place + 1] = bytes([draw.randrange(256)])
        yield bytes(data) if draw.random() < 0.95 else draw.randbytes(draw.randint(0, 40))


@pytest.mark.parametrize("name", sorted(DECODERS))
def test_any_bytes_are_read_or_refused(name: str, plan: exploring.Plan) -> None:
    tally = counts.tally(f"decoder of {name}")
    read, valid, own = DECODERS[name]
    read(valid)
    for draw in plan.random(share=0.01):
        for _, data in zip(range(1000), mutated(valid, draw), strict=False):
            try:
                read(data)
                tally.accept()
            except own as refusal:
                tally.refuse(type(refusal).__name__)
            except Exception as error:
                tally.wrong(f"{data!r}: {type(error).__name__}: {error}")
    tally.check()
