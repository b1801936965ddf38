"""Read tokens and sessions for the API."""

from __future__ import annotations

from coordinator.access import serializers
from coordinator.access.principal import BOOTSTRAP, Principal
from jobs.store import Store
from threads_protocol.answers import access as answers


def list_tokens(store: Store) -> list[answers.Token]:
    """Return all API tokens, oldest first."""
    return [serializers.serialize_token(token) for token in store.tokens.all()]


def get_session(store: Store, principal: Principal, is_token_required: bool) -> answers.Session:
    """Return the session of a principal, with the name of its token."""
    token = store.tokens.get(principal.token) if principal.token not in ("", BOOTSTRAP) else None
    return serializers.serialize_session(principal, token, is_token_required)
