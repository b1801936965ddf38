"""Make the answers about tokens, and about who asks."""

from __future__ import annotations

from coordinator import decoding
from coordinator.access.principal import Principal
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


def session_row(principal: Principal, token: Token | None, needed: bool) -> answers.Session:
    """Return who asks."""
    return {
        "tenant": principal.tenant,
        "token_id": principal.token or None,
        "token_name": token.name if token else None,
        "scopes": sorted(principal.scopes),
        "by_cookie": bool(principal.session),
        "token_needed": needed,
    }
