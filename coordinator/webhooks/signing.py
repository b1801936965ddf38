"""Sign webhooks according to the Standard Webhooks specification.

Each tenant's key is derived from SECRETS_KEY, so no key is stored.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from coordinator.secrets.keys import Keys
from jobs import errors

_PURPOSE = "webhooks"


def require(keys: Keys) -> None:
    """Raise Conflict if SECRETS_KEY is not set."""
    if keys.current is None:
        why = "this cluster sends no webhooks: their signing keys are derived from SECRETS_KEY, which is not set"
        raise errors.Conflict(f"{why}; set it for all coordinators (docs/webhooks.md)", field="SECRETS_KEY")


def export_key(keys: Keys, tenant: str, generation: int = 0) -> str:
    """Return a tenant's key in the format that receivers need. Raises Conflict without SECRETS_KEY."""
    require(keys)
    return f"whsec_{base64.b64encode(_derive_keys(keys, tenant, generation)[0]).decode()}"


def headers(keys: Keys, tenant: str, delivery: str, seconds: int, body: bytes, generation: int = 0) -> dict[str, str]:
    """Return the headers of a delivery. `seconds` is the time of sending in seconds since 1970.

    There is one signature for each key of SECRETS_KEY, since receivers may know the old or the new key during a
    rotation.
    """
    signed = f"{delivery}.{seconds}.".encode() + body
    digests = [hmac.new(key, signed, hashlib.sha256).digest() for key in _derive_keys(keys, tenant, generation)]
    return {
        "webhook-id": delivery,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests),
    }


def _derive_keys(keys: Keys, tenant: str, generation: int) -> list[bytes]:
    """Return the signing keys of a tenant.

    Each generation, which counts earlier tenants of the same name, has different keys.
    """
    return keys.derive(_PURPOSE, f"{tenant}/{generation}" if generation else tenant)
