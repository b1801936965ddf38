"""Signatures of webhooks, as the Standard Webhooks specification has them.

Each tenant has a key of its own, derived from SECRETS_KEY, so that nothing about it is stored.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from coordinator.secrets.keys import Keys
from jobs import errors

_PURPOSE = "webhooks"


def require(keys: Keys) -> None:
    """Raise Conflict where nothing can be signed, naming what to set."""
    if keys.current is None:
        why = "this cluster sends no webhooks: they are signed with keys that are made of SECRETS_KEY, which is not set"
        raise errors.Conflict(f"{why}; set it for every coordinator (docs/webhooks.md)", field="SECRETS_KEY")


def export_key(keys: Keys, tenant: str, generation: int = 0) -> str:
    """Return a tenant's key as its receivers are given it: whsec_ and base64. Conflict without SECRETS_KEY."""
    require(keys)
    return f"whsec_{base64.b64encode(_derive_keys(keys, tenant, generation)[0]).decode()}"


def headers(keys: Keys, tenant: str, delivery: str, seconds: int, body: bytes, generation: int = 0) -> dict[str, str]:
    """Return the headers of a delivery that is sent now, in seconds since 1970.

    One signature for each key of SECRETS_KEY: while one replaces another, receivers may know either.
    """
    signed = f"{delivery}.{seconds}.".encode() + body
    digests = [hmac.new(key, signed, hashlib.sha256).digest() for key in _derive_keys(keys, tenant, generation)]
    return {
        "webhook-id": delivery,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests),
    }


def _derive_keys(keys: Keys, tenant: str, generation: int) -> list[bytes]:
    """Return a tenant's keys. One of a name that others had before, `generation` of them, has keys of its own."""
    return keys.derive(_PURPOSE, f"{tenant}/{generation}" if generation else tenant)
