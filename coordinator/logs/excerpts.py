"""Search the logs of many units, or read their last lines, with a bounded amount of work per request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from coordinator.logs.sections import Sections
from coordinator.logs.texts import Stream, Texts
from jobs import errors
from threads_protocol.answers import jobs
from threads_protocol.answers import logs as answers

#: Maximum number of units, bytes of logs and lines per response. Further units are left to the next request.
MOST_UNITS, _MOST_READ, MOST_LINES = 200, 16 << 20, 2000
#: Number of bytes at the end of a log that are read if no text is searched.
_END_BYTES = 64 << 10
#: Maximum length of a line in a response, in characters.
_LINE_CHARACTERS = 1000


def read(
    texts: Texts, tenant: str, units: Sequence[jobs.Unit], stream: Stream, search: str, most: int
) -> tuple[list[answers.UnitExcerpt], int]:
    """Return up to `most` lines of each unit, and how many of the units were read. At least one unit is read.

    With `search`, return the lines that contain the text, ignoring case. Otherwise, return the last lines.
    Units without lines are omitted.
    """
    found: list[answers.UnitExcerpt] = []
    lines = bytes_read = 0
    for number, unit in enumerate(units):
        if bytes_read >= _MOST_READ or lines >= MOST_LINES:
            return found, number
        size = _size(texts, tenant, unit)
        start = 0 if search else max(0, size - _END_BYTES)
        bytes_read += size - start
        row = _read_unit(texts, tenant, unit, stream, search, most, start, size) if size else None
        if row:
            found.append(row)
            lines += len(row["lines"])
    return found, len(units)


def _size(texts: Texts, tenant: str, unit: jobs.Unit) -> int:
    """Return the size of a unit's log, or 0 if it wrote nothing or its artifact was deleted."""
    try:
        return texts.size(tenant, unit["artifact"] or "", unit["unit"])
    except errors.NotFound:
        return 0


def _read_unit(
    texts: Texts, tenant: str, unit: jobs.Unit, stream: Stream, search: str, most: int, start: int, size: int
) -> answers.UnitExcerpt | None:
    artifact, number = unit["artifact"] or "", unit["unit"]
    read = texts.read(tenant, artifact, number, "all", start, size - start)
    try:
        stderr = texts.stderr(tenant, artifact, number)
    except (errors.Broken, errors.TooLarge):  # the streams cannot be separated
        stderr = Sections()
    matching = [
        line
        for line in split_lines(read[0] if read else b"", start, stderr)
        if stream in ("all", line["stream"]) and search.casefold() in line["text"].casefold()
    ]
    lines = matching[:most] if search else matching[-most:]
    omitted = len(matching) - len(lines)
    return {"unit": number, "state": unit["state"], "lines": lines, "omitted": omitted} if lines else None


def split_lines(data: bytes, start: int, stderr: Sections) -> Iterator[answers.LogLine]:
    """Yield the lines of a part of a log that begins at offset `start`. Omit the rest of a line that began earlier."""
    offset = start
    for index, line in enumerate(data.splitlines(keepends=True)):
        if index or not start:
            text = line.rstrip(b"\r\n").decode(errors="replace")
            name: Any = "stderr" if stderr.has(offset) else "stdout"
            yield {"stream": name, "text": text[:_LINE_CHARACTERS]}
        offset += len(line)
