"""Tests lines of the logs of many units."""

from __future__ import annotations

from typing import Any

from coordinator.logs import excerpts
from coordinator.logs.sections import Sections
from jobs import errors


class Texts:
    """Logs by artifact. The artifact `gone` was deleted."""

    def __init__(self, **logs: bytes) -> None:
        self.logs = logs

    def size(self, _tenant: str, artifact: str, _unit: int) -> int:
        if artifact == "gone":
            raise errors.NotFound("artifact gone does not exist", field="unit")
        return len(self.logs.get(artifact, b""))

    def read(self, _tenant: str, artifact: str, _unit: int, _stream: str, start: int, limit: int) -> Any:
        return self.logs[artifact][start : start + limit], len(self.logs[artifact])

    def stderr(self, *_: object) -> Sections:
        raise errors.TooLarge("the streams cannot be separated", field="stream")


def unit(number: int, artifact: str | None) -> Any:
    return {"unit": number, "state": "done", "artifact": artifact}


def test_a_search_omits_logs_that_were_deleted() -> None:
    units = [unit(0, "gone"), unit(1, None), unit(2, "a")]
    found, count = excerpts.read(Texts(a=b"an Error\r\nok\n"), "t", units, "all", "eRROR", 5)  # type: ignore[arg-type]
    lines = [{"stream": "stdout", "text": "an Error"}]
    assert (found, count) == ([{"unit": 2, "state": "done", "lines": lines, "omitted": 0}], 3)


def test_the_end_of_a_log_begins_with_a_whole_line() -> None:
    assert [line["text"] for line in excerpts.split_lines(b"rest of a line\nlast", 10, Sections())] == ["last"]
    assert [line["text"] for line in excerpts.split_lines(b"first\nlast\n", 0, Sections())] == ["first", "last"]
