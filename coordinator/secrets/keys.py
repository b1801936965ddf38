"""Keys of SECRETS_KEY: encrypt values of secrets, each bound to its tenant and its name.

A key is any random text; its SHA-256 is what encrypts, with Fernet (AES-128-CBC and HMAC-SHA256).
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

#: Characters of a key at least; `openssl rand -hex 32` prints 64.
SHORTEST = 32
#: Mixed into keys, so that the same text used elsewhere is another key there.
_PURPOSE = b"threads-cluster secrets\0"
_MAKE_ONE = "SECRETS_KEY for every coordinator, such as the output of: openssl rand -hex 32 (docs/secrets.md)"


class UnusableKey(Exception):
    """SECRETS_KEY cannot be used; the message does not repeat it."""


class Keys:
    """Keys of one coordinator. Raises UnusableKey for one that is too short."""

    def __init__(self, texts: Sequence[str]) -> None:
        if any(len(text) < SHORTEST for text in texts):
            raise UnusableKey(f"SECRETS_KEY holds a key of fewer than {SHORTEST} characters; set {_MAKE_ONE}")
        #: By id; the first encrypts.
        self._by_id = dict(map(with_id, texts))
        self._roots = [_root(text) for text in texts]

    @property
    def current(self) -> str | None:
        """Id of the key that encrypts; None when there is none."""
        return next(iter(self._by_id), None)

    def require(self) -> str:
        """Return the id of the key that encrypts. MissingSetting without one."""
        if self.current is None:
            raise errors.MissingSetting(f"secrets cannot be stored without a key; set {_MAKE_ONE}", field="SECRETS_KEY")
        return self.current

    def has(self, key_id: str) -> bool:
        """Return True when values under this key can be read."""
        return key_id in self._by_id

    def derived(self, purpose: str, tenant: str) -> list[bytes]:
        """Return a tenant's keys for a purpose, 32 bytes each: one of each key, in their order."""
        about = json.dumps([purpose, tenant]).encode()
        return [HKDF(SHA256(), 32, None, about).derive(root) for root in self._roots]

    def seal(self, tenant: str, name: str, value: str) -> Sealed:
        """Encrypt a value. MissingSetting without a key."""
        key_id = self.require()
        # The value as it is, behind a line that says whose it is: as JSON, controls would take six bytes each.
        plain = f"{json.dumps([tenant, name])}\n{value}".encode()
        return Sealed(key=key_id, text=self._by_id[key_id].encrypt(plain).decode())

    def open(self, tenant: str, name: str, sealed: Sealed) -> str:
        """Decrypt a value. MissingSetting without its key; Broken when it was changed, or sealed for another secret."""
        if not self.has(sealed.key):
            detail = f"secret {name} is encrypted with key {sealed.key}, which SECRETS_KEY lacks"
            hint = "add that key behind the first one, or set the secret again"
            raise errors.MissingSetting(f"{detail}; {hint}", field="SECRETS_KEY")
        try:
            owner, value = _unpacked(self._by_id[sealed.key].decrypt(sealed.text).decode())
        except (InvalidToken, ValueError):  # the latter for text that is not ASCII
            owner, value = [], ""
        if owner != [tenant, name]:
            raise errors.Broken(f"what is stored of secret {name} was changed; set it again", field="name")
        return value


def check(settings: Settings) -> None:
    """Raise UnusableKey when the coordinator cannot use its SECRETS_KEY."""
    Keys(settings.secrets_keys())


def _unpacked(plain: str) -> tuple[list[str], str]:
    """Return whose a value is, and the value. One line is how they were stored before: [tenant, name, value]."""
    owner, line_end, value = plain.partition("\n")
    if line_end:
        return json.loads(owner), value
    *stored, last = json.loads(plain)
    return stored, str(last)


def with_id(text: str) -> tuple[str, Fernet]:
    """Return a key by its id, from which nobody finds the key."""
    key = _root(text)
    return hashlib.sha256(key).hexdigest()[:8], Fernet(base64.urlsafe_b64encode(key))


def _root(text: str) -> bytes:
    return hashlib.sha256(_PURPOSE + text.encode()).digest()
