"""Credentials of requests: who asks, by the token that a request carries."""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence

from coordinator.asker import ANYONE, OWNER, Asker
from jobs import errors, exposure
from jobs.settings import Settings

_MISSING = "send Authorization: Bearer TOKEN; the command reads CLUSTER_TOKEN"


class Credentials:
    """Tokens that this replica accepts."""

    def __init__(self, settings: Settings) -> None:
        self._cluster_tokens = _words(settings.cluster_token)
        self._needed = exposure.needs_token(settings)

    async def asker(self, bearer: str) -> Asker:
        """Return who asks with this bearer token. Unauthorized when it is unknown, or missing where one is needed."""
        if bearer and _is_one_of(bearer, self._cluster_tokens):
            return OWNER
        if bearer or self._needed:
            raise errors.Unauthorized(_MISSING)
        return ANYONE


def _words(text: str) -> list[str]:
    """Return the tokens of CLUSTER_TOKEN: several while one replaces another, with white space or commas between."""
    return [word for word in re.split(r"[\s,]+", text) if word]


def _is_one_of(given: str, tokens: Sequence[str]) -> bool:
    # All of them: it takes as long for the first as for the last.
    return sum(hmac.compare_digest(given.encode(), token.encode()) for token in tokens) > 0
