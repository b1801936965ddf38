"""Words of OpenAI's API, so that its clients raise what they should and read what they know."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from jobs import errors

#: Beginning of its paths.
PREFIX = "/v1"
#: Name of the counts of an answer and what follows it, bytes of them at most, and the largest count that is believed.
_USAGE, _COUNTS, _MOST_USAGE, _MOST_TOKENS = b'"usage"', re.compile(rb"\s*:\s*({.*)", re.DOTALL), 4096, 1 << 32
#: Names of the counts of prompt and answer in completions, and in responses and messages. Messages count separately the
#: parts of a prompt that come from the cache or are added to it.
_COMPLETION = ("prompt_tokens", "completion_tokens")
_INPUT, _OUTPUT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"), "output_tokens"
#: Places from the end at which they are looked for.
_TRIES = 100


class UnknownModel(errors.NotFound):
    """There is no such model."""


class UnknownPath(errors.NotFound):
    """The path does not exist."""


class LacksCall(errors.NotFound):
    """The engine does not answer this call."""


class NoReplica(errors.Unavailable):
    """No replica can answer."""

    def __init__(self, detail: str, *, because: str, seconds: int = 5) -> None:
        super().__init__(detail)
        self.extra = {"waiting_because": because}
        #: Seconds until there may be one.
        self.seconds = seconds


class BadUpstream(errors.ClusterError):
    """The replica did not answer as it should."""

    status = 502


class TooLate(errors.ClusterError):
    """The replica took too long."""

    status = 504


def model(body: Any) -> str:
    """Return the model that a body asks for. InvalidRequest where it names none."""
    if not isinstance(body, dict):
        raise errors.InvalidRequest("the body must be an object", field="body")
    name = body.get("model")
    if not isinstance(name, str) or not name:
        raise errors.InvalidRequest("model: a text is needed; GET /v1/models lists what there is", field="model")
    return name


def usage(answer: bytes | bytearray) -> Any:
    """Return the counts of an answer, the last that there are; None for none. The rest of it, MiB, is not read."""
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
    """Return the counts of tokens in a `usage`, by their names in the APIs; leave out values that are not counts."""
    known: Mapping[str, Any] = usage if isinstance(usage, dict) else {}
    return {name: known[name] for name in (*_COMPLETION, *_INPUT, _OUTPUT) if _is_count(known.get(name))}


def tokens(usage: Any) -> tuple[int, int]:
    """Return tokens of prompt and answer; 0 for what is no count."""
    known = counts(usage)
    prompt, answer = sum(known.get(name, 0) for name in _INPUT), known.get(_OUTPUT, 0)
    return known.get(_COMPLETION[0], prompt), known.get(_COMPLETION[1], answer)


def _is_count(given: Any) -> bool:
    return type(given) is int and 0 <= given <= _MOST_TOKENS
