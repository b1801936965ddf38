"""Tickets, which give one browser access to the page of one service. A ticket is sent in a link or in a cookie.

The key of the leading replica signs a ticket, so the ticket becomes invalid with that replica. A ticket names the token
and the login of its user, and becomes invalid with either. A ticket gives access to only one page, so it can be sent
where scripts cannot add a header: pages, their files, WebSockets.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from coordinator.access.credentials import Credentials
from coordinator.access.principal import BOOTSTRAP, Principal

#: Validity of a link and of a browser's access in seconds.
LINK_SECONDS, POLL_SECONDS = 600, 12 * 3600
_TICKET = re.compile(
    r"(?P<said>(?P<until>[0-9]{1,12})\.(?P<token>[a-z0-9-]{1,32})\.(?P<session>[a-z0-9]{0,32}))"
    r"\.(?P<signature>[A-Za-z0-9_-]{43})"
)


class Use(StrEnum):
    """How a ticket is sent: in a link or in a cookie. A link's ticket is not valid as a cookie."""

    LINK = "link"
    COOKIE = "cookie"


@dataclass(frozen=True, kw_only=True)
class Place:
    """The page for which a ticket is valid."""

    service_id: str
    #: Key of the leading replica.
    key: str


def issue(place: Place, use: Use, principal: Principal, seconds: int) -> str:
    """Return a ticket that gives a principal with a token access to a page for `seconds`."""
    said = f"{int(time.time()) + seconds}.{principal.token}.{principal.session}"
    return f"{said}.{_signature(place, use, said, principal.bootstrap)}"


async def holder(text: str, place: Place, use: Use, credentials: Credentials) -> Principal | None:
    """Return the owner of a ticket, or None if it is forged, expired, for another page, or of a revoked token."""
    if not (parts := _TICKET.fullmatch(text)) or int(parts["until"]) <= time.time():
        return None
    for bootstrap in _bootstraps(parts["token"], credentials):
        if hmac.compare_digest(parts["signature"], _signature(place, use, parts["said"], bootstrap)):
            principal = await credentials.principal_by_token_id(parts["token"], bootstrap)
            principal = principal and replace(principal, session=parts["session"])
            return principal if principal and await credentials.is_valid(principal) else None
    return None


def _bootstraps(token: str, credentials: Credentials) -> Iterable[str]:
    """Return the digests of all cluster tokens if the ticket's token is a cluster token, else one empty string."""
    return credentials.cluster_token_digests() if token == BOOTSTRAP else ("",)


def _signature(place: Place, use: Use, said: str, bootstrap: str) -> str:
    words = f"threads cluster: ticket\0{use}\0{place.service_id}\0{said}\0{bootstrap}"
    digest = hmac.digest(place.key.encode(), words.encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
