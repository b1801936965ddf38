"""Convert text from Redis: timestamps, numbers, JSON and names."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any


def format_seconds(seconds: float) -> str:
    """Return seconds since 1970 as a timestamp of the API, such as 2026-01-31T12:00:00.000Z."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_ms(ms: int | str) -> str:
    """Return milliseconds since 1970 as a timestamp of the API. Raise ValueError if the time is out of range."""
    try:
        return format_seconds(int(ms) / 1000)
    except OSError as error:  # raised on some platforms if the year is out of range
        raise ValueError(f"{ms} ms is not a valid timestamp") from error


def format_optional_ms(ms: int | str | None) -> str | None:
    """Return milliseconds since 1970 as a timestamp of the API, or None if they are missing or 0."""
    return format_ms(ms) if ms and ms != "0" else None


def parse_finite(text: str) -> float:
    """Parse a number. Raise ValueError if it is not finite."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


#: Decoder shared by all calls, because json.loads would create a new decoder for each call.
_DECODER = json.JSONDecoder(parse_constant=parse_finite)


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON text. Raise ValueError if it is invalid, or contains NaN or an infinity."""
    return _DECODER.decode(text if isinstance(text, str) else text.decode(json.detect_encoding(text), "surrogatepass"))


def decode_names(members: Iterable[bytes]) -> list[str]:
    """Decode names from UTF-8. Invalid bytes are replaced."""
    return [member.decode(errors="replace") for member in members]


def decode_fields(mapping: Mapping[bytes, bytes]) -> dict[str, str]:
    """Decode the fields of a Redis hash."""
    return {key.decode(): value.decode() for key, value in mapping.items()}
