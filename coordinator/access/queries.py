"""Tokens as rows. Reads only."""

from __future__ import annotations

from coordinator.access import rows
from coordinator.access.rows import SessionRow, TokenRow
from coordinator.asker import BOOTSTRAP, Asker
from jobs.store import Store


def token_list(store: Store) -> list[TokenRow]:
    """Return every token, oldest first."""
    return [rows.token_row(token) for token in store.tokens.all()]


def session(store: Store, asker: Asker, needed: bool) -> SessionRow:
    """Return who asks, with the name of the token."""
    token = store.tokens.get(asker.token) if asker.token not in ("", BOOTSTRAP) else None
    return rows.session_row(asker, token, needed)
