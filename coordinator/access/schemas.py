"""Answers about tokens and logins, for the API's description and the tests."""

from __future__ import annotations

from coordinator.schemas import Answer, required


class Token(Answer):
    id: str
    name: str
    tenant: str
    scopes: list[str]
    created: str = required("RFC 3339, UTC.")
    expires: str | None = required("null: never.")
    used: str | None = required("Its last use, to the minute; null: never used.")
    labels: list[str] = required("Of the host of its worker, or that joins with it.")


class TokenList(Answer):
    tokens: list[Token] = required("Oldest first, those that have expired too.")


class CreatedToken(Answer):
    token: str = required("The secret. It is shown in this answer and never again.")
    id: str
    name: str
    tenant: str
    scopes: list[str]
    expires: str | None
    labels: list[str]


class Session(Answer):
    """Who asks."""

    tenant: str
    token_id: str | None = required("cluster-token with CLUSTER_TOKEN; null without a token.")
    token_name: str | None
    scopes: list[str]
    by_cookie: bool = required("True for a browser that is logged in.")
    token_needed: bool = required("False where the API answers without a token, too.")


class LoggedIn(Answer):
    csrf_token: str = required("What every request with the cookie sends as X-CSRF-Token.")
    tenant: str
    scopes: list[str]
    seconds: int = required("After which the login ends.")


class LoginCode(Answer):
    code: str = required("Logs in once, as who asked for it.")
    path: str = required("The pages' address with the code; what follows # is sent to no server.")
    seconds: int = required("For which the code can be used.")
