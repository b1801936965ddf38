"""Encrypt the values of secrets with SECRETS_KEY. Each ciphertext is bound to its tenant and name.

A key is any random text. Its SHA-256 is the key of Fernet (AES-128-CBC and HMAC-SHA256).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from jobs import errors
from jobs.settings import Settings
from jobs.store.tenancy.secrets import Sealed

#: Minimum number of characters of a key. `openssl rand -hex 32` prints 64.
SHORTEST = 32
#: Prefix added before hashing, so that other systems derive a different key from the same text.
_PURPOSE = b"threads-cluster secrets\0"
_MAKE_ONE = "SECRETS_KEY for every coordinator, such as the output of: openssl rand -hex 32 (docs/secrets.md)"


class UnusableKey(Exception):
    """SECRETS_KEY cannot be used. The message does not contain the key."""


class Keys:
    """Keys that encrypt and decrypt secrets. The constructor raises UnusableKey if a key is too short."""

    def __init__(self, texts: Sequence[str]) -> None:
        if any(len(text) < SHORTEST for text in texts):
            raise UnusableKey(f"SECRETS_KEY contains a key of fewer than {SHORTEST} characters; set {_MAKE_ONE}")
        #: Keys by ID. The first key encrypts new values.
        self._by_id = dict(map(create_key, texts))
        self._roots = [_root(text) for text in texts]

    @property
    def current(self) -> str | None:
        """Return the ID of the key that encrypts new values, or None if there is no key."""
        return next(iter(self._by_id), None)

    def require(self) -> str:
        """Return the ID of the key that encrypts new values. Raise MissingSetting if there is no key."""
        if self.current is None:
            raise errors.MissingSetting(f"secrets cannot be stored without a key; set {_MAKE_ONE}", field="SECRETS_KEY")
        return self.current

    def has(self, key_id: str) -> bool:
        """Return True if values encrypted with this key can be decrypted."""
        return key_id in self._by_id

    def derive(self, purpose: str, tenant: str) -> list[bytes]:
        """Return a tenant's keys for a purpose: 32 bytes derived from each key of SECRETS_KEY, in the same order."""
        context = json.dumps([purpose, tenant]).encode()
        return [HKDF(SHA256(), 32, None, context).derive(root) for root in self._roots]

    def seal(self, tenant: str, name: str, value: str) -> Sealed:
        """Encrypt a value. Raise MissingSetting if there is no key."""
        key_id = self.require()
        # Do not encode the value as JSON, in which each control character would need six bytes.
        plain = f"{json.dumps([tenant, name])}\n{value}".encode()
        return Sealed(key=key_id, text=self._by_id[key_id].encrypt(plain).decode())

    def open(self, tenant: str, name: str, sealed: Sealed) -> str:
        """Decrypt a value.

        Raise MissingSetting if its key is missing, and Broken if it was changed or belongs to another secret.
        """
        if not self.has(sealed.key):
            detail = f"secret {name} is encrypted with key {sealed.key}, which SECRETS_KEY lacks"
            hint = "add that key after the first one, or set the secret again"
            raise errors.MissingSetting(f"{detail}; {hint}", field="SECRETS_KEY")
        try:
            owner, value = _unpack(self._by_id[sealed.key].decrypt(sealed.text).decode())
        except (InvalidToken, ValueError):  # ValueError: the stored text is not ASCII
            owner, value = [], ""
        if owner != [tenant, name]:
            raise errors.Broken(f"the stored value of secret {name} was changed; set it again", field="name")
        return value


def check(settings: Settings) -> None:
    """Raise UnusableKey if SECRETS_KEY cannot be used."""
    Keys(settings.secrets_keys())


def _unpack(plain: str) -> tuple[list[str], str]:
    """Return the owner of a value, and the value. A single line is the older format [tenant, name, value]."""
    owner, line_end, value = plain.partition("\n")
    if line_end:
        return json.loads(owner), value
    *stored, last = json.loads(plain)
    return stored, str(last)


def create_key(text: str) -> tuple[str, Fernet]:
    """Return a key with its ID. The key cannot be derived from the ID."""
    key = _root(text)
    return hashlib.sha256(key).hexdigest()[:8], Fernet(base64.urlsafe_b64encode(key))


def _root(text: str) -> bytes:
    return hashlib.sha256(_PURPOSE + text.encode()).digest()
