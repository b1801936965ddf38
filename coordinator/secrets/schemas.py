"""Answers about secrets, for the API's description and the tests. None has a value."""

from __future__ import annotations

from coordinator.schemas import Answer, required


class Secret(Answer):
    tenant: str
    name: str
    changed: str = required("When its value was set; RFC 3339, UTC.")
    key: str = required("Id of the key of SECRETS_KEY that opens it.")
    readable: bool = required("False where the coordinator that answers lacks that key.")


class SecretList(Answer):
    secrets: list[Secret] = required("By name.")
    key: str | None = required("Id of the key that encrypts; null: SECRETS_KEY is not set.")


class Rotated(Answer):
    key: str = required("Id of the key that encrypts.")
    rotated: int = required("Secrets that are under this key now and were not before.")
    unreadable: list[str] = required("Secrets that stay as they are, since no key opens them, as TENANT/NAME.")
