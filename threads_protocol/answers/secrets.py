"""Types of responses about secrets. They never contain the value of a secret."""

from __future__ import annotations

from typing import Annotated

from threads_protocol.answers.fields import Answer, Count, Many, Moment, describe


class Secret(Answer):
    tenant: str
    name: str
    changed: Annotated[Moment, describe("Time when the value was set, in RFC 3339 and UTC.")]
    key: Annotated[str, describe("ID of the key in SECRETS_KEY that encrypted the value.")]
    readable: Annotated[bool, describe("False if the responding coordinator lacks that key.")]


class SecretList(Answer):
    secrets: Annotated[Many[Secret], describe("Secrets, sorted by name.")]
    key: Annotated[str | None, describe("ID of the encryption key; null if SECRETS_KEY is not set.")]


class Rotated(Answer):
    key: Annotated[str, describe("ID of the encryption key.")]
    rotated: Annotated[Count, describe("Number of secrets that were re-encrypted with this key.")]
    unreadable: Annotated[Many[str], describe("Secrets, as TENANT/NAME, that no key decrypts and that stay unchanged.")]
