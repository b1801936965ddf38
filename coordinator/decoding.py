"""Reading what Redis holds as text: moments, numbers, JSON, names."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any


def format_seconds(seconds: float) -> str:
    """Return seconds since 1970 as the API writes them."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_ms(ms: int | str) -> str:
    """Return milliseconds since 1970 as the API writes them. ValueError for what is no moment."""
    try:
        return format_seconds(int(ms) / 1000)
    except OSError as error:  # what some platforms raise for a year that is out of their range
        raise ValueError(f"{ms} is no moment") from error


def format_optional_ms(ms: int | str | None) -> str | None:
    """Return milliseconds since 1970 as the API writes them; None for none, or 0."""
    return format_ms(ms) if ms and ms != "0" else None


def parse_finite(text: str) -> float:
    """Return the number. ValueError for infinities and NaN too."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number")
    return number


#: Made once: json.loads makes one for each text where it is given an option.
_DECODER = json.JSONDecoder(parse_constant=parse_finite)


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. ValueError for NaN and the like, which are no JSON."""
    return _DECODER.decode(text if isinstance(text, str) else text.decode(json.detect_encoding(text), "surrogatepass"))


def decode_names(members: Iterable[bytes]) -> list[str]:
    """Return names as text; what is no text names nothing that exists."""
    return [member.decode(errors="replace") for member in members]


def decode_fields(mapping: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return a hash as text."""
    return {key.decode(): value.decode() for key, value in mapping.items()}
