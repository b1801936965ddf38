"""Tokens as rows. Reads only."""

from __future__ import annotations

from coordinator.access import rows
from coordinator.access.asker import BOOTSTRAP, Asker
from jobs.store import Store
from threads_protocol.answers import access as answers


def token_list(store: Store) -> list[answers.Token]:
    """Return every token, oldest first."""
    return [rows.token_row(token) for token in store.tokens.all()]


def session(store: Store, asker: Asker, needed: bool) -> answers.Session:
    """Return who asks, with the name of the token."""
    token = store.tokens.get(asker.token) if asker.token not in ("", BOOTSTRAP) else None
    return rows.session_row(asker, token, needed)
