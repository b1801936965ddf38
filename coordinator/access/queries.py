"""Tokens as rows. Reads only."""

from __future__ import annotations

from coordinator.access import rows
from coordinator.access.principal import BOOTSTRAP, Principal
from jobs.store import Store
from threads_protocol.answers import access as answers


def token_list(store: Store) -> list[answers.Token]:
    """Return every token, oldest first."""
    return [rows.token_row(token) for token in store.tokens.all()]


def session(store: Store, principal: Principal, needed: bool) -> answers.Session:
    """Return who asks, with the name of the token."""
    token = store.tokens.get(principal.token) if principal.token not in ("", BOOTSTRAP) else None
    return rows.session_row(principal, token, needed)
