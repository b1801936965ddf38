"""Responses about tokens and logins."""

from __future__ import annotations

from typing import Annotated

from threads_protocol.answers.fields import Answer, Count, Many, Moment, describe


class Token(Answer):
    id: str
    name: str
    tenant: str
    scopes: Many[str]
    created: Annotated[Moment, describe("RFC 3339, UTC.")]
    expires: Annotated[Moment | None, describe("null: never.")]
    used: Annotated[Moment | None, describe("Its last use, to the minute; null: never used.")]
    labels: Annotated[Many[str], describe("Of the host of its worker, or that joins with it.")]


class TokenList(Answer):
    tokens: Annotated[Many[Token], describe("Oldest first, those that have expired too.")]


class CreatedToken(Answer):
    token: Annotated[str, describe("The secret. It is shown in this answer and never again.")]
    id: str
    name: str
    tenant: str
    scopes: Many[str]
    expires: Moment | None
    labels: Many[str]


class Session(Answer):
    """The principal that sent the request."""

    tenant: str
    token_id: Annotated[str | None, describe("cluster-token with CLUSTER_TOKEN; null without a token.")]
    token_name: str | None
    scopes: Many[str]
    by_cookie: Annotated[bool, describe("True for a browser that is logged in.")]
    token_needed: Annotated[bool, describe("False where the API answers without a token, too.")]


class LoggedIn(Answer):
    csrf_token: Annotated[str, describe("What every request with the cookie sends as X-CSRF-Token.")]
    tenant: str
    scopes: Many[str]
    seconds: Annotated[Count, describe("After which the login ends.")]


class LoginCode(Answer):
    code: Annotated[str, describe("Logs in once, as who asked for it.")]
    path: Annotated[str, describe("The pages' address with the code; what follows # is sent to no server.")]
    seconds: Annotated[Count, describe("For which the code can be used.")]
