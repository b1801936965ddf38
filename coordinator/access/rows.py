"""Rows of tokens and of who asks, as the API shows them; `schemas.py` describes the same to clients."""

from __future__ import annotations

from typing import TypedDict

from coordinator import decoding
from coordinator.asker import Asker
from jobs.store.tokens import Token


class TokenRow(TypedDict):
    id: str
    name: str
    tenant: str
    scopes: list[str]
    created: str
    expires: str | None
    used: str | None
    labels: list[str]


class SessionRow(TypedDict):
    tenant: str
    token_id: str | None
    token_name: str | None
    scopes: list[str]
    by_cookie: bool
    token_needed: bool


def token_row(token: Token) -> TokenRow:
    """Return a token without its secret, which nobody has."""
    return {
        "id": token.id, "name": token.name, "tenant": token.tenant, "scopes": sorted(token.scopes),
        "created": decoding.moment_ms(str(token.created)), "expires": _moment(token.expires),
        "used": _moment(token.used), "labels": list(token.labels),
    }  # fmt: skip


def session_row(asker: Asker, token: Token | None, needed: bool) -> SessionRow:
    """Return who asks."""
    return {
        "tenant": asker.tenant, "token_id": asker.token or None, "token_name": token.name if token else None,
        "scopes": sorted(asker.scopes), "by_cookie": bool(asker.session), "token_needed": needed,
    }  # fmt: skip


def _moment(ms: int) -> str | None:
    return decoding.moment_ms(str(ms)) if ms else None
