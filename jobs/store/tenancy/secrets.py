"""Encrypted secrets of tenants. Only coordinators have the encryption keys, in `coordinator/secrets`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.models import ANONYMOUS, Actor
from jobs.store import keys
from jobs.store.server.functions import Part

#: Pattern of secret names, which are also valid names of environment variables.
NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
#: Maximum number of secrets per tenant.
#: `MAX_BYTES` is the maximum size of a secret's value in bytes of UTF-8.
MAX_SECRETS, MAX_BYTES = 100, 64 << 10


@dataclass(frozen=True, kw_only=True)
class Sealed:
    """Encrypted value of a secret."""

    #: ID of the key that encrypted the value.
    key: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Secret:
    """Name and properties of a secret, without its value."""

    name: str
    #: ID of the key that encrypted the value.
    key: str
    #: Time of the last change in milliseconds since 1970, by Redis time.
    changed: int


class Secrets(Part):
    """Stores encrypted secrets of tenants in Redis."""

    def put(self, tenant: str, name: str, sealed: Sealed, actor: Actor = ANONYMOUS) -> str:
        """Set the value of a secret. Return `new`, `changed`, or the reason why the value was not stored.

        full: the tenant has MAX_SECRETS secrets. missing: the tenant is not registered.
        """
        reply: bytes = self._functions.run_acknowledged(
            "set_secret", tenant, name, sealed.key, _stored(sealed), MAX_SECRETS, *actor
        )
        return reply.decode()

    def reseal(self, tenant: str, name: str, before: Sealed, after: Sealed, actor: Actor = ANONYMOUS) -> bool:
        """Replace a secret's value by the same value, encrypted with another key. Return False if the secret has
        changed.
        """
        arguments = (tenant, name, _stored(before), after.key, _stored(after), *actor)
        return bool(self._functions.run_acknowledged("reseal_secret", *arguments))

    def remove(self, tenant: str, name: str, actor: Actor = ANONYMOUS) -> bool:
        """Delete a secret. Return False if it does not exist. This also works if Redis is full."""
        return bool(self._functions.run_acknowledged("delete_secret", tenant, name, *actor))

    def all(self, tenant: str) -> list[Secret]:
        """Return a tenant's secrets sorted by name, without their values."""
        [reply] = self._functions.read(("HGETALL", keys.secrets(tenant)))
        words = [item.decode(errors="replace") for item in reply]
        return sorted(map(_secret, words[::2], words[1::2]), key=lambda secret: secret.name)

    def sealed(self, tenant: str, names: Sequence[str]) -> dict[str, Sealed]:
        """Return the encrypted values of secrets by name. Secrets that do not exist are omitted."""
        if not names:
            return {}
        [replies] = self._functions.read(("HMGET", keys.secret(tenant), *names))
        return {name: _parsed(reply) for name, reply in zip(names, replies, strict=True) if reply}


def _stored(sealed: Sealed) -> str:
    return f"{sealed.key}.{sealed.text}"


def _parsed(stored: bytes) -> Sealed:
    key, _, text = stored.decode(errors="replace").partition(".")
    return Sealed(key=key, text=text)


def _secret(name: str, about: str) -> Secret:
    key, _, changed = about.partition("|")
    return Secret(name=name, key=key, changed=int(changed) if changed.isdigit() else 0)
