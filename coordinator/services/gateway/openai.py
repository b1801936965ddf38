"""Fields and errors of the OpenAI API, as its clients expect them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from jobs import errors

#: Path prefix of the API.
PREFIX = "/v1"
#: JSON key of the token counts.
#: Pattern of the token counts.
#: Maximum size of the token counts in bytes.
#: Maximum plausible number of tokens.
_USAGE, _COUNTS, _MOST_USAGE, _MOST_TOKENS = b'"usage"', re.compile(rb"\s*:\s*({.*)", re.DOTALL), 4096, 1 << 32
#: Names of token counts in completions, responses and messages. Messages count cached parts of a prompt separately.
_COMPLETION = ("prompt_tokens", "completion_tokens")
_INPUT, _OUTPUT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"), "output_tokens"
#: Maximum number of `usage` keys to try, from the end of the response.
_TRIES = 100


class UnknownModel(errors.NotFound):
    """The tenant has no model with this name."""


class UnknownPath(errors.NotFound):
    """The path does not exist."""


class LacksCall(errors.NotFound):
    """The engine does not support this call."""


class NoReplica(errors.Unavailable):
    """No ready replica exists."""

    def __init__(self, detail: str, *, because: str, seconds: int = 5) -> None:
        super().__init__(detail)
        self.extra = {"waiting_because": because}
        #: Seconds after which the client can retry.
        self.seconds = seconds


class BadUpstream(errors.ClusterError):
    """The replica's response is invalid."""

    status = 502


class TooLate(errors.ClusterError):
    """The replica took too long."""

    status = 504


def model(body: Any) -> str:
    """Return the model name in a request body. Raises InvalidRequest if the body names no model."""
    if not isinstance(body, dict):
        raise errors.InvalidRequest("the body must be an object", field="body")
    name = body.get("model")
    if not isinstance(name, str) or not name:
        raise errors.InvalidRequest("model: must be a string; GET /v1/models lists the models", field="model")
    return name


def usage(answer: bytes | bytearray) -> Any:
    """Return the last token counts in a response, or None. Does not parse the rest, which can be megabytes."""
    at = len(answer)
    for _ in range(_TRIES):
        if (at := answer.rfind(_USAGE, 0, at)) < 0:
            return None
        if found := _COUNTS.match(answer[at + len(_USAGE) : at + _MOST_USAGE]):
            return _first_value(found[1].decode(errors="replace"))
    return None


def _first_value(text: str) -> Any:
    try:
        return json.JSONDecoder().raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None


def counts(usage: Any) -> dict[str, int]:
    """Return the valid token counts in a `usage` object, by their API names."""
    known: Mapping[str, Any] = usage if isinstance(usage, dict) else {}
    return {name: known[name] for name in (*_COMPLETION, *_INPUT, _OUTPUT) if _is_count(known.get(name))}


def tokens(usage: Any) -> tuple[int, int]:
    """Return the token counts of prompt and answer, 0 for invalid counts."""
    known = counts(usage)
    prompt, answer = sum(known.get(name, 0) for name in _INPUT), known.get(_OUTPUT, 0)
    return known.get(_COMPLETION[0], prompt), known.get(_COMPLETION[1], answer)


def _is_count(given: Any) -> bool:
    return type(given) is int and 0 <= given <= _MOST_TOKENS
