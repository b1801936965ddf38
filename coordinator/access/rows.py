"""Make the answers about tokens, and about who asks."""

from __future__ import annotations

from coordinator import decoding
from coordinator.access.asker import Asker
from jobs.store.tenancy.tokens import Token
from threads_protocol.answers import access as answers


def token_row(token: Token) -> answers.Token:
    """Return a token without its secret, which nobody has."""
    return {
        "id": token.id,
        "name": token.name,
        "tenant": token.tenant,
        "scopes": sorted(token.scopes),
        "created": decoding.moment_ms(token.created),
        "expires": decoding.optional_moment(token.expires),
        "used": decoding.optional_moment(token.used),
        "labels": list(token.labels),
    }


def session_row(asker: Asker, token: Token | None, needed: bool) -> answers.Session:
    """Return who asks."""
    return {
        "tenant": asker.tenant,
        "token_id": asker.token or None,
        "token_name": token.name if token else None,
        "scopes": sorted(asker.scopes),
        "by_cookie": bool(asker.session),
        "token_needed": needed,
    }
