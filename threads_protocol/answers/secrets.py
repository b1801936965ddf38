"""Responses about secrets. They never contain a secret's value."""

from __future__ import annotations

from typing import Annotated

from threads_protocol.answers.fields import Answer, Count, Many, Moment, describe


class Secret(Answer):
    tenant: str
    name: str
    changed: Annotated[Moment, describe("When its value was set; RFC 3339, UTC.")]
    key: Annotated[str, describe("Id of the key of SECRETS_KEY that opens it.")]
    readable: Annotated[bool, describe("False where the coordinator that answers lacks that key.")]


class SecretList(Answer):
    secrets: Annotated[Many[Secret], describe("By name.")]
    key: Annotated[str | None, describe("Id of the key that encrypts; null: SECRETS_KEY is not set.")]


class Rotated(Answer):
    key: Annotated[str, describe("Id of the key that encrypts.")]
    rotated: Annotated[Count, describe("Secrets that are under this key now and were not before.")]
    unreadable: Annotated[
        Many[str], describe("Secrets that stay as they are, since no key opens them, as TENANT/NAME.")
    ]
