"""Types of responses about tokens and logins."""

from __future__ import annotations

from typing import Annotated

from threads_protocol.answers.fields import Answer, Count, Many, Moment, describe


class Token(Answer):
    id: str
    name: str
    tenant: str
    scopes: Many[str]
    created: Annotated[Moment, describe("Time of creation, in RFC 3339 and UTC.")]
    expires: Annotated[Moment | None, describe("Time of expiry; null: never.")]
    used: Annotated[Moment | None, describe("Time of the last use, to the minute; null: never used.")]
    labels: Annotated[Many[str], describe("Labels of the worker's host, or of the host that joins with this token.")]


class TokenList(Answer):
    tokens: Annotated[Many[Token], describe("All tokens, including expired ones, oldest first.")]


class CreatedToken(Answer):
    token: Annotated[str, describe("The secret. Only this response contains it.")]
    id: str
    name: str
    tenant: str
    scopes: Many[str]
    expires: Moment | None
    labels: Many[str]


class Session(Answer):
    """Owner and permissions of the token that sent the request."""

    tenant: str
    token_id: Annotated[str | None, describe("cluster-token if CLUSTER_TOKEN was used; null without a token.")]
    token_name: str | None
    scopes: Many[str]
    by_cookie: Annotated[bool, describe("True if the request was authenticated by a browser's cookie.")]
    token_needed: Annotated[bool, describe("False if the API also accepts requests without a token.")]


class LoggedIn(Answer):
    csrf_token: Annotated[str, describe("Value of the header X-CSRF-Token, which every request with the cookie needs.")]
    tenant: str
    scopes: Many[str]
    seconds: Annotated[Count, describe("Lifetime of the login in seconds.")]


class LoginCode(Answer):
    code: Annotated[str, describe("Single-use code that logs in as the principal that requested it.")]
    path: Annotated[
        str, describe("Path of the web pages with the code after #, which browsers do not send to servers.")
    ]
    seconds: Annotated[Count, describe("Lifetime of the code in seconds.")]
