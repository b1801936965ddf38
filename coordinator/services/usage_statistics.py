"""Usage statistics of services over the last minute. Pure functions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from jobs.store.services import RecentUsage
from threads_protocol.answers import services as answers

#: Ratio of adjacent histogram buckets for times and speeds, so that a median is accurate to 5 %.
STEP = 1.09
_LEAST = 1e-4
#: HTTP status of a successful request.
#: Status that is recorded for a request whose client disconnected.
_DONE, _LEFT = 200, 499
_TOO_MANY, _SERVERS = 429, 500
REQUESTS, FAILED, PROMPT, ANSWER = "requests", "failed", "prompt", "answer"
SECONDS, FIRST, SPEED = "seconds", "first", "speed"


@dataclass(kw_only=True)
class Exchange:
    """A request and its outcome, for usage statistics."""

    tenant: str
    model: str
    began: float
    #: ID of the service.
    service: str = ""
    status: int = 0
    first_seconds: float | None = None
    prompt_tokens: int = 0
    answer_tokens: int = 0
    seconds: float = 0.0


def counts(exchange: Exchange) -> Counter[str]:
    """Return the counters that a finished request increments."""
    failed = exchange.status != _LEFT and (exchange.status == _TOO_MANY or exchange.status >= _SERVERS)
    added = Counter({REQUESTS: 1, FAILED: int(failed), PROMPT: exchange.prompt_tokens, ANSWER: exchange.answer_tokens})
    if exchange.status == _DONE:
        added[_metric_key(SECONDS, exchange.seconds)] = 1
    if exchange.first_seconds is not None:
        added[_metric_key(FIRST, exchange.first_seconds)] = 1
        streamed = exchange.seconds - exchange.first_seconds
        if exchange.answer_tokens > 1 and streamed > 0:
            added[_metric_key(SPEED, (exchange.answer_tokens - 1) / streamed)] = 1
    return +added


def _metric_key(name: str, value: float) -> str:
    return f"{name}|{math.floor(math.log(max(value, _LEAST), STEP))}"


def row(lately: RecentUsage) -> answers.LastMinute:
    """Return usage statistics of a service in the form of the API."""
    known = lately.counts
    requests, answer = known.get(REQUESTS, 0), known.get(ANSWER, 0)
    return {
        "seconds": round(lately.seconds, 1),
        "requests": requests,
        "failed": known.get(FAILED, 0),
        "prompt_tokens": known.get(PROMPT, 0),
        "answer_tokens": answer,
        "requests_per_second": requests / lately.seconds,
        "answer_tokens_per_second": answer / lately.seconds,
        "median_seconds": median(known, SECONDS),
        "median_first_token_seconds": median(known, FIRST),
        "median_stream_tokens_per_second": median(known, SPEED),
    }


def median(known: Mapping[str, int], name: str) -> float | None:
    """Return the lower median of a histogram, accurate to 5 %, or None if it is empty."""
    places = sorted((int(what.split("|")[1]), count) for what, count in known.items() if what.startswith(f"{name}|"))
    half, passed = sum(count for _, count in places) / 2, 0
    for place, count in places:
        passed += count
        if passed >= half:
            return float(f"{STEP ** (place + 0.5):.3g}")
    return None
