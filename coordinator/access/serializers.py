"""Serialize tokens and sessions."""

from __future__ import annotations

from coordinator import decoding
from coordinator.access.principal import Principal
from jobs.store.tenancy.tokens import Token
from threads_protocol.answers import access as answers


def serialize_token(token: Token) -> answers.Token:
    """Return the response for a token, without its secret."""
    return {
        "id": token.id,
        "name": token.name,
        "tenant": token.tenant,
        "scopes": sorted(token.scopes),
        "created": decoding.format_ms(token.created),
        "expires": decoding.format_optional_ms(token.expires),
        "used": decoding.format_optional_ms(token.used),
        "labels": list(token.labels),
    }


def serialize_session(principal: Principal, token: Token | None, is_token_required: bool) -> answers.Session:
    """Return the session response for a principal."""
    return {
        "tenant": principal.tenant,
        "token_id": principal.token or None,
        "token_name": token.name if token else None,
        "scopes": sorted(principal.scopes),
        "by_cookie": bool(principal.session),
        "token_needed": is_token_required,
    }
